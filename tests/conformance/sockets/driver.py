"""A client of one socket dialect in terms that all have in common, for the conformance tests.

A dialect's driver says which messages open, write, end and drop a text, and what the server's messages are.
"""

import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from shared.engine.standin_backend import WORD_S
from vivavoce.adapters import transcript_queue

Message = str | bytes
OPENAI_CODES: Final = MappingProxyType(  # of the dialects whose errors are OpenAI's
    {
        "unreadable": "invalid_value",
        "broken": "server_error",
        "full": "overloaded_streams",
        "waiting": "too_much_text",
        "limited": "rate_limit_exceeded",
        "shutdown": "overloaded_shutting_down",
    }
)
WORD_BYTES: Final = round(48_000 * WORD_S)  # of s16le at 24 kHz, which every driver asks for


@dataclass(frozen=True, slots=True)
class Heard:
    """What a server has sent: audio, the end of a context, an error, or something else."""

    kind: Literal["audio", "done", "error", "other"]
    context: str = ""  # empty where the dialect names none
    audio: bytes = b""
    code: object = None  # of an error


class SocketDriver(ABC):
    """One socket of a dialect."""

    name: str
    path: str  # with the voice tone-440 at 24 kHz
    wrong_address: str | None = None  # that is refused at the handshake
    has_contexts = False  # whether texts are spoken side by side
    has_done = True  # whether the end of a text is reported
    is_cancel_the_end = False  # whether the socket closes after it
    closes_on_error: int | None = None  # with that code
    closes_at_shutdown = 1001
    is_second_text_refused = True  # while the server shuts down and the first one is spoken
    idle_constants: Sequence[str] = ()  # seconds
    text_limit: tuple[Any, str] = (transcript_queue, "MAX_WAITING_CHARACTERS")
    codes: Mapping[str, object] = MappingProxyType({})  # of errors, by fault; none if there are only texts
    wrong: Sequence[Message] = ("no JSON", "[1]", "{}", b"\0")

    def headers(self, key: str) -> dict[str, str]:
        """Return the headers that name a key."""
        return {"Authorization": f"Bearer {key}"}

    def begin(self, context: str) -> list[Any]:
        """Return what comes before the first text of a context."""
        return []

    @abstractmethod
    def text(self, context: str, text: str) -> list[Any]:
        """Return the messages of a text."""

    @abstractmethod
    def end(self, context: str) -> list[Any]:
        """Return the messages after the last text, which is spoken to its end."""

    def end_of_failed(self, context: str) -> list[Any]:
        """Return the messages after the last text of a context whose failure has been reported."""
        return []

    @abstractmethod
    def cancel(self, context: str) -> list[Any]:
        """Return the messages that drop what has not been sent; none if the dialect has no such."""

    @abstractmethod
    def read(self, message: Any) -> Heard:
        """Say what a message is: bytes, or decoded JSON."""

    def shorten_idle_time(self, patch: pytest.MonkeyPatch, served: Any, seconds: float) -> None:
        """Let connections be idle for that long only."""
        for constant in self.idle_constants:
            patch.setattr(f"vivavoce.gateway.apis.{constant}", seconds)


class SocketClient:
    """A client of a driver's socket; keeps the audio of each context, and the order of it."""

    def __init__(self, driver: SocketDriver, socket: ClientConnection) -> None:
        self.driver, self.socket = driver, socket
        self.audio: defaultdict[str, bytes] = defaultdict(bytes)
        self.order: list[str] = []

    async def send(self, *messages: Any) -> None:
        for message in messages:
            await self.socket.send(message if isinstance(message, str | bytes) else json.dumps(message))

    async def write(self, context: str, *texts: str) -> None:
        await self.send(*self.driver.begin(context))
        for text in texts:
            await self.send(*self.driver.text(context, text))

    async def speak(self, context: str, *texts: str) -> None:
        await self.write(context, *texts)
        await self.send(*self.driver.end(context))

    async def next(self) -> Heard:
        message = await self.socket.recv()
        heard = self.driver.read(message if isinstance(message, bytes) else json.loads(message))
        if heard.kind == "audio":
            self.audio[heard.context] += heard.audio
            self.order.append(heard.context)
        return heard

    async def until(self, kind: str) -> Heard:
        while (heard := await self.next()).kind != kind:
            assert heard.kind != "error", "an error instead of " + kind
        return heard

    async def error(self, fault: str) -> None:
        """Expect an error with the dialect's code for a fault."""
        while (heard := await self.next()).kind != "error":
            pass
        assert heard.code and heard.code == self.driver.codes.get(fault, heard.code)

    async def spoken(self, words: int, context: str = "") -> None:
        """Wait for the end of a context, in which so many words are heard at least."""
        if self.driver.has_done:
            while (await self.until("done")).context not in ("", context):
                pass
        while self.words(context) < words:
            await self.until("audio")

    def words(self, context: str = "") -> int:
        return round(len(self.audio[context] or self.audio[""]) / WORD_BYTES)

    async def closing_code(self) -> int:
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                await self.next()
        assert closed.value.rcvd is not None
        return closed.value.rcvd.code


@asynccontextmanager
async def open_socket(
    driver: SocketDriver, served: Any, headers: dict[str, str] | None = None, path: str | None = None
) -> AsyncIterator[SocketClient]:
    host, port = served.address
    url = f"ws://{host}:{port}{path or driver.path}"
    async with connect(url, additional_headers=headers, proxy=None, max_size=None) as socket:
        yield SocketClient(driver, socket)
