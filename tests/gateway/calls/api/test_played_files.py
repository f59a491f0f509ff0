"""Sound files that programs play on calls, over real sockets."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection

from shared.audio.sound_files import encoded
from shared.audio.tones import PitchTags
from shared.calls.call_server import Phone, call_server, run, send_utterance, until

FILE_HZ, VOICE_HZ = 700, 440
TAGS = PitchTags((FILE_HZ, VOICE_HZ))


def write_tone(path: Path, seconds: float) -> None:
    time_s = np.arange(round(seconds * 16_000)) / 16_000
    samples = 0.5 * np.sin(2 * np.pi * FILE_HZ * time_s)
    path.write_bytes(encoded(samples[None].astype(np.float32), 16_000, "wav", "pcm_s16le"))


@pytest.fixture
def sounds(tmp_path: Path, decoded_in_this_process: None) -> Iterator[Path]:
    write_tone(tmp_path / "menu.wav", 1.0)
    write_tone(tmp_path / "long.wav", 20.0)
    return tmp_path


def seconds_of_file(phone: Phone) -> float:
    return TAGS.count(bytes(phone.heard), FILE_HZ, 8_000)[0] / 8_000


async def send(socket: ClientConnection, **message: Any) -> None:
    await socket.send(json.dumps(message))


def described(received: list[dict[str, Any]]) -> list[str]:
    names = ("speech_started", "word", "mark", "speech_finished")
    return [
        message.get("text") or message.get("name") or message["type"]
        for message in received
        if message["type"] in names
    ]


def test_a_file_is_heard_between_the_words_around_it_with_its_marks(sounds: Path) -> None:
    async def test() -> None:
        async with call_server(sounds_folder=sounds) as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await send(socket, type="text", text="Listen now.")  # without its end
                await send(socket, type="play", file="menu.wav", marks={"middle": 0.5})
                await send_utterance(socket, "Again.")
                received = [message for _ in range(3) for message in await until(socket, "speech_finished")]
        assert [message["outcome"] for message in received if message["type"] == "speech_finished"] == [
            "spoken"
        ] * 3
        order = [name for name in described(received) if name not in ("speech_started", "speech_finished")]
        assert order == ["Listen", "now", "middle", "Again"]
        mark = next(message for message in received if message["type"] == "mark")
        assert (mark["utterance"], mark["at_s"]) == (1, 0.5)
        assert seconds_of_file(phone) == pytest.approx(1.0, abs=0.11)

    run(test())


def test_a_discard_cuts_a_file_and_tells_how_much_was_heard(sounds: Path) -> None:
    async def test() -> None:
        async with call_server(sounds_folder=sounds) as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await send(socket, type="play", file="long.wav", marks={"first": 0.4, "later": 15.0})
                await send(socket, type="play", file="menu.wav")  # waits, and is dropped
                await until(socket, "mark")
                await send(socket, type="discard")
                discarded = (await until(socket, "discarded"))[-1]
                assert (discarded["utterance"], discarded["heard"], discarded["marks"]) == (0, "", ["first"])
                assert 0.4 <= discarded["heard_s"] < 5.0
                await send_utterance(socket, "Well.")
                assert described(await until(socket, "speech_finished"))[1] == "Well"
        assert seconds_of_file(phone) == pytest.approx(discarded["heard_s"], abs=0.2)

    run(test())


def test_a_file_that_cannot_be_played_is_an_error_and_the_call_goes_on(sounds: Path) -> None:
    (sounds / "text.wav").write_text("no sound", encoding="utf-8")

    async def test() -> None:
        async with call_server(sounds_folder=sounds) as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                for name in ("text.wav", "../menu.wav", "none.wav"):
                    await send(socket, type="play", file=name)
                await send(socket, type="play", file="menu.wav", marks={"": -1})
                await send_utterance(socket, "Well.")
                received = await until(socket, "speech_finished")
        errors = sorted(message["message"] for message in received if message["type"] == "error")
        assert [error[:40] for error in errors] == [
            "'../menu.wav' is outside the folder of s",
            "play.marks..[key]: String should have at",
            "text.wav: the file is no recording that ",
            "there is no sound 'none.wav' in the fold",
        ]

    run(test())


def test_a_file_that_is_deleted_while_it_waits_is_silence_and_one_error(sounds: Path) -> None:
    async def test() -> None:
        async with call_server(sounds_folder=sounds) as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await send(socket, type="text", text="One two three four five six seven eight nine ten. " * 2)
                await send(socket, type="play", file="menu.wav", marks={"middle": 0.5})
                received = await until(socket, "word")  # 0.6 s of the speech is ready; the file is not
                (sounds / "menu.wav").unlink()
                await send_utterance(socket, "Well.")
                while not any(message.get("text") == "Well" for message in received):
                    received += await until(socket, "word")
                received += await until(socket, "speech_finished")
        errors = [message["message"] for message in received if message["type"] == "error"]
        assert errors == ["menu.wav: No such file or directory"]
        assert "middle" not in described(received)
        assert seconds_of_file(phone) == 0.0

    run(test())


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve the files of a folder over HTTP; yields host and port."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_url_is_played_if_its_host_may_be_fetched_from(sounds: Path) -> None:
    with serving(sounds) as host:

        async def test() -> None:
            async with call_server(apis_reference_hosts=(host,)) as server:
                phone = await server.phone()
                async with server.socket(phone.call_id) as socket:
                    await send(socket, type="play", file=f"http://{host}/menu.wav", marks={"middle": 0.5})
                    assert "middle" in described(await until(socket, "speech_finished"))
                    await send(socket, type="play", file=f"http://{host}/none.wav")
                    assert "answered 404" in (await until(socket, "error"))[-1]["message"]
                    await send(socket, type="play", file="http://127.0.0.1:9/menu.wav")
                    assert "port 9" in (await until(socket, "error"))[-1]["message"]
                assert seconds_of_file(phone) == pytest.approx(1.0, abs=0.11)

        run(test())


def test_a_file_is_played_over_http_and_answered_when_it_was_heard(sounds: Path) -> None:
    async def test() -> None:
        async with call_server(sounds_folder=sounds) as server, server.http() as client:
            phone = await server.phone()
            played = await client.post(f"/{phone.call_id}/play", json={"file": "menu.wav"})
            assert (played.status_code, played.json()["outcome"]) == (200, "spoken")
            assert seconds_of_file(phone) == pytest.approx(1.0, abs=0.11)
            absent = await client.post(f"/{phone.call_id}/play", json={"file": "none.wav"})
            outside = await client.post(f"/{phone.call_id}/play", json={"file": "../menu.wav"})
            wrong = await client.post(f"/{phone.call_id}/play", json={"path": "menu.wav"})
            assert [answer.status_code for answer in (absent, outside, wrong)] == [404, 400, 400]
            async with server.socket(phone.call_id) as socket:
                await until(socket, "started")
                taken = await client.post(f"/{phone.call_id}/play", json={"file": "menu.wav"})
                assert taken.status_code == 409

    run(test())


def test_without_a_folder_nothing_can_be_played() -> None:
    async def test() -> None:
        async with call_server() as server, server.http() as client:
            phone = await server.phone()
            answer = await client.post(f"/{phone.call_id}/play", json={"file": "menu.wav"})
            assert answer.status_code == 404 and "sounds.folder" in answer.json()["error"]

    run(test())
