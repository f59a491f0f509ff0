"""A gateway whose callers are in the application of a simulated Asterisk."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from shared.calls.call_server import CallServer, call_server
from shared.calls.simulated_ari import APP, PASSWORD, USER, AriTestChannel, SimulatedAri, simulated_ari


@dataclass(slots=True)
class AriServer:
    ari: SimulatedAri
    server: CallServer

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await asyncio.sleep(0.01)

    async def call_up(self, channel: AriTestChannel) -> None:
        registry = self.server.gateway.calls.registry
        await self.until(lambda: channel.id in [active.call.call_id for active in registry])

    async def until_state(self, client: httpx.AsyncClient, call_id: str, state: str | None) -> None:
        """Wait until an outgoing call is in a state; None: it is up."""
        while (await client.get(f"/{call_id}")).json().get("state") != state:
            await asyncio.sleep(0.01)

    async def all_over(self) -> None:
        """Wait until nothing of any call is left in the gateway, and of the media in Asterisk."""
        registry = self.server.gateway.calls.registry
        await self.until(lambda: len(registry) == 0 and not self.ari.media and not self.ari.bridges)

    async def continued(self, channel: AriTestChannel) -> dict[str, str]:
        """Wait until a channel is back in the dial plan; return where."""
        path = f"channels/{channel.id}/continue"
        await self.until(lambda: bool(self.ari.did("POST", path)))
        (place,) = self.ari.did("POST", path)
        return place


@asynccontextmanager
async def ari_server(modules: Iterable[str] = (), **changes: Any) -> AsyncIterator[AriServer]:
    settings = {"ari_password": PASSWORD, "ari_app": APP} | changes
    async with simulated_ari(modules) as ari:
        url = ari.url.replace("://", f"://{USER}@")
        async with call_server(ari_url=url, **settings) as server:
            running = AriServer(ari, server)
            ari.gateway_url = f"ws://{server.base.partition('/')[0]}/v1/asterisk/media"
            await running.until(lambda: bool(ari.sockets))
            yield running


WAYS: dict[str, tuple[set[str], dict[str, str]]] = {  # modules of Asterisk and settings
    "RTP": (set(), {}),
    "AudioSocket": ({"chan_audiosocket.so"}, {}),
    "chan_websocket": ({"chan_websocket.so", "chan_audiosocket.so"}, {}),
    "chan_websocket, Asterisk connects": (
        set(),
        {"ari_media": "websocket:vivavoce"},
    ),
}
