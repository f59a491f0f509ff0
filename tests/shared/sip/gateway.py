"""A gateway that answers SIP on loopback with a phone beside it, and what tests do with their calls."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from shared.calls.call_server import CallServer, call_server
from shared.sip.phone import SipTestPhone, sip_phone, until
from vivavoce.adapters.sip.session import SessionState, SipSession
from vivavoce.gateway.calls.outgoing.outgoing_calls import OutgoingCall
from vivavoce.gateway.calls.ways_in.sip.server import SipCallServer


def server_of(gateway: CallServer) -> SipCallServer:
    server = gateway.gateway.calls.opened["sip"].server
    assert isinstance(server, SipCallServer)
    return server


@asynccontextmanager
async def gateway(**changes: Any) -> AsyncIterator[tuple[CallServer, SipTestPhone, int]]:
    """A gateway that answers SIP, a phone, and the port of SIP."""
    async with call_server(sip_port=0, **changes) as server, sip_phone() as phone:
        yield server, phone, server_of(server).sockets.port


async def up(server: CallServer, session: SipSession) -> str:
    """Wait until a call is up, let the phone send to it, and return its id."""
    await until(lambda: session.state is SessionState.UP)
    registry = server.gateway.calls.registry
    await until(lambda: len(registry) > 0)
    return [active.call.call_id for active in registry][-1]


def rtp_address(description: object) -> tuple[str, int]:
    assert isinstance(description, bytes)
    (line,) = [line for line in description.decode().split("\r\n") if line.startswith("m=audio")]
    return "127.0.0.1", int(line.split()[1])


async def speak(server: CallServer, call_id: str, text: str = "Good morning.") -> None:
    async with server.http() as client:
        answer = await client.post(f"/{call_id}/speech", content=text, headers={"content-type": "text/plain"})
        assert answer.status_code == 200, answer.text


async def place(server: CallServer, to: str, **wanted: object) -> OutgoingCall:
    """Call; return the outgoing call."""
    async with server.http() as client:
        placed = await client.post("", json={"over": "sip", "to": to, **wanted})
    assert placed.status_code == 202, placed.text
    outgoing = server.gateway.calls.registry.outgoing.get(placed.json()["call"])
    assert outgoing is not None
    return outgoing
