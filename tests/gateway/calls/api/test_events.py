"""The calls API over real sockets: the caller's speech, discards, all events, keys, and the example."""

import asyncio
import importlib.util
import json
import logging
from pathlib import Path

import numpy as np
import pytest

from shared.calls.call_server import (
    call_server,
    run,
    send_utterance,
    until,
    words,
)
from vivavoce.adapters.audio.resample import Downsampler
from vivavoce.adapters.audiosocket.protocol import (
    AudioSocketAudio,
    Dtmf,
)
from vivavoce.tts_engine.engine import Engine


async def spoken_question() -> bytes:
    """Return a sentence of the packaged voice, s16le at 8 kHz."""
    async with await Engine.open() as engine, engine.stream() as stream:
        stream.push_text("Excuse me, could you please stop talking?")
        stream.end_input()
        down = Downsampler()
        return b"".join([down.push(chunk.pcm) async for chunk in stream])


def test_the_caller_s_speech_is_reported_and_interrupts() -> None:
    async def test() -> None:
        question = await spoken_question()
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await socket.send(json.dumps({"type": "on_speech", "action": "discard"}))
                await send_utterance(
                    socket, "one two three four five six seven eight nine ten eleven twelve " * 4
                )
                await until(socket, "word")
                for start in range(0, len(question), 320):
                    phone.send(AudioSocketAudio(8000, question[start : start + 320]))
                received = [message["type"] for message in await until(socket, "discarded")]
                assert received[-2:] == ["caller_speaking", "discarded"]
                for _ in range(50):
                    phone.send(AudioSocketAudio(8000, bytes(320)))
                await until(socket, "caller_silent")

    run(test())


@pytest.mark.slow
@pytest.mark.parametrize("sample_rate", [12_000, 44_100, 96_000, 192_000])
def test_a_caller_at_any_rate_of_audiosocket_is_heard_on_a_call_that_goes_on(
    sample_rate: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        question = np.frombuffer(await spoken_question(), "<i2")
        place = np.arange(len(question) * sample_rate // 8_000) * 8_000 / sample_rate
        samples = np.interp(place, np.arange(len(question)), question).astype("<i2")
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await until(socket, "started")
                for pcm in np.split(samples, range(sample_rate // 50, len(samples), sample_rate // 50)):
                    phone.send_audio(sample_rate, pcm.tobytes())
                await until(socket, "caller_speaking")
                await send_utterance(socket, "Yes.")
                assert words(await until(socket, "speech_finished")) == ["Yes"]
                assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []

    run(test())


def test_text_of_an_utterance_interrupted_over_http_is_refused_up_to_its_end() -> None:
    async def test() -> None:
        async with call_server() as server, server.http() as client:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await socket.send(json.dumps({"type": "text", "text": "one two three four five six, "}))
                await until(socket, "word")
                assert (await client.post(f"/{phone.call_id}/discard")).json()["heard"]
                await until(socket, "discarded")
                await send_utterance(socket, "seven ", "eight.")
                await send_utterance(socket, "Nine.")
                received = await until(socket, "speech_finished")
                errors = [message["message"] for message in received if message["type"] == "error"]
                assert errors == [
                    "this utterance was interrupted; its text is dropped up to the next end or discard"
                ]
                assert words(received) == ["Nine"]

    run(test())


def test_a_discard_is_answered_when_nothing_is_playing() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await socket.send(json.dumps({"type": "discard"}))
                assert (await until(socket, "discarded"))[-1] == {
                    "type": "discarded",
                    "utterance": None,
                    "cut_ms": 0.0,
                    "heard": "",
                    "marks": [],
                    "heard_s": 0.0,
                }

    run(test())


def test_with_all_events_text_is_reported_as_it_is_written_and_counters_once_a_second() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id, "?events=all") as socket:
                (started,) = await until(socket, "started")
                assert started["voices"][0]["id"] == started["voice"] == "tone-440"
                assert (started["held"], started["speed"], started["answers"]) == (True, 1.0, False)
                await send_utterance(socket, "Hello ", "there.")
                received = await until(socket, "speech_started")
                assert [message for message in received if message["type"] == "utterance"] == [
                    {"type": "utterance", "turn": 0, "text": "Hello "},
                    {"type": "utterance", "turn": 0, "text": "there."},
                ]
                assert received[-1].keys() == {"type", "utterance", "turn", "after_text_ms"}
                stats = (await until(socket, "stats"))[-1]
                assert stats["packets"] > 0 and stats["underruns"] >= 0

    run(test())


def test_a_program_may_send_digits_and_gets_an_error_without_a_language_model() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await socket.send(json.dumps({"type": "dtmf", "digit": "#"}))
                assert (await until(socket, "dtmf"))[-1]["digit"] == "#"
                await socket.send(json.dumps({"type": "ask", "text": "Why?"}))
                assert "no language model" in (await until(socket, "error"))[-1]["message"]

    run(test())


def test_the_example_attaches_to_a_call_and_answers_a_key(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[4] / "examples" / "attach_to_a_call.py"
    spec = importlib.util.spec_from_file_location("attach_to_a_call", path)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)

    printed = ""

    async def until_printed(text: str) -> None:
        nonlocal printed
        while text not in printed:
            await asyncio.sleep(0.01)
            printed += capsys.readouterr().out

    async def test() -> None:
        async with call_server() as server:
            attaching = asyncio.create_task(example.attach(f"ws://{server.base}/next/socket"))
            phone = await server.phone()
            await until_printed("Hello")
            phone.send(Dtmf("7"))
            await until_printed("That was key")
            await phone.aclose()
            await attaching

    run(test())
    assert "interrupted after: Hello" in printed
    assert "the caller hung up" in printed + capsys.readouterr().out
