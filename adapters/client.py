"""Client of the native speech socket of a vivavoce server, with a pool of open connections.

    async with SpeechClient("ws://127.0.0.1:8080", api_key=KEY) as client:
        async with client.utterance(SpeechOptions(voice="heart")) as utterance:
            await utterance.push_text("Hello.")
            await utterance.end_input()
            async for piece in utterance:
                play(piece.audio)

A new connection delays the first audio by a handshake, so the pool opens some in advance. An utterance has a
connection to itself, which returns to the pool once all messages of the utterance are read. A connection that
fails, or that still delivers messages 2 s after a cancel, is closed. Servers close connections that are idle
for a minute, so the pool replaces them earlier.

Source: the protocol is ``native_stream``; for comparison, DashScope's SpeechSynthesizerObjectPool
(dashscope 1.25, audio/tts_v2/speech_synthesizer.py) leaks the sockets that it replaces, does not check that a
connection is open and has no upper bound.
"""

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, InvalidURI, WebSocketException
from websockets.uri import parse_uri

from ..tts_engine.chunk import Word
from ..tts_engine.errors import BadRequest, BadText, Overloaded, SynthesisFailed, UnknownVoice, VivavoceError

logger = logging.getLogger(__name__)

SPEECH_STREAM_PATH = "/v1/audio/speech/stream"
_MAX_MESSAGE_BYTES = 2**22  # received; a server sends about 1 s of audio in one message
_SERVER_ERROR_CODES = ("server_error", "internal_error")
_MAX_MESSAGE_CHARACTERS = 2**13  # sent; an eighth of the server's limit
_CLOSE_TIMEOUT_S = 1.0  # for the closing handshake
_DRAIN_TIMEOUT_S = 2.0  # for the messages after a cancel; then the connection is closed


class ServerUnavailable(VivavoceError):
    """The server cannot be reached, or closed the connection during an utterance."""


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """Size and timeouts of the pool; raises BadRequest unless 0 <= min <= max connections and max >= 1."""

    max_connections: int = 20  # open at once
    min_connections: int = 2  # kept open in advance
    acquire_timeout_s: float = 10.0  # wait for a connection when all are in use
    max_idle_s: float = 30.0  # age at which an idle connection is replaced; servers close them at 60
    connect_timeout_s: float = 10.0  # one handshake

    def __post_init__(self) -> None:
        if not 0 <= self.min_connections <= self.max_connections or self.max_connections < 1:
            raise BadRequest(
                f"got min_connections={self.min_connections} and max_connections={self.max_connections}; "
                "allowed is 0 <= min_connections <= max_connections and max_connections >= 1"
            )


@dataclass(frozen=True, slots=True)
class SpeechOptions:
    """Voice and audio format of an utterance; None leaves the choice to the server."""

    voice: str | None = None
    response_format: str = "pcm"  # pcm (s16le), wav, mp3, opus, aac, flac, ulaw, alaw
    sample_rate: int = 24_000  # Hz
    speed: float = 1.0  # factor of the voice's speed, 0.5 to 2.0
    seed: int = 0  # of the sampling; equal seeds give equal speech
    language: str | None = None
    instructions: str | None = None  # speaking style in words, for voices that support it
    word_times: bool = True  # report the words of each piece


@dataclass(frozen=True, slots=True)
class SpeechPiece:
    """A piece of encoded speech and its words."""

    audio: bytes  # in the requested format
    words: tuple[Word, ...]  # that begin in the piece or soon after; seconds from the first sample


