"""Wyoming: a TCP port on which satellites and Home Assistant have texts spoken.

    describe              -> info
    synthesize            -> audio-start, audio-chunk ..., audio-stop
    synthesize-start      -> audio-start, audio-chunk ..., audio-stop, synthesize-stopped
      synthesize-chunk ...   (speech comes while text is still being written)
      synthesize-stop
    ping                  -> pong

One text after another is spoken on a connection. Clients cannot send a key.
Source: https://github.com/OHF-Voice/wyoming, README.md and wyoming/tts.py@1.10.2.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType
from typing import Any, Final
from uuid import uuid4

from .....adapters.audio.encoders import AudioFormat
from .....adapters.wyoming.events import BadWyomingEvent, WyomingEvent, WyomingReader
from .....tts_engine.chunk import SAMPLE_RATE
from .....tts_engine.errors import VivavoceError
from ....access.access_control import Grant
from ....access.grant_ends import ending_with_grants
from ....background_tasks import cancel_and_wait
from ....listening_sockets import bind_socket, bound_address
from ....web.request_log import RequestRecord
from ...dialect import Dialect, DialectPort, DrainableApi, OpenDialect
from ...kits.request_fields import validated
from ...kits.streamed_body import SEND_TIMEOUT_S
from ...shell.speech import EncodedStream, SynthesisOptions
from ...shell.speech_server import SpeechServer
from .models import WyomingChunk, WyomingStart, WyomingSynthesize, WyomingVoice, describe_server

logger = logging.getLogger(__name__)

_API: Final = "wyoming"  # in the log and the metrics
_MAX_CONNECTIONS: Final = 256
_IDLE_S: Final = 600.0  # without an event; clients connect for each text
_TEXT_WAIT_S: Final = 60.0  # for more of a text
_READ_BYTES: Final = 64 * 1024
_NO_DATA: Final[Mapping[str, Any]] = MappingProxyType({})
_FORMAT: Final = {"rate": SAMPLE_RATE, "width": 2, "channels": 1}


class WyomingServer:
    """The connections of one server; belongs to its event loop."""

    def __init__(self, speech: SpeechServer) -> None:
        self._speech = speech
        self._connections: dict[asyncio.Task[None], _WyomingConnection] = {}
        self._server: asyncio.Server | None = None

    async def start(self, address: tuple[str, int]) -> int:
        """Listen on (host, port) and return the port; raises AddressUnavailable."""
        sock = bind_socket(*address)
        self._server = await asyncio.start_server(self._serve, sock=sock)
        return bound_address(sock)[1]

    async def finish(self, within_s: float) -> None:
        """Refuse new texts, wait at most within_s for those under way, and close the port."""
        self._speech.start_draining()
        if self._server is not None:
            self._server.close()
        for task, connection in self._connections.items():
            if not connection.end_after_text():
                task.cancel()
        if tasks := tuple(self._connections):
            _, late = await asyncio.wait(tasks, timeout=within_s)
            await cancel_and_wait(*late)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection. Boundary: any error ends it and no other."""
        task = asyncio.current_task()
        assert task is not None
        try:
            if len(self._connections) < _MAX_CONNECTIONS:
                connection = self._connections[task] = _WyomingConnection(self._speech, reader, writer)
                await connection.run()
        except (ConnectionError, TimeoutError, asyncio.CancelledError):
            pass
        except Exception:
            logger.exception("a Wyoming connection failed")
        finally:
            self._connections.pop(task, None)
            writer.close()


