"""Plays recorded sessions to a server over real sockets and returns what it answers."""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from shared.calls.call_server import Phone

from .answers import Normalizer, by_stream
from .sessions import KEY, ClientMessage, RecordedSession

_TIMEOUT_S: Final = 60.0
_QUIET_S: Final = 0.6  # after which a server that is recorded has said everything


@dataclass(slots=True)
class Player:
    """A client of one server. learns: finds the number of answers that each message waits for."""

    url: str  # of HTTP
    dial: Callable[[str], Awaitable[Phone]]  # places a call with an id
    key: str  # of the server
    learns: bool = False
    _client: httpx.AsyncClient = field(init=False)

    async def __aenter__(self) -> "Player":
        self._client = httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=_TIMEOUT_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def play(self, session: RecordedSession) -> dict[str, Any]:
        """Return the answers to a session, normalized."""
        sent = session.path + session.body + "".join(message.data for message in session.messages)
        sent += base64.b64decode(session.body).decode(errors="replace")
        normalizer = Normalizer(self.key, sent)
        async with asyncio.timeout(_TIMEOUT_S), self._phone(session.on_call):
            if session.method == "WEBSOCKET":
                return await self._play_socket(session, normalizer)
            return await self._ask(session, normalizer)

    async def _ask(self, session: RecordedSession, normalizer: Normalizer) -> dict[str, Any]:
        answer = await self._client.request(
            session.method,
            self._with_key(session.path),
            headers=self._headers(session),
            content=base64.b64decode(self._with_key(session.body)) if session.body else None,
        )
        headers = [(name.decode(), value.decode("latin-1")) for name, value in answer.headers.raw]
        return normalizer.answer(answer.status_code, headers, answer.content)

    async def _play_socket(self, session: RecordedSession, normalizer: Normalizer) -> dict[str, Any]:
        url = "ws" + self.url.removeprefix("http") + self._with_key(session.path)
        headers = self._headers(session)
        protocols = [value for name, value in headers if name.lower() == "sec-websocket-protocol"]
        others = [(name, value) for name, value in headers if name.lower() != "sec-websocket-protocol"]
        subprotocols: Any = [part.strip() for value in protocols for part in value.split(",")] or None
        try:
            socket = await connect(
                url, additional_headers=others, subprotocols=subprotocols, proxy=None, max_size=None
            )
        except InvalidStatus as refused:
            answer = refused.response
            body = bytes(answer.body or b"")
            return normalizer.answer(answer.status_code, [*answer.headers.raw_items()], body)
        async with socket:
            received = await _Exchange(socket, session, self.learns, self._with_key).run()
        assert socket.response is not None
        shown = [(name, value) for name, value in socket.response.headers.raw_items()]
        shown = [(name, value) for name, value in shown if name.lower() != "sec-websocket-accept"]
        messages = by_stream(received) if session.per_stream else received
        closed = [socket.close_code, normalizer.text(socket.close_reason or "")]
        return {
            "messages": [normalizer.message(message) for message in messages],
            "closed": closed,
            "headers": normalizer.headers(shown),
        }

    def _headers(self, session: RecordedSession) -> list[tuple[str, str]]:
        return [(name, self._with_key(value)) for name, value in session.headers]

    def _with_key(self, text: str) -> str:
        return text.replace(KEY, self.key)

    @contextlib.asynccontextmanager
    async def _phone(self, call_id: str) -> AsyncIterator[None]:
        if not call_id:
            yield
            return
        phone = await self.dial(call_id)
        path = f"/v1/calls/{call_id}"
        headers = {"authorization": f"Bearer {self.key}"} if self.key else {}
        while (await self._client.get(path, headers=headers)).status_code != 200:
            await asyncio.sleep(0.01)
        try:
            yield
        finally:
            await phone.aclose()
            while (await self._client.get(path, headers=headers)).status_code == 200:
                await asyncio.sleep(0.01)


class _Exchange:
    """The messages of one open WebSocket."""

    def __init__(
        self, socket: ClientConnection, session: RecordedSession, learns: bool, with_key: Any
    ) -> None:
        self._socket, self._session, self._learns, self._with_key = socket, session, learns, with_key
        self._received: list[str | bytes] = []
        self._arrived = asyncio.Event()
        self._closed = False

    async def run(self) -> list[str | bytes]:
        """Send each message when its answers have come; return all answers."""
        receiving = asyncio.create_task(self._receive())
        try:
            for message in self._session.messages:
                await self._wait(message)
                if self._closed:
                    break
                with contextlib.suppress(ConnectionClosed):
                    await self._send(message)
            await self._wait_answers()
            await self._socket.close()
            await receiving
        finally:
            receiving.cancel()
        if self._learns:
            self._session.answers = len(self._received)
        return self._received

    async def _send(self, message: ClientMessage) -> None:
        data = self._with_key(message.data)
        await self._socket.send(base64.b64decode(data) if message.is_binary else data)

    async def _receive(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                self._received.append(await self._socket.recv())
                self._arrived.set()
        self._closed = True
        self._arrived.set()

    async def _wait(self, message: ClientMessage) -> None:
        if not self._learns:
            return await self._until(message.after)
        seen = 0
        while not self._closed:
            if message.after_type:
                new = self._received[seen:]
                seen = len(self._received)
                if any(_type_of(answer) == message.after_type for answer in new if seen):
                    break
            elif len(self._received) >= message.after:
                break
            if not await self._more():
                break
        message.after, message.after_type = len(self._received), ""

    async def _wait_answers(self) -> None:
        if self._learns:
            while not self._closed and await self._more():
                pass
        else:
            await self._until(self._session.answers)
            if self._session.received.get("closed", [1000])[0] != 1000:
                await self._socket.wait_closed()
            else:
                with contextlib.suppress(ConnectionClosed):
                    await (await self._socket.ping())

    async def _until(self, count: int) -> None:
        while len(self._received) < count and not self._closed:
            self._arrived.clear()
            await self._arrived.wait()

    async def _more(self) -> bool:
        """Wait for another message; return False if the server is quiet."""
        self._arrived.clear()
        try:
            async with asyncio.timeout(_QUIET_S):
                await self._arrived.wait()
        except TimeoutError:
            return False
        return not self._closed


def _type_of(answer: str | bytes) -> str:
    if isinstance(answer, bytes):
        return "audio"
    found = json.loads(answer)
    return str(found.get("type", "")) if isinstance(found, dict) else ""