class SpeechClient:
    """Pool of connections to one server, on one event loop. Use it with ``async with``.

    Raises BadRequest for a URL that is not ws, wss, http or https.

    Attributes:
        last_time_to_first_audio_s: seconds from the first text to the first audio, of the last utterance that
            produced audio; None before.
    """

    def __init__(self, url: str, *, api_key: str | None = None, pool: PoolPolicy | None = None) -> None:
        self.policy = pool or PoolPolicy()
        self.last_time_to_first_audio_s: float | None = None
        self._url = _socket_url(url)
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._idle: deque[_PooledConnection] = deque()
        self._free_slots = asyncio.Semaphore(self.policy.max_connections)
        self._in_use: set[_PooledConnection] = set()
        self._maintenance_task: asyncio.Task[None] | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        """Open the connections kept in advance; raises ServerUnavailable, or the server's error."""
        async with AsyncExitStack() as cleanup:
            cleanup.push_async_callback(self.aclose)
            for _ in range(self.policy.min_connections):
                self._idle.append(await self._open())
            cleanup.pop_all()
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def start(self) -> None:
        """Start to keep connections open; unlike ``__aenter__``, does not wait for them."""
        if self._maintenance_task is None:
            self._maintenance_task = asyncio.create_task(self._maintain_pool())

    @property
    def open_connections(self) -> int:
        """Number of open connections, idle and in use."""
        return len(self._idle) + len(self._in_use)

    async def aclose(self) -> None:
        """Close every connection, also those in use. Further calls have no effect."""
        self._closed = True
        if self._maintenance_task is not None:
            self._maintenance_task.cancel()
            await asyncio.wait({self._maintenance_task})
        idle, self._idle = self._idle, deque()
        await asyncio.gather(*(connection.close() for connection in (*idle, *self._in_use)))

    @asynccontextmanager
    async def utterance(self, options: SpeechOptions | None = None) -> "AsyncIterator[RemoteUtterance]":
        """Open one utterance on a connection of its own; leaving the block cancels the rest of it.

        Raises Overloaded if all connections stay in use for ``acquire_timeout_s``, ServerUnavailable, or the
        server's error.
        """
        if self._closed:
            raise ServerUnavailable("the client is closed")
        async with self._reserve_slot():
            connection = await self._acquire_connection()
            self._in_use.add(connection)
            utterance = RemoteUtterance(connection)
            try:
                await utterance.configure(options or SpeechOptions())
                yield utterance
            finally:
                self.last_time_to_first_audio_s = (
                    utterance.time_to_first_audio_s or self.last_time_to_first_audio_s
                )
                await self._release_connection(connection, utterance)

    @asynccontextmanager
    async def _reserve_slot(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self.policy.acquire_timeout_s):
                await self._free_slots.acquire()
        except TimeoutError:
            raise Overloaded(
                f"all {self.policy.max_connections} connections are in use",
                reason="connections",
                retry_after_s=1.0,
            ) from None
        try:
            yield
        finally:
            self._free_slots.release()

    async def _acquire_connection(self) -> "_PooledConnection":
        # The connection used last is the least likely to have been closed by the server.
        while self._idle:
            connection = self._idle.pop()
            if connection.is_up:
                return connection
            await connection.close()
        return await self._open()

    async def _release_connection(
        self, connection: "_PooledConnection", utterance: "RemoteUtterance"
    ) -> None:
        is_clean = False
        try:
            is_clean = await utterance.cancel_and_drain()
        finally:
            # Also if the caller is cancelled while the connection is drained.
            self._in_use.discard(connection)
            if is_clean and not self._closed:
                connection.idle_since = time.monotonic()
                self._idle.append(connection)
            else:
                connection.abort_connection()

    async def _open(self) -> "_PooledConnection":
        try:
            async with asyncio.timeout(self.policy.connect_timeout_s):
                socket = await connect(
                    self._url,
                    additional_headers=self._headers,
                    max_size=_MAX_MESSAGE_BYTES,
                    compression=None,
                    close_timeout=_CLOSE_TIMEOUT_S,
                )
        except InvalidStatus as rejection:
            raise _handshake_error(rejection) from None
        except (OSError, TimeoutError, WebSocketException) as error:
            raise ServerUnavailable(
                f"{self._url} cannot be reached: {error or type(error).__name__}"
            ) from error
        return _PooledConnection(socket)

    async def _maintain_pool(self) -> None:
        """Replace connections that are idle for too long, and keep ``min_connections`` open."""
        while True:
            old = time.monotonic() - self.policy.max_idle_s
            stale = [each for each in self._idle if each.idle_since < old or not each.is_up]
            for connection in stale:
                with suppress(ValueError):  # taken for an utterance meanwhile
                    self._idle.remove(connection)
                    await connection.close()
            try:
                while self.open_connections < self.policy.min_connections:
                    self._idle.appendleft(await self._open())
            except VivavoceError as error:
                logger.warning("cannot open a connection in advance: %s", error)
            await asyncio.sleep(self.policy.max_idle_s / 4)


class _PooledConnection:
    """One socket and the number of ``utterances`` that the server has counted on it."""

    def __init__(self, socket: ClientConnection) -> None:
        self.idle_since = time.monotonic()
        self.utterances = 0
        self._socket = socket

    @property
    def is_up(self) -> bool:
        return self._socket.close_code is None and self._socket.state.name == "OPEN"

    async def send(self, message: Mapping[str, Any]) -> None:
        try:
            await self._socket.send(json.dumps(message))
        except WebSocketException as error:
            raise ServerUnavailable(f"the server ended the connection: {error}") from error

    async def receive(self) -> bytes | dict[str, Any]:
        try:
            message = await self._socket.recv()
        except WebSocketException as error:
            raise ServerUnavailable(f"the server ended the connection: {error}") from error
        return message if isinstance(message, bytes) else json.loads(message)

    def abort_connection(self) -> None:
        """Close the TCP connection without the closing handshake."""
        self._socket.transport.abort()

    async def close(self) -> None:
        await self._socket.close()


