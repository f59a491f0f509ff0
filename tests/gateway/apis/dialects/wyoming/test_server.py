"""The Wyoming server, driven by the protocol's own package as Home Assistant does it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("wyoming", reason="needs the package wyoming")

from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

from shared.audio.tones import pitch_of
from shared.engine.standin_backend import WORD_S
from shared.event_loop import until
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeysFile
from vivavoce.gateway.access.origins import Origins
from vivavoce.gateway.apis.dialects.wyoming.dialect import WyomingServer

TEXT = "One two three."


@asynccontextmanager
async def connected(served: Any) -> AsyncIterator[AsyncTcpClient]:
    port = await served.apis.listen("wyoming", ("127.0.0.1", 0))
    async with AsyncTcpClient("127.0.0.1", port) as client:
        yield client


async def event_of(client: AsyncTcpClient) -> Any:
    event = await asyncio.wait_for(client.read_event(), 20)
    assert event is not None
    return event


async def read_speech(client: AsyncTcpClient) -> bytes:
    start = AudioStart.from_event(await event_of(client))
    assert (start.rate, start.width, start.channels) == (24_000, 2, 1)
    pcm = b""
    while AudioChunk.is_type((event := await event_of(client)).type):
        pcm += AudioChunk.from_event(event).audio
    assert AudioStop.is_type(event.type)
    return pcm


def test_a_client_is_told_all_voices_and_that_text_may_be_streamed(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        async with connected(served) as client:
            await client.write_event(Describe().event())
            (program,) = Info.from_event(await event_of(client)).tts
            assert program.supports_synthesize_streaming
            assert [voice.name for voice in program.voices] == ["tone-440", "tone-330"]
            assert all(voice.languages and voice.installed for voice in program.voices)
            await client.write_event(Ping(text="there?").event())
            assert Pong.from_event(await event_of(client)).text == "there?"

    run_every_api(test)


def test_texts_are_spoken_one_after_another_by_the_voice_that_is_named(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        async with connected(served) as client:
            for name, pitch in (("tone-440", 440), ("tone-330", 330)):
                await client.write_event(Synthesize(TEXT, SynthesizeVoice(name=name)).event())
                pcm = await read_speech(client)
                assert len(pcm) / 48_000 == pytest.approx(3 * WORD_S + 0.02, abs=0.01)
                assert pitch_of(pcm) == pytest.approx(pitch, rel=0.02)

    run_every_api(test)


def test_speech_comes_while_text_is_still_being_written(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        async with connected(served) as client:
            await client.write_event(SynthesizeStart(SynthesizeVoice(name="tone-330")).event())
            for text in ("One two ", "three. Four "):
                await client.write_event(SynthesizeChunk(text).event())
            assert AudioStart.is_type((await event_of(client)).type)
            assert AudioChunk.is_type((await event_of(client)).type)  # before the text is complete
            await client.write_event(SynthesizeChunk("five six.").event())
            await client.write_event(Synthesize("One two three. Four five six.").event())  # ignored here
            await client.write_event(SynthesizeStop().event())
            while not AudioStop.is_type((event := await event_of(client)).type):
                assert AudioChunk.is_type(event.type)
            assert SynthesizeStopped.is_type((await event_of(client)).type)
            await client.write_event(Synthesize(TEXT).event())
            assert await read_speech(client)

    run_every_api(test)


def test_errors_are_events_and_the_connection_goes_on(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        async with connected(served) as client:
            for wrong in (Synthesize(TEXT, SynthesizeVoice(name="nobody")), Synthesize("  ")):
                await client.write_event(wrong.event())
                error = Error.from_event(await event_of(client))
                assert error.text and "Traceback" not in error.text
            await client.write_event(Synthesize(TEXT).event())
            assert await read_speech(client)

    run_every_api(test)


def test_a_client_that_leaves_frees_the_engine(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        async with connected(served) as client:
            await client.write_event(SynthesizeStart().event())
            await client.write_event(SynthesizeChunk("One two three. " * 200).event())
            await read_some(client)
        await until(lambda: served.backend.open_slots == 0)

    async def read_some(client: AsyncTcpClient) -> None:
        for _ in range(3):
            await event_of(client)

    run_every_api(test)


def test_what_is_no_event_ends_the_connection_with_an_error(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        port = await served.apis.listen("wyoming", ("127.0.0.1", 0))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b'{"type": "synthesize", "data_length": 99999999}\n')
        answer = await asyncio.wait_for(reader.read(), 20)
        assert b"data_length is 99999999" in answer
        writer.close()

    run_every_api(test)


def test_a_server_with_keys_refuses_since_clients_can_send_none(run_every_api: Any, tmp_path: Path) -> None:
    async def test(served: Any) -> None:
        async with connected(served) as client:
            await client.write_event(Synthesize(TEXT).event())
            assert "key" in Error.from_event(await event_of(client)).text

    run_every_api(test, access=AccessControl(KeysFile(tmp_path / "keys.json"), Origins("127.0.0.1", ())))


def test_a_shutdown_hears_a_text_out_and_waits_for_no_idle_client(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        server = WyomingServer(served.apis.server)
        port = await server.start(("127.0.0.1", 0))
        async with AsyncTcpClient("127.0.0.1", port) as idle, AsyncTcpClient("127.0.0.1", port) as client:
            await idle.write_event(Describe().event())
            await event_of(idle)
            await client.write_event(SynthesizeStart().event())
            await client.write_event(SynthesizeChunk("One two. ").event())
            assert AudioStart.is_type((await event_of(client)).type)
            finishing = asyncio.create_task(server.finish(600.0))
            assert await asyncio.wait_for(idle.read_event(), 20) is None
            await client.write_event(SynthesizeChunk("Three four.").event())
            await client.write_event(SynthesizeStop().event())
            while not SynthesizeStopped.is_type((await event_of(client)).type):
                pass
            await asyncio.wait_for(finishing, 20)

    run_every_api(test)
