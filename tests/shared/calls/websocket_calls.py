"""A gateway with a stand-in voice for tests of calls on WebSockets, and phones behind simulated peers."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

from shared.calls.peers.peer import SimulatedPeer
from shared.calls.websocket_phones import WebSocketPhone
from shared.engine.standin_backend import StandInBackend
from shared.event_loop import until
from vivavoce.gateway.calls.agents.agent import Agent
from vivavoce.gateway.calls.agents.kinds.script import SilentAgent
from vivavoce.gateway.calls.call import Call
from vivavoce.gateway.calls.kits import websocket_calls
from vivavoce.gateway.calls.kits.websocket_calls import WebSocketCalls
from vivavoce.gateway.calls.kits.websocket_leg import WebSocketTimeouts
from vivavoce.gateway.serve import Gateway
from vivavoce.tts_engine.engine import Engine

from ..gateways.made_settings import make_settings

TIMEOUT_S = 60.0


class WebSocketCallServer:
    """A running gateway and its phones."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        host, port = gateway.addresses.http
        self.url = f"ws://{host}:{port}"
        self._calls: list[asyncio.Task[None]] = []

    async def dial(
        self, peer: SimulatedPeer, digits: str = "", **options: Any
    ) -> tuple[WebSocketPhone, Call]:
        """Dial, and wait until the call is up."""
        phone = WebSocketPhone(peer, digits)
        self._calls.append(asyncio.create_task(phone.run(self.url, **options)))
        await until(lambda: self.find(peer.call_id) is not None or self._calls[-1].done())
        if self._calls[-1].done():
            self._calls[-1].result()
        call = self.find(peer.call_id)
        assert call is not None
        return phone, call

    def find(self, call_id: str) -> Call | None:
        """Return the call of that id, None if it is not up."""
        return next(
            (active.call for active in self.gateway.calls.registry if active.call.call_id == call_id), None
        )

    async def wait_ended(self, call: Call) -> None:
        """Wait until the call has ended."""
        async with asyncio.timeout(TIMEOUT_S):
            await call.end.wait_closed()

    def calls_of(self, way_in: str) -> WebSocketCalls:
        """Return the calls of a way in on WebSockets."""
        calls = self.gateway.calls.opened[way_in].server
        assert isinstance(calls, WebSocketCalls)
        return calls

    async def aclose(self) -> None:
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls)


@contextmanager
def patient_with_sockets(**timeouts: float) -> Iterator[None]:
    """Let gateways that are opened meanwhile have other ``WebSocketTimeouts``."""
    with patch.object(websocket_calls, "WebSocketTimeouts", partial(WebSocketTimeouts, **timeouts)):
        yield


@asynccontextmanager
async def websocket_call_server(
    *, agent: Agent | None = None, timeouts: Mapping[str, float] = MappingProxyType({}), **changed: Any
) -> AsyncIterator[WebSocketCallServer]:
    """Open a gateway with those settings; timeouts: changed ones of ``WebSocketTimeouts``."""
    settings = make_settings(**{"http_port": 0, "audiosocket_port": 0, **changed})
    with patient_with_sockets(**timeouts):
        async with (
            await Engine.open(backend=StandInBackend((440, 880))) as engine,
            aclosing(await Gateway.open(settings, engine=engine, agent=agent or SilentAgent())) as gateway,
            aclosing(WebSocketCallServer(gateway)) as server,
        ):
            yield server


def with_server(test: Callable[[WebSocketCallServer], Awaitable[None]], **options: Any) -> None:
    """Run a coroutine with a server, for at most a minute."""

    async def run() -> None:
        async with asyncio.timeout(TIMEOUT_S), websocket_call_server(**options) as server:
            await test(server)

    asyncio.run(run())


def new_call_id() -> str:
    """Return the id of a call that no other test has."""
    return str(uuid.uuid4())
