"""Phones behind simulated peers: connects their WebSockets to the gateway, and plays in real time."""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from http import HTTPStatus
from uuid import UUID, uuid4

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from shared.calls.peers.peer import Message, SimulatedPeer
from vivavoce.gateway.background_tasks import cancel_and_wait
from vivavoce.gateway.cli.phones.received_audio import ReceivedCall, ReceivedPacket
from vivavoce.gateway.cli.phones.simulated_phones import CallRefused, PhoneFailed

CONNECT_TIMEOUT_S = 5.0
FIRST_DIGIT_S = 1.0  # after the connection
DIGIT_EVERY_S = 0.3
_PERIOD_S = 0.020


class WebSocketPhone:
    """One call. ``run`` plays until the gateway ends it, or until it is cancelled."""

    def __init__(self, peer: SimulatedPeer, digits: str = "") -> None:
        self.peer = peer
        self.packets: list[ReceivedPacket] = []  # what the caller heard
        self.reason = "we hung up"
        self.ended_at: float | None = None
        self.connected_at = 0.0
        self._digits = digits
        self._next_digit_at = 0.0  # monotonic seconds

    async def run(self, url: str, headers: dict[str, str] | None = None) -> None:
        """Connect and play; raises as ``open_socket`` does."""
        await self.play(await self.open_socket(url, headers))

    async def play(self, socket: ClientConnection) -> None:
        """Play on an open WebSocket."""
        self.connected_at = time.monotonic()
        self._next_digit_at = self.connected_at + FIRST_DIGIT_S
        receiving = asyncio.create_task(self._receive(socket))
        try:
            await self._send(socket, self.peer.start())
            await self._play_packets(socket, receiving)
        except ConnectionClosed:
            self.reason = "the gateway hung up"
        finally:
            self.ended_at = time.monotonic()
            await cancel_and_wait(receiving)
            await self._hang_up(socket)

    async def open_socket(self, url: str, headers: dict[str, str] | None = None) -> ClientConnection:
        """Open the WebSocket; raises CallRefused and PhoneFailed."""
        try:
            return await connect(
                url + self.peer.path,
                subprotocols=[Subprotocol(one) for one in self.peer.subprotocols] or None,
                additional_headers=headers,
                compression=None,
                proxy=None,
                open_timeout=CONNECT_TIMEOUT_S,
            )
        except (OSError, TimeoutError, InvalidHandshake) as error:
            failure = CallRefused if _is_busy(error) else PhoneFailed
            raise failure(f"cannot call {url}{self.peer.path}: {error}") from None

    async def _play_packets(self, socket: ClientConnection, receiving: "asyncio.Task[None]") -> None:
        slot = 0
        while not receiving.done():
            due = self.connected_at + slot * _PERIOD_S
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            step = self.peer.step()
            self.packets.append(ReceivedPacket(time.monotonic(), self.peer.sample_rate, step.pcm))
            await self._send(socket, step.messages)
            await self._send(socket, self._keys_due())
            slot += 1
        await receiving  # raises what ended it

    async def _receive(self, socket: ClientConnection) -> None:
        while not self.peer.has_hung_up:
            await self._send(socket, self.peer.receive(await socket.recv()))
        self.reason = "the gateway hung up"

    def _keys_due(self) -> list[Message]:
        if not self._digits or time.monotonic() < self._next_digit_at:
            return []
        digit, self._digits = self._digits[0], self._digits[1:]
        self._next_digit_at += DIGIT_EVERY_S
        return self.peer.press(digit)

    async def _send(self, socket: ClientConnection, messages: Iterable[Message]) -> None:
        for message in messages:
            await socket.send(message)

    async def _hang_up(self, socket: ClientConnection) -> None:
        with suppress(ConnectionClosed):
            await self._send(socket, self.peer.hang_up())
        await socket.close()

    def received(self) -> ReceivedCall:
        """Return what the caller heard so far."""
        ended_at = time.monotonic() if self.ended_at is None else self.ended_at
        return ReceivedCall(
            UUID(self.peer.call_id), self.connected_at, tuple(self.packets), ended_at, self.reason
        )


def _is_busy(error: Exception) -> bool:
    return isinstance(error, InvalidStatus) and error.response.status_code == HTTPStatus.SERVICE_UNAVAILABLE


class WebSocketPhones:
    """Phones on an event loop of their own: ``dial`` them, ``run`` until a time, ``close``.

    Args:
        url: of the gateway, ``ws://host:port``.
        make_peer: takes the id of a call.
    """

    def __init__(self, url: str, make_peer: Callable[[str], SimulatedPeer]) -> None:
        self._url = url
        self._make_peer = make_peer
        self._runner = asyncio.Runner()
        self._phones: list[WebSocketPhone] = []
        self._calls: set[asyncio.Task[None]] = set()

    @property
    def open_calls(self) -> int:
        """Number of calls that have not ended."""
        return sum(not call.done() for call in self._calls)

    def dial(self, *, digits: str = "") -> UUID:
        """Connect a phone, which presses ``digits`` from one second after the connection on.

        The other calls go on meanwhile. Raises CallRefused and PhoneFailed.
        """
        call_id = uuid4()
        phone = WebSocketPhone(self._make_peer(str(call_id)), digits)
        self._runner.run(self._connect(phone))
        self._phones.append(phone)
        return call_id

    def run(self, until: float) -> None:
        """Play until ``until`` (monotonic seconds), or until the last call has ended."""
        self._runner.run(self._wait(until))

    def require_protocol(self) -> None:
        """Do nothing: ``dial`` fails if the server is another."""

    def received_calls(self) -> list[ReceivedCall]:
        """Return what each phone has heard so far, in the order of dialling."""
        return [phone.received() for phone in self._phones]

    def close(self) -> None:
        """Hang up every call, and close the loop."""
        with self._runner:
            self._runner.run(self._hang_up())

    async def _connect(self, phone: WebSocketPhone) -> None:
        socket = await phone.open_socket(self._url)
        self._calls.add(asyncio.create_task(phone.play(socket)))
        await asyncio.sleep(0)  # a task that has not begun would not close its socket

    async def _wait(self, until: float) -> None:
        if not self._calls:
            return
        done, _ = await asyncio.wait(self._calls, timeout=until - time.monotonic())
        for call in done:
            call.result()

    async def _hang_up(self) -> None:
        await cancel_and_wait(*self._calls)