class RemoteUtterance:
    """One utterance on a connection of the pool: text in, pieces of speech out.

    Attributes:
        time_to_first_audio_s: seconds from the first text to the first audio; None until then.
    """

    def __init__(self, connection: _PooledConnection) -> None:
        self.time_to_first_audio_s: float | None = None
        self._connection = connection
        self._index = connection.utterances
        self._first_text_at: float | None = None
        self._words: list[Word] = []
        self._failure: VivavoceError | None = None
        self._input_ended = False
        self._last_finished_index = connection.utterances - 1

    async def configure(self, options: SpeechOptions) -> None:
        """Send the options; the server reports unsupported ones as an error of the utterance."""
        settings = {name: value for name, value in asdict(options).items() if value is not None}
        await self._connection.send({"type": "session.config", **settings})

    async def push_text(self, text: str) -> None:
        """Send text; it may be split anywhere."""
        if not text:
            return
        self._first_text_at = self._first_text_at or time.monotonic()
        for start in range(0, len(text), _MAX_MESSAGE_CHARACTERS):
            part = text[start : start + _MAX_MESSAGE_CHARACTERS]
            await self._connection.send({"type": "input.text", "text": part})

    async def flush(self) -> None:
        """Speak the text that the server buffers, without waiting for more."""
        await self._connection.send({"type": "input.flush"})

    async def keep_alive(self) -> None:
        """Reset the server's idle timeout of one minute while the text pauses."""
        await self._connection.send({"type": "input.text", "text": ""})

    async def end_input(self) -> None:
        """End the text of the utterance."""
        if not self._input_ended:
            self._input_ended = True
            await self._connection.send({"type": "input.done"})

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SpeechPiece:
        """Return the next piece; raises the server's error, once, or ServerUnavailable."""
        while self._last_finished_index < self._index and self._failure is None:
            message = await self._connection.receive()
            if isinstance(message, bytes):
                return self._piece(message)
            self._handle_message(message)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        raise StopAsyncIteration

    async def cancel_and_drain(self) -> bool:
        """Cancel the rest and read its messages; returns False if that fails or takes more than 2 s.

        A server counts an utterance at input.done and at input.cancel, and sends session.done for each. A
        cancel after input.done therefore adds an empty utterance, which ends at once.
        """
        try:
            async with asyncio.timeout(_DRAIN_TIMEOUT_S):
                unfinished = self._last_finished_index < self._index
                last = self._index + (unfinished and self._input_ended)
                if unfinished or not self._input_ended:
                    await self._connection.send({"type": "input.cancel"})
                await self._read_until(last)
        except (ServerUnavailable, TimeoutError):
            return False
        self._connection.utterances = last + 1
        return True

    async def _read_until(self, index: int) -> None:
        while self._last_finished_index < index:
            message = await self._connection.receive()
            if not isinstance(message, bytes):
                self._handle_message(message)

    def _piece(self, audio: bytes) -> SpeechPiece:
        if self.time_to_first_audio_s is None and self._first_text_at is not None:
            self.time_to_first_audio_s = time.monotonic() - self._first_text_at
        words, self._words = tuple(self._words), []
        return SpeechPiece(audio, words)

    def _handle_message(self, message: Mapping[str, Any]) -> None:
        match message:
            case {"type": "audio.words", "words": words}:
                self._words += map(_parse_word, words)
            case {"type": "session.done", "utterance_index": index}:
                self._last_finished_index = int(index)
            case {"type": "error"}:
                self._failure = self._failure or _message_error(message)
            case _:
                pass  # audio.start, audio.done, and messages of later servers


def _socket_url(url: str) -> str:
    """Return the socket's URL for ws://host or http://host, with or without the path."""
    scheme, separator, rest = url.partition("://")
    schemes = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
    if not separator or scheme not in schemes:
        raise BadRequest(f"got the URL {url!r}; ws://, wss://, http:// or https:// is allowed")
    address = f"{schemes[scheme]}://{rest.rstrip('/').removesuffix(SPEECH_STREAM_PATH)}{SPEECH_STREAM_PATH}"
    try:
        parse_uri(address)
    except (InvalidURI, ValueError) as error:
        raise BadRequest(f"got the URL {url!r}: {error}") from None
    return address


def _parse_word(fields: Mapping[str, Any]) -> Word:
    return Word(
        fields["word"],
        fields["start_ms"] / 1000,
        fields["end_ms"] / 1000,
        fields["text_start"],
        fields["text_end"],
    )


def _handshake_error(rejection: InvalidStatus) -> VivavoceError:
    """Return the error of a rejected handshake."""
    answer = rejection.response
    try:
        fields = json.loads(answer.body or b"")["error"]
        description = fields["message"] if isinstance(fields, dict) else str(fields)
    except (ValueError, KeyError, TypeError):
        description = f"the server answered {answer.status_code}"
    if answer.status_code in (429, 503):
        wait_s = answer.headers.get("retry-after", "1")
        return Overloaded(
            description, reason="refused", retry_after_s=float(wait_s) if wait_s.isdigit() else 1.0
        )
    return BadRequest(description) if 400 <= answer.status_code < 500 else ServerUnavailable(description)


def _message_error(message: Mapping[str, Any]) -> VivavoceError:
    """Return the error of an error message."""
    description, wait_s = message.get("message", ""), message.get("retry_after_s")
    if wait_s is not None:
        return Overloaded(description, reason=message.get("code") or "refused", retry_after_s=float(wait_s))
    match message:
        case {"code": code} if code in _SERVER_ERROR_CODES:
            return SynthesisFailed(description)
        case {"code": "idle_timeout"}:
            return ServerUnavailable(description)
        case {"code": "voice_not_found"}:
            return UnknownVoice(description)
        case {"param": "input"} | {"code": "too_much_text"}:
            return BadText(description)
        case _:
            return BadRequest(description)
