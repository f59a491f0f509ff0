"""Cartesia's SDK against ``../server.py``, with only the base URLs changed: prints passed cases as JSON.

``python sdk.py URL KEY POOR_KEY``
"""

import asyncio
import sys
from typing import Any

from cartesia import APIStatusError, AsyncCartesia, Cartesia

from peers.client_cases import IDLE_S, run_cases

URL, KEY, _ = sys.argv[1:4]
MODEL, VOICE = "sonic-3", "tone-330"
RAW: Any = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
TEXT = "One two three four five six."
MAX_IDLE_S = 290.0  # Cartesia closes a connection after five minutes, which its SDK does not open again
SOCKET_URL = URL.replace("http", "ws", 1)
client = Cartesia(api_key=KEY, base_url=URL, websocket_base_url=SOCKET_URL)
async_client = AsyncCartesia(api_key=KEY, base_url=URL, websocket_base_url=SOCKET_URL)


def seconds(pcm: bytes) -> float:
    return len(pcm) / 48_000


def speaks_bytes() -> None:
    answer = client.tts.generate(model_id=MODEL, transcript=TEXT, voice=VOICE, output_format=RAW)
    assert 1.1 < seconds(answer.read()) < 1.4
    wav: Any = {"container": "wav", "encoding": "pcm_f32le", "sample_rate": 44_100}
    answer = client.tts.generate(
        model_id=MODEL, transcript=TEXT, voice={"mode": "id", "id": VOICE}, output_format=wav, language="en"
    )
    assert answer.read()[:4] == b"RIFF"


def speaks_events_with_words() -> None:
    events = list(
        client.tts.generate_sse(
            model_id=MODEL, transcript=TEXT, voice=VOICE, output_format=RAW, add_timestamps=True
        )
    )
    audio = b"".join(event.audio or b"" for event in events if event.type == "chunk")
    assert 1.1 < seconds(audio) < 1.4
    words = [word for event in events if event.type == "timestamps" for word in event.word_timestamps.words]
    assert words == TEXT.split()
    assert events[-1].type == "done"


def speaks_on_a_socket() -> None:
    with client.tts.websocket_connect() as connection:
        context = connection.context(model_id=MODEL, voice=VOICE, output_format=RAW)
        for word in TEXT.split():
            context.push(word + " ")
        context.no_more_inputs()
        events = list(context.receive())
        audio = b"".join(event.audio or b"" for event in events if event.type == "chunk")
        assert events[-1].type == "done"
        assert 1.1 < seconds(audio) < 1.7  # with the pause after a sentence that is not known to be the last


def speaks_with_the_older_interface() -> None:
    connection = client.tts.websocket()
    pieces = [
        piece.audio or b""
        for piece in connection.send(
            model_id=MODEL, transcript=TEXT, voice={"mode": "id", "id": VOICE}, output_format=RAW, stream=True
        )
    ]
    connection.close()
    assert 1.1 < seconds(b"".join(pieces)) < 1.4


async def speaks_contexts_side_by_side() -> None:
    async with async_client.tts.websocket_connect() as connection:

        async def speak(number: int) -> float:
            context = connection.context(model_id=MODEL, voice=VOICE, output_format=RAW)
            for _ in range(number):
                await context.push("One two three four five six. ")
            await context.no_more_inputs()
            audio = b""
            async for event in context.receive():
                if event.type == "chunk":
                    audio += event.audio or b""
            return seconds(audio)

        lengths = await asyncio.gather(*(speak(number) for number in (1, 2, 3, 4)))
        for number, length in enumerate(lengths, 1):
            assert 1.1 * number < length < 1.6 * number, lengths


async def speak_turn(connection: Any) -> None:
    context = connection.context(model_id=MODEL, voice=VOICE, output_format=RAW)
    await context.push("One two.")
    await context.no_more_inputs()
    events = [event async for event in context.receive()]
    audio = b"".join(event.audio or b"" for event in events if event.type == "chunk")
    assert events[-1].type == "done" and 0.3 < seconds(audio) < 0.9, (events[-1].type, seconds(audio))


async def twenty_turns_are_spoken_on_one_connection() -> None:
    async with async_client.tts.websocket_connect() as connection:
        for _ in range(20):
            await speak_turn(connection)


async def a_turn_after_an_idle_time_is_spoken() -> None:
    async with async_client.tts.websocket_connect() as connection:
        await speak_turn(connection)
        await asyncio.sleep(min(IDLE_S, MAX_IDLE_S))
        await speak_turn(connection)


async def cancels() -> None:
    async with async_client.tts.websocket_connect() as connection:
        context = connection.context(model_id=MODEL, voice=VOICE, output_format=RAW)
        await context.push("One two three four five six. " * 50)
        async for event in context.receive():
            if event.type == "chunk":
                break
        await context.cancel()
        await speak_turn(connection)


def lists_voices() -> None:
    assert {"tone-440", "tone-330"} <= {voice.id for voice in client.voices.list()}
    assert client.voices.get("tone-330").name == "tone-330"


def errors_are_its_own() -> None:
    try:
        client.tts.generate(model_id=MODEL, transcript=TEXT, voice="nobody", output_format=RAW)
    except APIStatusError as error:
        assert error.status_code == 404
    else:
        raise AssertionError("an unknown voice was accepted")
    try:
        Cartesia(api_key="wrong", base_url=URL, max_retries=0).voices.get("tone-330")
    except APIStatusError as error:
        assert error.status_code == 401
    else:
        raise AssertionError("a wrong key was accepted")


if __name__ == "__main__":
    run_cases(
        "cartesia",
        speaks_bytes,
        speaks_events_with_words,
        speaks_on_a_socket,
        speaks_with_the_older_interface,
        lists_voices,
        errors_are_its_own,
        speaks_contexts_side_by_side,
        cancels,
        twenty_turns_are_spoken_on_one_connection,
        a_turn_after_an_idle_time_is_spoken,
    )
