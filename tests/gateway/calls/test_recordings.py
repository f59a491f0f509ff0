"""Recordings of calls: their files, discards, a disk that fails; in virtual time."""

import asyncio
import logging
import wave
from pathlib import Path

import numpy as np
import pytest

from shared.calls.ticked_call import SAMPLE_RATE, RunVirtually, open_call
from vivavoce.gateway.calls.recordings import CallNotRecordable, CallRecordings

PACKET_S = 0.02


def read_levels(path: Path) -> tuple[list[int], list[int]]:
    """The level of the caller and of the speech, every 20 ms."""
    with wave.open(str(path)) as wav:
        assert (wav.getnchannels(), wav.getsampwidth(), wav.getframerate()) == (2, 2, SAMPLE_RATE)
        both = np.frombuffer(wav.readframes(wav.getnframes()), "<i2").reshape(-1, 2)
    samples = round(PACKET_S * SAMPLE_RATE)
    return both[samples // 2 :: samples, 0].tolist(), both[samples // 2 :: samples, 1].tolist()


def make_recordings(folder: Path) -> CallRecordings:
    return CallRecordings(folder, now=asyncio.get_running_loop().time)


def test_both_sides_are_recorded_as_they_were_sent(run_virtually: RunVirtually, tmp_path: Path) -> None:
    async def scenario() -> None:
        recordings = make_recordings(tmp_path)
        async with open_call(recordings=recordings) as ticked:
            name = ticked.call.record()
            assert ticked.call.record() == name  # twice is no error
            speaking = asyncio.create_task(ticked.call.speak("One. Two."))
            for _ in range(100):
                ticked.media.receive_audio(np.full(160, 500, "<i2").tobytes(), 8_000)
                await asyncio.sleep(PACKET_S)
            await speaking
            await ticked.call.wait_played()
            assert ticked.call.stop_recording() == name
            assert ticked.call.stop_recording() == ""
            sent = len(ticked.sent_levels)
            await ticked.call.speak("Three.")  # is not recorded
        recordings.close()
        caller, speech = read_levels(tmp_path / name)
        heard = [level for level in caller if level]  # resampled from 8 kHz
        assert len(heard) == pytest.approx(100, abs=3) and np.median(heard) == pytest.approx(500, abs=2)
        assert [level for level in speech if level] == [level for level in ticked.sent_levels[:sent] if level]
        assert len(speech) == pytest.approx(sent, abs=3)

    run_virtually(scenario())


def test_discarded_speech_is_not_recorded_and_the_end_of_the_call_completes_the_file(
    run_virtually: RunVirtually, tmp_path: Path
) -> None:
    async def scenario() -> None:
        recordings = make_recordings(tmp_path)
        async with open_call(recordings=recordings) as ticked:
            name = ticked.call.record()
            speaking = asyncio.create_task(ticked.call.speak("One."))
            await asyncio.sleep(0.5)
            await ticked.call.discard()
            await speaking
            await asyncio.sleep(1.0)
            ticked.call.hang_up()
        recordings.close()
        _, speech = read_levels(tmp_path / name)
        assert speech.count(1000) == ticked.sent_levels.count(1000) < 40
        assert len(speech) == pytest.approx(75, abs=3)

    run_virtually(scenario())


def test_the_file_can_be_read_while_the_call_is_up(run_virtually: RunVirtually, tmp_path: Path) -> None:
    async def scenario() -> None:
        recordings = make_recordings(tmp_path)
        async with open_call(recordings=recordings) as ticked:
            name = ticked.call.record()
            await asyncio.sleep(5.0)
            recordings.close()  # has written all that was submitted
            caller, _ = read_levels(tmp_path / name)
            assert 150 <= len(caller) <= 250
            ticked.call._recorder = None  # its writer is closed

    run_virtually(scenario())


def test_a_disk_that_fails_ends_the_recording_and_not_the_call(
    run_virtually: RunVirtually,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def scenario() -> None:
        recordings = make_recordings(tmp_path)
        async with open_call(recordings=recordings) as ticked:
            ticked.call.record()
            monkeypatch.setattr(wave.Wave_write, "writeframes", fail)
            await ticked.call.speak("One. Two. Three. Four. Five.")
            await ticked.call.wait_played()
            assert ticked.reasons == []
            ticked.call.stop_recording()
        recordings.close()

    with caplog.at_level(logging.ERROR):
        run_virtually(scenario())
    (record,) = caplog.records
    assert "Call call-1: its recording" in record.getMessage() and "No space left" in record.getMessage()


def test_a_call_without_a_folder_cannot_be_recorded(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            with pytest.raises(CallNotRecordable, match="recordings names no folder"):
                ticked.call.record()

    run_virtually(scenario())


def test_ids_of_calls_make_safe_and_distinct_file_names(tmp_path: Path) -> None:
    recordings = CallRecordings(tmp_path / "made")
    recorders = [recordings.begin("../../etc/pass wd" + 300 * "x", SAMPLE_RATE) for _ in range(3)]
    for recorder in recorders:
        recorder.close()
    recordings.close()
    names = {recorder.path.name for recorder in recorders}
    assert len(names) == 3 and {path.name for path in (tmp_path / "made").iterdir()} == names
    assert all(".._.._etc_pass_wd" in name and len(name) < 130 for name in names)
