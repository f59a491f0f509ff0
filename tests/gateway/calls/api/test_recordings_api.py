"""Recordings over the calls API, of calls over real sockets."""

import asyncio
import itertools
import json
import time
import wave
from pathlib import Path

import numpy as np
import pytest

from shared.calls.call_server import CallServer, Phone, call_server, run, send_utterance, until
from vivavoce.adapters.audiosocket.protocol import AudioSocketAudio
from vivavoce.gateway.cli.configuration.settings_loader import load_settings
from vivavoce.gateway.configuration.settings_table import SettingsError

CALLER = np.rint(500 * np.sin(2 * np.pi * 400 * np.arange(160) / 8_000)).astype("<i2").tobytes()  # 20 ms


async def talk(phone: Phone) -> None:
    start = time.monotonic()
    for number in itertools.count():
        await asyncio.sleep(start + number * 0.02 - time.monotonic())
        phone.send(AudioSocketAudio(8_000, CALLER))


def loudness(path: Path) -> tuple[float, float]:
    """The peak of the caller's side and of the speech."""
    with wave.open(str(path)) as wav:
        both = np.frombuffer(wav.readframes(wav.getnframes()), "<i2").reshape(-1, 2)
    return float(np.abs(both[:, 0].astype(int)).max()), float(np.abs(both[:, 1].astype(int)).max())


async def hang_up(server: CallServer, phone: Phone) -> None:
    async with server.http() as client:
        assert (await client.delete(f"/{phone.call_id}")).status_code == 200
    while len(server.gateway.calls.registry):
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("media_processes", [0, 1], indirect=True)
def test_a_program_records_a_call_over_its_socket(tmp_path: Path, media_processes: int) -> None:
    async def test() -> None:
        async with call_server(recordings_folder=tmp_path) as server:
            phone = await server.phone()
            talking = asyncio.create_task(talk(phone))
            async with server.socket(phone.call_id) as socket:
                await socket.send(json.dumps({"type": "record"}))
                begun = (await until(socket, "recording"))[-1]
                await send_utterance(socket, "One two three.")
                await until(socket, "speech_finished")
                await socket.send(json.dumps({"type": "record", "on": False}))
                ended = (await until(socket, "recording"))[-1]
            talking.cancel()
            assert begun == {"type": "recording", "on": True, "file": ended["file"]}
            assert ended["on"] is False and phone.call_id in ended["file"]
        caller, speech = loudness(tmp_path / ended["file"])
        assert 490 <= caller <= 500 and speech > 1_000

    run(test())


def test_a_call_is_recorded_over_http_until_it_ends(tmp_path: Path) -> None:
    async def test() -> None:
        async with call_server(recordings_folder=tmp_path) as server, server.http() as client:
            phone = await server.phone()
            path = f"/{phone.call_id}/recording"
            assert (await client.delete(path)).json() == {"error": "the call is not recorded"}
            file = (await client.post(path)).json()["file"]
            assert (await client.post(path)).json() == {"call": phone.call_id, "file": file}
            await client.post(f"/{phone.call_id}/speech", content="Hello.")
            await hang_up(server, phone)
            assert (await client.post(path)).status_code == 404
        assert loudness(tmp_path / file)[1] > 1_000

    run(test())


def test_every_call_is_recorded_if_the_setting_says_so(tmp_path: Path) -> None:
    async def test() -> None:
        async with call_server(recordings_folder=tmp_path / "calls", recordings_all_calls=True) as server:
            for _ in range(2):
                await hang_up(server, await server.phone())
        assert len(list((tmp_path / "calls").glob("*.wav"))) == 2

    run(test())


def test_a_call_goes_on_when_it_cannot_be_recorded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    occupied = tmp_path / "file"
    occupied.touch()

    async def test() -> None:
        async with (
            call_server(recordings_folder=occupied, recordings_all_calls=True) as server,
            server.http() as client,
        ):
            phone = await server.phone()
            answer = await client.post(f"/{phone.call_id}/recording")
            assert answer.status_code == 503 and "the call cannot be recorded" in answer.json()["error"]
            assert (await client.post(f"/{phone.call_id}/speech", content="Hello.")).status_code == 200

    run(test())
    assert f"the call cannot be recorded: [Errno 17] File exists: '{occupied}'" in caplog.text


def test_a_program_is_told_that_a_recording_ended_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def test() -> None:
        async with call_server(recordings_folder=tmp_path) as server, server.http() as client:
            phone = await server.phone()
            path = f"/{phone.call_id}/recording"
            async with server.socket(phone.call_id) as socket:
                file = (await client.post(path)).json()["file"]
                monkeypatch.setattr("vivavoce.gateway.calls.recordings.write_all", fail)
                ended = (await until(socket, "recording"))[-1]
            assert (ended["on"], file in ended["error"]) == (False, True)
            for request in (client.post, client.delete):
                answer = await request(path)
                assert answer.status_code in (503, 400)
            assert "is not recorded" in answer.json()["error"]
            answer = await client.post(path)
            assert (answer.status_code, "No space left" in answer.json()["error"]) == (503, True)

    run(test())


def test_without_a_folder_no_call_can_be_recorded(tmp_path: Path) -> None:
    async def test() -> None:
        async with call_server() as server, server.http() as client:
            phone = await server.phone()
            answer = await client.post(f"/{phone.call_id}/recording")
            assert answer.status_code == 400 and "recordings names no folder" in answer.json()["error"]

    run(test())
    with pytest.raises(SettingsError, match=r"^recordings .*allowed is a table, \{folder = "):
        load_settings(flags={"recordings_all_calls": True})
