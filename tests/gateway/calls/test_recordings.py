"""Recordings of calls: their files, discards, a disk that fails; in virtual time."""

import asyncio
import logging
import os
import stat
import threading
import wave
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

from shared.calls.ticked_call import SAMPLE_RATE, RunVirtually, open_call
from vivavoce.adapters.audio.pcm import WAV_HEADER_BYTES
from vivavoce.adapters.media.call_media import RecordedAudio
from vivavoce.gateway.calls.events import RecordingEnded
from vivavoce.gateway.calls.recordings import CallNotRecordable, CallRecordings, RecordingFailed

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
            recording = ticked.call.recording.begin()
            assert ticked.call.recording.begin() is recording  # twice is no error
            speaking = asyncio.create_task(ticked.call.speech.speak("One. Two."))
            for _ in range(100):
                ticked.media.receive_audio(np.full(160, 500, "<i2").tobytes(), 8_000)
                await asyncio.sleep(PACKET_S)
            await speaking
            await ticked.call.speech.wait_played()
            name = await recording
            assert await ticked.call.recording.end() == name
            assert await ticked.call.recording.end() == ""
            sent = len(ticked.sent_levels)
            await ticked.call.speech.speak("Three.")  # is not recorded
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
            recording = ticked.call.recording.begin()
            speaking = asyncio.create_task(ticked.call.speech.speak("One."))
            await asyncio.sleep(0.5)
            await ticked.call.speech.discard()
            await speaking
            await asyncio.sleep(1.0)
            ticked.call.end.hang_up()
            name = await recording
        recordings.close()
        _, speech = read_levels(tmp_path / name)
        assert speech.count(1000) == ticked.sent_levels.count(1000) < 40
        assert len(speech) == pytest.approx(75, abs=3)

    run_virtually(scenario())


def test_the_file_can_be_read_while_the_call_is_up(run_virtually: RunVirtually, tmp_path: Path) -> None:
    async def scenario() -> None:
        recordings = make_recordings(tmp_path)
        async with open_call(recordings=recordings) as ticked:
            recording = ticked.call.recording.begin()
            await asyncio.sleep(5.0)
            await recordings.submit(lambda: None)  # all that was submitted is written
            caller, _ = read_levels(tmp_path / await recording)
            assert len(caller) >= 150
            ticked.call.end.hang_up()
        recordings.close()

    run_virtually(scenario())


def fill_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("vivavoce.gateway.calls.recordings.write_all", fail)


def test_only_the_user_of_the_server_may_read_a_recording(
    run_virtually: RunVirtually, tmp_path: Path
) -> None:
    async def scenario() -> None:
        recordings = make_recordings(tmp_path / "calls" / "recorded")
        async with open_call(recordings=recordings) as ticked:
            await ticked.call.recording.begin()
            ticked.call.end.hang_up()
        recordings.close()

    mask = os.umask(0)
    try:
        run_virtually(scenario())
    finally:
        os.umask(mask)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "calls").rglob("*")]
    assert sorted(modes) == [0o600, 0o700]
    assert stat.S_IMODE((tmp_path / "calls").stat().st_mode) == 0o700


