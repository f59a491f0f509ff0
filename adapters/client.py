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
from ..tts_engine.errors import (
    BadRequest,
    BadText,
    Overloaded,
    SynthesisFailed,
    UnknownVoice,
    VivavoceError,
)

logger = logging.getLogger(__name__)

PATH = "/v1/audio/speech/stream"
_MOST_MESSAGE = 2**22  # bytes; a server sends about a second of audio at once
_FAULTS_OF_THE_SERVER = ("server_error", "internal_error")
_MOST_TEXT = 2**13  # characters of one message; a server takes eight times as many
_FAREWELL_WITHIN_S = 1.0  # a server that does not answer must not hold up who closes
_AT_REST_WITHIN_S = 2.0  # a cancelled utterance that takes longer costs its connection


class ServerGone(VivavoceError):
    """The server cannot be reached, or ended the connection in mid-utterance."""


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """How many connections there are.

    most: open at once; who wants one more waits at most ``wait_s``. ready: opened ahead. refresh_s: an idle
    one that is older is replaced; the server's limit is 60. connect_within_s: of one handshake.
    """

    most: int = 20
    ready: int = 2
    wait_s: float = 10.0
    refresh_s: float = 30.0
    connect_within_s: float = 10.0

    def __post_init__(self) -> None:
        if not 0 <= self.ready <= self.most or self.most < 1:
            raise BadRequest(
                f"got {self.ready} ready of at most {self.most}; allowed is 0 to most, most is 1 or more"
            )


@dataclass(frozen=True, slots=True)
class Wish:
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
class Piece:
    """A piece of speech. words: those that begin in it or soon after, in seconds from the first sample."""

    audio: bytes
    words: tuple[Word, ...]


