"""wyoming-openai against ``../server.py``, as Home Assistant asks it: prints the passed cases as JSON.

``python wyoming_proxy.py URL KEY POOR_KEY``. The proxy runs as a program of its own; the client here is the
one of its protocol's package.
"""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from wyoming.audio import AudioChunk, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeStopped

from peers.client_cases import IDLE_S, run_cases

URL, KEY, _ = sys.argv[1:4]
TEXT = "One two three four five six."


@asynccontextmanager
async def proxy(key: str = KEY) -> AsyncIterator[AsyncTcpClient]:
    """Run the proxy; yield a connection to it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = {
        "--uri": f"tcp://127.0.0.1:{port}",
        "--tts-openai-url": f"{URL}/v1",
        "--tts-openai-key": key,
        "--tts-streaming-models": "gpt-4o-mini-tts",
        "--tts-voices": "tone-330",
    }
    flags = [item for option in options.items() for item in option]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "wyoming_openai", *flags)
    try:
        client = AsyncTcpClient("127.0.0.1", port)
        while True:
            try:
                await client.connect()
                break
            except ConnectionError:
                assert process.returncode is None
                await asyncio.sleep(0.1)
        yield client
        await client.disconnect()
    finally:
        process.terminate()
        await process.wait()


async def seconds_until(client: AsyncTcpClient, last: type) -> float:
    """Return the length of the audio before an event of a type; an error of the proxy is raised."""
    seconds = 0.0
    while True:
        event = await client.read_event()
        assert event is not None, "the proxy closed its connection"
        if Error.is_type(event.type):
            raise ConnectionRefusedError(Error.from_event(event).text)
        if AudioChunk.is_type(event.type):
            seconds += AudioChunk.from_event(event).seconds
        if last.is_type(event.type):
            return seconds


async def speak(client: AsyncTcpClient, text: str = TEXT) -> float:
    await client.write_event(Synthesize(text).event())
    return await seconds_until(client, AudioStop)


async def voices_are_listed_and_speak() -> None:
    async with proxy() as client:
        await client.write_event(Describe().event())
        event: Event | None = await client.read_event()
        assert event is not None
        names = {voice.name for program in Info.from_event(event).tts for voice in program.voices}
        assert any("tone-330" in name for name in names), names
        assert 1.1 < await speak(client) < 1.5


async def a_text_is_spoken_as_it_is_written() -> None:
    async with proxy() as client:
        await client.write_event(SynthesizeStart().event())
        for word in (TEXT + " " + TEXT).split():
            await client.write_event(SynthesizeChunk(word + " ").event())
        await client.write_event(SynthesizeStop().event())
        seconds = await seconds_until(client, SynthesizeStopped)
        assert 2.2 < seconds < 3.2, seconds


async def an_interruption_ends_with_the_connection() -> None:
    async with proxy() as client:
        await client.write_event(Synthesize(TEXT * 20).event())
        while (event := await client.read_event()) is not None and not AudioChunk.is_type(event.type):
            pass
        await client.disconnect()
        await client.connect()
        assert 1.1 < await speak(client) < 1.5


async def a_wrong_key_is_the_proxys_own_error() -> None:
    async with proxy(key="wrong") as client:
        try:
            await speak(client)
        except ConnectionRefusedError as error:
            assert "failed" in str(error)
            return
    raise AssertionError("a wrong key was accepted")


async def twenty_turns_are_spoken_on_one_connection() -> None:
    async with proxy() as client:
        for _ in range(20):
            assert 0.3 < await speak(client, "One two.") < 0.7


async def a_turn_after_an_idle_time_is_spoken() -> None:
    async with proxy() as client:
        await speak(client, "One two.")
        await asyncio.sleep(IDLE_S)
        assert 0.3 < await speak(client, "One two.") < 0.7


if __name__ == "__main__":
    run_cases(
        "wyoming-openai",
        voices_are_listed_and_speak,
        a_text_is_spoken_as_it_is_written,
        an_interruption_ends_with_the_connection,
        a_wrong_key_is_the_proxys_own_error,
        twenty_turns_are_spoken_on_one_connection,
        a_turn_after_an_idle_time_is_spoken,
    )