def test_a_disk_that_fails_ends_the_recording_and_not_the_call(
    run_virtually: RunVirtually,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[RecordingEnded] = []

    async def scenario() -> None:
        recordings = make_recordings(tmp_path)
        async with open_call(recordings=recordings) as ticked:
            ticked.call.events.add_listener(
                lambda event: ended.append(event) if isinstance(event, RecordingEnded) else None
            )
            name = await ticked.call.recording.begin()
            await ticked.call.speech.speak("One. Two. Three. Four. Five.")
            # The writer's thread may be behind the virtual clock.
            await recordings.submit(lambda: None)
            with monkeypatch.context() as full:
                fill_disk(full)
                await ticked.call.speech.speak("One. Two. Three. Four. Five.")
                await ticked.call.speech.wait_played()
                await recordings.submit(lambda: None)
                await asyncio.sleep(0)
                assert [name in event.error for event in ended] == [True]
                with pytest.raises(RecordingFailed, match=f"{name} ended: .*No space left"):
                    await ticked.call.recording.begin()
                with pytest.raises(RecordingFailed, match=r"cannot be recorded: .*No space left"):
                    await ticked.call.recording.begin()
            assert ticked.reasons == []
            failures = ticked.engine.metrics.registry.get_sample_value("vivavoce_recording_failures_total")
            assert failures == len(ended) == 2
            next_name = await ticked.call.recording.begin()
            assert ticked.call.recording.end().result() == next_name != name
        recordings.close()
        assert set(os.listdir(tmp_path)) == {name, next_name}
        assert len(read_levels(tmp_path / name)[1]) > 20  # what was written before

    with caplog.at_level(logging.ERROR):
        run_virtually(scenario())
    messages = [record.getMessage() for record in caplog.records]
    assert "Call call-1: its recording" in messages[0] and "No space left" in messages[0]


def test_a_call_without_a_folder_cannot_be_recorded(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            with pytest.raises(CallNotRecordable, match="recordings names no folder"):
                ticked.call.recording.begin()

    run_virtually(scenario())


def test_a_call_that_is_over_is_not_recorded(run_virtually: RunVirtually, tmp_path: Path) -> None:
    async def scenario() -> None:
        recordings = make_recordings(tmp_path)
        async with open_call(recordings=recordings) as ticked:
            ticked.call.end.hang_up()
            with pytest.raises(CallNotRecordable, match="the call is over"):
                ticked.call.recording.begin()
            assert await ticked.call.recording.end() == ""
        recordings.close()

    run_virtually(scenario())
    assert list(tmp_path.iterdir()) == []


def test_ids_of_calls_make_safe_and_distinct_file_names(run_virtually: RunVirtually, tmp_path: Path) -> None:
    async def scenario() -> None:
        recordings = make_recordings(tmp_path / "made")
        ids = [*3 * ["../../etc/pass wd" + 300 * "x"], 100 * "通"]
        recorders = [recordings.begin(call_id, SAMPLE_RATE, lambda *_: None) for call_id in ids]
        for recorder in recorders:
            recorder.close()
        recordings.close()
        names = [await recorder.opened for recorder in recorders]
        assert len(set(names)) == 4 and {path.name for path in (tmp_path / "made").iterdir()} == set(names)
        assert all(".._.._etc_pass_wd" in name for name in names[:3]) and "-通通通" in names[3]
        assert all(len(name.encode()) < 130 for name in names)

    run_virtually(scenario())


def test_a_disk_that_does_not_answer_stops_neither_the_call_nor_later_recordings(
    run_virtually: RunVirtually,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = threading.Event()

    def wait_for_disk(_: Path) -> None:
        answers.wait()

    monkeypatch.setattr("vivavoce.gateway.calls.recordings.make_private_folder", wait_for_disk)
    monkeypatch.setattr("vivavoce.gateway.calls.recordings._MAX_UNWRITTEN_BYTES", 500_000)

    async def scenario() -> None:
        recordings = make_recordings(tmp_path)
        async with open_call(recordings=recordings) as ticked:
            ended = ticked.call.recording.begin()
            await ticked.call.speech.speak("One. Two. Three. Four. Five. Six. Seven. Eight.")
            await ticked.call.speech.wait_played()
            assert ticked.reasons == [] and not ended.done()
            assert len(caplog.records) == 1 and "the disk is too slow" in caplog.text
            answers.set()
            await ended
            with pytest.raises(RecordingFailed, match="the disk is too slow"):
                await ticked.call.recording.end()
            await recordings.submit(lambda: None)  # all that waited is written
            later = ticked.call.recording.begin()
            await ticked.call.speech.speak("Nine.")
            await ticked.call.speech.wait_played()
            ticked.call.end.hang_up()
            names = await ended, await later
        recordings.close()
        _, speech = read_levels(tmp_path / names[0])
        assert 200 < speech.count(1000) < 300  # up to 500,000 bytes, which are 5.2 s
        _, speech = read_levels(tmp_path / names[1])
        assert speech.count(2000) == 50

    with caplog.at_level(logging.ERROR):
        run_virtually(scenario())
    assert len(caplog.records) == 1


def test_a_recording_ends_where_its_file_is_full(
    run_virtually: RunVirtually,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vivavoce.gateway.calls.recordings._MAX_WAV_BYTES", 3 * 4 * SAMPLE_RATE)

    async def scenario() -> None:
        recordings = make_recordings(tmp_path)
        async with open_call(recordings=recordings) as ticked:
            recording = ticked.call.recording.begin()
            await asyncio.sleep(10.0)
            ticked.call.end.hang_up()
            name = await recording
        recordings.close()
        caller, _ = read_levels(tmp_path / name)
        assert 100 <= len(caller) <= 150

    with caplog.at_level(logging.ERROR):
        run_virtually(scenario())
    (record,) = caplog.records
    assert "a WAV file has at most 4 GiB" in record.getMessage()


def test_a_long_silence_is_written_in_pieces(
    run_virtually: RunVirtually, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []

    def note(_: BinaryIO, data: bytes) -> None:
        written.append(len(data))

    monkeypatch.setattr("vivavoce.gateway.calls.recordings.write_all", note)

    async def scenario() -> None:
        recordings = make_recordings(tmp_path)
        recorder = recordings.begin("call-1", SAMPLE_RATE, lambda *_: None)
        await asyncio.sleep(600.0)
        at = asyncio.get_running_loop().time()
        recorder.take(RecordedAudio(bytes(320), 8_000, at, from_caller=True))
        await asyncio.sleep(600.0)
        recorder.close()
        recordings.close()

    run_virtually(scenario())
    written = [length for length in written if length != WAV_HEADER_BYTES]
    assert sum(written) == pytest.approx(1200 * 4 * SAMPLE_RATE, rel=0.001)
    assert max(written) <= 2.1 * 4 * SAMPLE_RATE