class _WyomingConnection:
    def __init__(
        self, speech: SpeechServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._speech = speech
        self._reader, self._writer = reader, writer
        self._events = self._read()
        self._is_speaking = self._is_ending = False

    def end_after_text(self) -> bool:
        """Answer nothing after the text that is being spoken; return whether there is one."""
        self._is_ending = True
        return self._is_speaking

    async def run(self) -> None:
        """Answer events until the client leaves, or sends what is none."""
        try:
            async for event in self._events:
                try:
                    with ending_with_grants():
                        await self._answer(event)
                except BadWyomingEvent:
                    raise
                except VivavoceError as error:
                    await self._send("error", {"text": str(error), "code": type(error).__name__})
                if self._is_ending:
                    return
        except BadWyomingEvent as error:
            await self._send("error", {"text": str(error), "code": "BadWyomingEvent"})

    async def _read(self) -> AsyncIterator[WyomingEvent]:
        reader = WyomingReader()
        while True:
            async with asyncio.timeout(_IDLE_S):
                received = await self._reader.read(_READ_BYTES)
            if not received:
                return
            for event in reader.push(received):
                yield event

    async def _answer(self, event: WyomingEvent) -> None:
        match event.type:
            case "describe":
                grant = self._speech.access.list_grant({})
                voices = self._speech.voices
                listed = voices.bundle_voices() if grant is None else voices.usable_voices(grant)
                await self._send("info", describe_server(listed))
            case "ping":
                await self._send("pong", event.data)
            case "synthesize":
                whole = validated(WyomingSynthesize.model_validate, event.data)
                await self._speak(whole, _whole(self._speech.check_text(whole.text)))
            case "synthesize-start":
                await self._speak(validated(WyomingStart.model_validate, event.data), self._read_chunks())
                await self._send("synthesize-stopped")
            case _:
                pass  # newer clients send more, and expect that it is ignored

    async def _speak(self, start: WyomingStart, text: AsyncIterator[str]) -> None:
        """Speak a text while it comes in pieces."""
        self._is_speaking = True
        try:
            server = self._speech
            grant = server.authorize_request({})
            options = self._options(start, grant)
            with server.log.track(_API, grant, uuid4().hex) as record, grant.stream():
                record.voice = options.voice or "-"
                async with server.open_stream(options, grant) as stream:
                    await self._speak_on(stream, text, grant, record)
        finally:
            self._is_speaking = False

    async def _speak_on(
        self, stream: EncodedStream, text: AsyncIterator[str], grant: Grant, record: RequestRecord
    ) -> None:
        sending = asyncio.create_task(self._send_speech(stream))
        try:
            async for part in text:
                if sending.done():
                    break
                grant.charge_characters(len(part))
                record.count_text(len(part))
                stream.push_text(part)
            stream.end_input()
            record.count_audio(await sending)
        finally:
            await cancel_and_wait(sending)

    async def _read_chunks(self) -> AsyncIterator[str]:
        """Yield the text of the events up to ``synthesize-stop``."""
        while True:
            async with asyncio.timeout(_TEXT_WAIT_S):
                event = await anext(self._events, None)
            if event is None:
                raise ConnectionError("the client left")
            if event.type == "synthesize-stop":
                return
            if event.type == "synthesize-chunk":
                yield validated(WyomingChunk.model_validate, event.data).text
            # "synthesize" is the whole text again, for servers that take no chunks

    def _options(self, start: WyomingStart, grant: Grant) -> SynthesisOptions:
        wanted = start.voice or WyomingVoice()
        voices = self._speech.voices
        voice = voices.resolve(wanted.name, grant)
        language = None if wanted.name else wanted.language
        if language:
            spoken = language.replace("_", "-").partition("-")[0].lower()
            fitting = (one.id for one in voices.usable_voices(grant) if one.language.startswith(spoken))
            voice = next(fitting, voice)
        return SynthesisOptions(voice, AudioFormat("pcm"), finds_ssml=start.text_format != "text")

    async def _send_speech(self, stream: EncodedStream) -> float:
        """Send the speech of a stream; returns its seconds."""
        samples = 0
        await self._send("audio-start", {**_FORMAT, "timestamp": 0})
        async for chunk in stream:
            if chunk.audio:
                milliseconds = 1000 * samples // SAMPLE_RATE
                await self._send("audio-chunk", {**_FORMAT, "timestamp": milliseconds}, chunk.audio)
                samples += len(chunk.audio) // 2
        await self._send("audio-stop", {"timestamp": 1000 * samples // SAMPLE_RATE})
        return samples / SAMPLE_RATE

    async def _send(self, kind: str, data: Mapping[str, Any] = _NO_DATA, payload: bytes = b"") -> None:
        self._writer.write(bytes(WyomingEvent(kind, data, payload)))
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await self._writer.drain()


async def _whole(text: str) -> AsyncIterator[str]:
    yield text


async def _listen(speech: SpeechServer, address: tuple[str, int]) -> tuple[DrainableApi, int]:
    server = WyomingServer(speech)
    return server, await server.start(address)


def _open(server: SpeechServer) -> OpenDialect:
    return OpenDialect((), ())


WYOMING: Final = Dialect("wyoming", _open, ports=(DialectPort("wyoming", _listen),), title="Wyoming")