class SpeechClient:
    """A pool of connections to one server; belongs to one event loop. Use ``async with``.

    Attributes:
        last_first_package_s: from the first text of the last utterance to its first audio; None before.
    """

    def __init__(self, url: str, *, api_key: str | None = None, pool: PoolPolicy | None = None) -> None:
        self.policy = pool or PoolPolicy()
        self.last_first_package_s: float | None = None
        self._url = _socket_url(url)
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._idle: deque[_Connection] = deque()
        self._room = asyncio.Semaphore(self.policy.most)
        self._lent: set[_Connection] = set()
        self._tending: asyncio.Task[None] | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        """Open what shall be ready; raises ServerGone, or what the server refuses with."""
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self.aclose)
            for _ in range(self.policy.ready):
                self._idle.append(await self._open())
            undo.pop_all()
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def start(self) -> None:
        """Keep connections ready from now on, without waiting for them, as ``__aenter__`` does."""
        if self._tending is None:
            self._tending = asyncio.create_task(self._tend())

    @property
    def open_connections(self) -> int:
        """Connections that are up, lent ones among them."""
        return len(self._idle) + len(self._lent)

    async def aclose(self) -> None:
        """Close every connection, those that are lent as well. May be called twice."""
        self._closed = True
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.wait({self._tending})
        idle, self._idle = self._idle, deque()
        await asyncio.gather(*(connection.close() for connection in (*idle, *self._lent)))

    @asynccontextmanager
    async def utterance(self, wish: Wish | None = None) -> "AsyncIterator[RemoteUtterance]":
        """Lend a connection for one utterance; leaving the block cancels what is left.

        Raises Overloaded where all are lent for too long, ServerGone, or what the server refuses with.
        """
        if self._closed:
            raise ServerGone("the client is closed")
        async with self._room_for_one():
            connection = await self._borrow()
            self._lent.add(connection)
            utterance = RemoteUtterance(connection)
            try:
                await utterance.begin(wish or Wish())
                yield utterance
            finally:
                self.last_first_package_s = utterance.first_package_s or self.last_first_package_s
                await self._take_back(connection, utterance)

    @asynccontextmanager
    async def _room_for_one(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self.policy.wait_s):
                await self._room.acquire()
        except TimeoutError:
            raise Overloaded(
                f"all {self.policy.most} connections are lent", reason="connections", retry_after_s=1.0
            ) from None
        try:
            yield
        finally:
            self._room.release()

    async def _borrow(self) -> "_Connection":
        """The one used last, which is surely awake; a new one where none is left."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_up:
                return connection
            await connection.close()
        return await self._open()

    async def _take_back(self, connection: "_Connection", utterance: "RemoteUtterance") -> None:
        at_rest = False
        try:
            at_rest = await utterance.come_to_rest()
        finally:
            # Also where the caller is cancelled while the connection comes to rest.
            self._lent.discard(connection)
            if at_rest and not self._closed:
                connection.idle_since = time.monotonic()
                self._idle.append(connection)
            else:
                connection.abandon()

    async def _open(self) -> "_Connection":
        try:
            async with asyncio.timeout(self.policy.connect_within_s):
                socket = await connect(
                    self._url,
                    additional_headers=self._headers,
                    max_size=_MOST_MESSAGE,
                    compression=None,
                    close_timeout=_FAREWELL_WITHIN_S,
                )
        except InvalidStatus as refusal:
            raise _refused(refusal) from None
        except (OSError, TimeoutError, WebSocketException) as error:
            raise ServerGone(f"{self._url} cannot be reached: {error or type(error).__name__}") from error
        return _Connection(socket)

    async def _tend(self) -> None:
        """Replace what is idle for long, and keep some ready."""
        while True:
            old = time.monotonic() - self.policy.refresh_s
            stale = [each for each in self._idle if each.idle_since < old or not each.is_up]
            for connection in stale:
                with suppress(ValueError):  # it was lent meanwhile
                    self._idle.remove(connection)
                    await connection.close()
            try:
                while self.open_connections < self.policy.ready:
                    self._idle.appendleft(await self._open())
            except VivavoceError as error:
                logger.warning("no connection is kept ready: %s", error)
            await asyncio.sleep(self.policy.refresh_s / 4)


class _Connection:
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
            raise ServerGone(f"the server ended the connection: {error}") from error

    async def receive(self) -> bytes | dict[str, Any]:
        try:
            message = await self._socket.recv()
        except WebSocketException as error:
            raise ServerGone(f"the server ended the connection: {error}") from error
        return message if isinstance(message, bytes) else json.loads(message)

    def abandon(self) -> None:
        """Break it off at once, where nobody can wait for a farewell."""
        self._socket.transport.abort()

    async def close(self) -> None:
        await self._socket.close()


class RemoteUtterance:
    """One utterance on a lent connection: text in, pieces of speech out.

    Attributes:
        first_package_s: seconds from the first text to the first audio; None until it came.
    """

    def __init__(self, connection: _Connection) -> None:
        self.first_package_s: float | None = None
        self._connection = connection
        self._index = connection.utterances
        self._first_text_at: float | None = None
        self._words: list[Word] = []
        self._failure: VivavoceError | None = None
        self._input_ended = False
        self._over_until = connection.utterances - 1  # the last that the server has said to be over

    async def begin(self, wish: Wish) -> None:
        """Tell how it shall sound."""
        settings = {name: value for name, value in asdict(wish).items() if value is not None}
        await self._connection.send({"type": "session.config", **settings})

    async def push_text(self, text: str) -> None:
        """Add text, split anywhere."""
        if not text:
            return
        self._first_text_at = self._first_text_at or time.monotonic()
        for start in range(0, len(text), _MOST_TEXT):
            part = text[start : start + _MOST_TEXT]
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

    async def __anext__(self) -> Piece:
        """The next piece; raises once what the server answers instead, or ServerGone."""
        while self._over_until < self._index and self._failure is None:
            message = await self._connection.receive()
            if isinstance(message, bytes):
                return self._piece(message)
            self._heed(message)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        raise StopAsyncIteration

    async def come_to_rest(self) -> bool:
        """Cancel what is left, and read to its end; False where that fails or takes long.

        A server counts an utterance at its input.done or input.cancel, and tells of each counted one when it
        is over: a cancel after the end of input is one more, empty and over at once.
        """
        try:
            async with asyncio.timeout(_AT_REST_WITHIN_S):
                unfinished = self._over_until < self._index
                last = self._index + (unfinished and self._input_ended)
                if unfinished or not self._input_ended:
                    await self._connection.send({"type": "input.cancel"})
                await self._read_until(last)
        except (ServerGone, TimeoutError):
            return False
        self._connection.utterances = last + 1
        return True

    async def _read_until(self, index: int) -> None:
        while self._over_until < index:
            message = await self._connection.receive()
            if not isinstance(message, bytes):
                self._heed(message)

    def _piece(self, audio: bytes) -> Piece:
        if self.first_package_s is None and self._first_text_at is not None:
            self.first_package_s = time.monotonic() - self._first_text_at
        words, self._words = tuple(self._words), []
        return Piece(audio, words)

    def _heed(self, message: Mapping[str, Any]) -> None:
        match message:
            case {"type": "audio.words", "words": words}:
                self._words += map(_word, words)
            case {"type": "session.done", "utterance_index": index}:
                self._over_until = int(index)
            case {"type": "error"}:
                self._failure = self._failure or _error(message)
            case _:
                pass  # audio.start, audio.done, and what later servers say


def _socket_url(url: str) -> str:
    """ws://host or http://host, with or without the path, as the socket's address."""
    scheme, separator, rest = url.partition("://")
    schemes = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
    if not separator or scheme not in schemes:
        raise BadRequest(f"got the URL {url!r}; ws://, wss://, http:// or https:// is allowed")
    address = f"{schemes[scheme]}://{rest.rstrip('/').removesuffix(PATH)}{PATH}"
    try:
        parse_uri(address)
    except (InvalidURI, ValueError) as error:
        raise BadRequest(f"got the URL {url!r}: {error}") from None
    return address


def _word(told: Mapping[str, Any]) -> Word:
    return Word(
        told["word"], told["start_ms"] / 1000, told["end_ms"] / 1000, told["text_start"], told["text_end"]
    )


def _refused(refusal: InvalidStatus) -> VivavoceError:
    """What a server answers to the handshake, as an error."""
    answer = refusal.response
    try:
        told = json.loads(answer.body or b"")["error"]
        sentence = told["message"] if isinstance(told, dict) else str(told)
    except (ValueError, KeyError, TypeError):
        sentence = f"the server answered {answer.status_code}"
    if answer.status_code in (429, 503):
        wait_s = answer.headers.get("retry-after", "1")
        return Overloaded(
            sentence, reason="refused", retry_after_s=float(wait_s) if wait_s.isdigit() else 1.0
        )
    return BadRequest(sentence) if 400 <= answer.status_code < 500 else ServerGone(sentence)


def _error(message: Mapping[str, Any]) -> VivavoceError:
    """What a server says in the middle of things, as an error."""
    sentence, wait_s = message.get("message", ""), message.get("retry_after_s")
    if wait_s is not None:
        return Overloaded(sentence, reason=message.get("code") or "refused", retry_after_s=float(wait_s))
    match message:
        case {"code": code} if code in _FAULTS_OF_THE_SERVER:
            return SynthesisFailed(sentence)
        case {"code": "idle_timeout"}:
            return ServerGone(sentence)
        case {"code": "voice_not_found"}:
            return UnknownVoice(sentence)
        case {"param": "input"} | {"code": "too_much_text"}:
            return BadText(sentence)
        case _:
            return BadRequest(sentence)
