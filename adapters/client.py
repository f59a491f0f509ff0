"""A client of a vivavoce server: connections kept ready, one lent to each utterance.

    async with SpeechClient("ws://127.0.0.1:8080", api_key=KEY) as client:
        async with client.utterance(Wish(voice="heart")) as utterance:
            await utterance.push_text("Hello.")
            await utterance.end_input()
            async for piece in utterance:
                play(piece.audio)

A new connection costs a handshake before the first sound, so the pool opens some ahead, lends them, and
takes them back only clean: every message of the utterance read. One that broke, or was left in mid-sentence
and does not come to rest at once, is closed. A server ends a connection that is idle for a minute; before
that, the pool puts a fresh one in its place. Whatever was opened is closed.

Source: the protocol is ``speech_socket``; the pool answers DashScope's SpeechSynthesizerObjectPool
(dashscope 1.25, audio/tts_v2/speech_synthesizer.py), which leaves behind the sockets that it replaces, lends
without asking whether the peer is still there, and has no bound.
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
_MAX_MESSAGE_BYTES = 2**22  # bytes; a server sends about a second of audio at once
_SERVER_ERROR_CODES = ("server_error", "internal_error")
_MAX_MESSAGE_CHARACTERS = 2**13  # characters of one message; a server takes eight times as many
_CLOSE_TIMEOUT_S = 1.0  # a server that does not answer must not hold up who closes
_DRAIN_TIMEOUT_S = 2.0  # a cancelled utterance that takes longer costs its connection


class ServerUnavailable(VivavoceError):
    """The server cannot be reached, or ended the connection in mid-utterance."""


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """How many connections there are.

    most: open at once; who wants one more waits at most ``wait_s``. ready: opened ahead. max_idle_s: an idle
    one that is older is replaced; the server's limit is 60. connect_timeout_s: of one handshake.
    """

    max_connections: int = 20
    min_connections: int = 2
    acquire_timeout_s: float = 10.0
    max_idle_s: float = 30.0
    connect_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if not 0 <= self.min_connections <= self.max_connections or self.max_connections < 1:
            raise BadRequest(
                f"got {self.min_connections} ready of at most {self.max_connections}; allowed is 0 to most, most is 1 or more"
            )


@dataclass(frozen=True, slots=True)
class SpeechOptions:
    """How an utterance is to sound; None is as the server does by default.

    response_format: pcm (s16le), wav, mp3, opus, aac, flac, ulaw, alaw. sample_rate: Hz. word_times: whether
    pieces tell words.
    """

    voice: str | None = None
    response_format: str = "pcm"
    sample_rate: int = 24_000
    speed: float = 1.0
    seed: int = 0
    language: str | None = None
    instructions: str | None = None
    word_times: bool = True


@dataclass(frozen=True, slots=True)
class SpeechPiece:
    """A piece of speech. words: those that begin in it or soon after, in seconds from the first sample."""

    audio: bytes
    words: tuple[Word, ...]


class SpeechClient:
    """A pool of connections to one server; belongs to one event loop. Use ``async with``.

    Attributes:
        last_time_to_first_audio_s: from the first text of the last utterance to its first audio; None before.
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
        """Open what shall be ready; raises ServerUnavailable, or what the server refuses with."""
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
        """Keep connections ready from now on, without waiting for them, as ``__aenter__`` does."""
        if self._maintenance_task is None:
            self._maintenance_task = asyncio.create_task(self._maintain_pool())

    @property
    def open_connections(self) -> int:
        """Connections that are up, lent ones among them."""
        return len(self._idle) + len(self._in_use)

    async def aclose(self) -> None:
        """Close every connection, those that are lent as well. May be called twice."""
        self._closed = True
        if self._maintenance_task is not None:
            self._maintenance_task.cancel()
            await asyncio.wait({self._maintenance_task})
        idle, self._idle = self._idle, deque()
        await asyncio.gather(*(connection.close() for connection in (*idle, *self._in_use)))

    @asynccontextmanager
    async def utterance(self, options: SpeechOptions | None = None) -> "AsyncIterator[RemoteUtterance]":
        """Lend a connection for one utterance; leaving the block cancels what is left.

        Raises Overloaded where all are lent for too long, ServerUnavailable, or what the server refuses with.
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
                f"all {self.policy.max_connections} connections are lent",
                reason="connections",
                retry_after_s=1.0,
            ) from None
        try:
            yield
        finally:
            self._free_slots.release()

    async def _acquire_connection(self) -> "_PooledConnection":
        """The one used last, which is surely awake; a new one where none is left."""
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
            # Also where the caller is cancelled while the connection comes to rest.
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
        """Replace what is idle for long, and keep some ready."""
        while True:
            old = time.monotonic() - self.policy.max_idle_s
            stale = [each for each in self._idle if each.idle_since < old or not each.is_up]
            for connection in stale:
                with suppress(ValueError):  # it was lent meanwhile
                    self._idle.remove(connection)
                    await connection.close()
            try:
                while self.open_connections < self.policy.min_connections:
                    self._idle.appendleft(await self._open())
            except VivavoceError as error:
                logger.warning("no connection is kept ready: %s", error)
            await asyncio.sleep(self.policy.max_idle_s / 4)


class _PooledConnection:
    """One socket. utterances: that the server has counted on it."""

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
        """Break it off at once, where nobody can wait for a farewell."""
        self._socket.transport.abort()

    async def close(self) -> None:
        await self._socket.close()


class RemoteUtterance:
    """One utterance on a lent connection: text in, pieces of speech out.

    Attributes:
        time_to_first_audio_s: seconds from the first text to the first audio; None until it came.
    """

    def __init__(self, connection: _PooledConnection) -> None:
        self.time_to_first_audio_s: float | None = None
        self._connection = connection
        self._index = connection.utterances
        self._first_text_at: float | None = None
        self._words: list[Word] = []
        self._failure: VivavoceError | None = None
        self._input_ended = False
        self._last_finished_index = connection.utterances - 1  # the last that the server has said to be over

    async def configure(self, options: SpeechOptions) -> None:
        """Tell how it shall sound."""
        settings = {name: value for name, value in asdict(options).items() if value is not None}
        await self._connection.send({"type": "session.config", **settings})

    async def push_text(self, text: str) -> None:
        """Add text, split anywhere."""
        if not text:
            return
        self._first_text_at = self._first_text_at or time.monotonic()
        for start in range(0, len(text), _MAX_MESSAGE_CHARACTERS):
            part = text[start : start + _MAX_MESSAGE_CHARACTERS]
            await self._connection.send({"type": "input.text", "text": part})

    async def flush(self) -> None:
        """Speak what is buffered, without waiting for more."""
        await self._connection.send({"type": "input.flush"})

    async def keep_alive(self) -> None:
        """Say that more text will come: a server hangs up on who says nothing for a minute."""
        await self._connection.send({"type": "input.text", "text": ""})

    async def end_input(self) -> None:
        """No more text will come."""
        if not self._input_ended:
            self._input_ended = True
            await self._connection.send({"type": "input.done"})

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SpeechPiece:
        """The next piece; raises once what the server answers instead, or ServerUnavailable."""
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
        """Cancel what is left, and read to its end; False where that fails or takes long.

        A server counts an utterance at its input.done or input.cancel, and tells of each counted one when it
        is over: a cancel after the end of input is one more, empty and over at once.
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
                pass  # audio.start, audio.done, and what later servers say


def _socket_url(url: str) -> str:
    """ws://host or http://host, with or without the path, as the socket's address."""
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
    """What a server answers to the handshake, as an error."""
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
    """What a server says in the middle of things, as an error."""
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
