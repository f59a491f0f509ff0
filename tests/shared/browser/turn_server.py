"""A TURN server on loopback for tests: UDP, long-term credentials, no time limits.

Source: RFC 8656; the messages are those of aioice.
"""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aioice import stun
from aioice.turn import UDP_TRANSPORT, is_channel_data, make_integrity_key

USERNAME, CREDENTIAL, REALM = "caller", "open-sesame", "tests"
_LIFETIME_S = 600
Address = tuple[str, int]


@dataclass(eq=False)
class Allocation(asyncio.DatagramProtocol):
    """The relayed address of one client."""

    server: "TurnServer"
    client: Address
    channels: dict[int, Address] = field(default_factory=dict)
    relayed_bytes: int = 0  # of both directions
    transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Address) -> None:
        self.relayed_bytes += len(data)
        channel = next((number for number, peer in self.channels.items() if peer == addr), None)
        if channel is None:
            message = stun.Message(stun.Method.DATA, stun.Class.INDICATION)
            message.attributes |= {"XOR-PEER-ADDRESS": addr, "DATA": data}
            self.server.transport.sendto(bytes(message), self.client)
        else:
            self.server.transport.sendto(struct.pack("!HH", channel, len(data)) + data, self.client)

    def send(self, data: bytes, peer: Address) -> None:
        self.relayed_bytes += len(data)
        self.transport.sendto(data, peer)


class TurnServer(asyncio.DatagramProtocol):
    """The server; ``allocations`` keeps those that were released, too."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.allocations: list[Allocation] = []
        self.refusals = 0  # of requests with a wrong user or credential
        self._by_client: dict[Address, Allocation] = {}
        self._key = make_integrity_key(USERNAME, REALM, CREDENTIAL)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"turn:127.0.0.1:{self.transport.get_extra_info('sockname')[1]}"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Address) -> None:
        allocation = self._by_client.get(addr)
        if is_channel_data(data):
            number, length = struct.unpack("!HH", data[:4])
            if allocation is not None and number in allocation.channels:
                allocation.send(data[4 : 4 + length], allocation.channels[number])
            return
        message = stun.parse_message(data)
        if message.message_class is stun.Class.INDICATION:
            if allocation is not None and "DATA" in message.attributes:
                allocation.send(message.attributes["DATA"], message.attributes["XOR-PEER-ADDRESS"])
        elif message.message_method is stun.Method.BINDING:
            self._respond(message, addr, {"XOR-MAPPED-ADDRESS": addr})
        elif self._is_authentic(message):
            task = asyncio.create_task(self._execute(message, addr))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._challenge(message, addr)

    def close(self) -> None:
        self.transport.close()
        for allocation in self.allocations:
            allocation.transport.close()

    def _is_authentic(self, message: stun.Message) -> bool:
        if "USERNAME" not in message.attributes:
            return False
        known = message.attributes["USERNAME"] == USERNAME
        authentic = known and message.check_message_integrity(self._key)
        self.refusals += not authentic
        return authentic

    async def _execute(self, message: stun.Message, addr: Address) -> None:
        match message.message_method:
            case stun.Method.ALLOCATE:
                assert message.attributes["REQUESTED-TRANSPORT"] == UDP_TRANSPORT
                self._respond(message, addr, await self._allocate(addr))
            case stun.Method.CHANNEL_BIND:
                number, peer = (message.attributes[name] for name in ("CHANNEL-NUMBER", "XOR-PEER-ADDRESS"))
                self._by_client[addr].channels[number] = peer
                self._respond(message, addr, {})
            case stun.Method.REFRESH:
                if message.attributes["LIFETIME"] == 0 and addr in self._by_client:
                    self._by_client.pop(addr).transport.close()
                self._respond(message, addr, {"LIFETIME": message.attributes["LIFETIME"]})
            case _:
                self._respond(message, addr, {})

    async def _allocate(self, client: Address) -> dict[str, Any]:
        if client not in self._by_client:
            loop = asyncio.get_running_loop()
            allocation = Allocation(self, client)
            await loop.create_datagram_endpoint(lambda: allocation, local_addr=("127.0.0.1", 0))
            self._by_client[client] = allocation
            self.allocations.append(allocation)
        relayed = self._by_client[client].transport.get_extra_info("sockname")
        return {"XOR-RELAYED-ADDRESS": relayed, "LIFETIME": _LIFETIME_S, "XOR-MAPPED-ADDRESS": client}

    def _respond(self, request: stun.Message, addr: Address, attributes: dict[str, Any]) -> None:
        response = stun.Message(
            request.message_method, stun.Class.RESPONSE, request.transaction_id, attributes
        )
        if request.message_method is not stun.Method.BINDING:
            response.add_message_integrity(self._key)
        self.transport.sendto(bytes(response), addr)

    def _challenge(self, request: stun.Message, addr: Address) -> None:
        attributes = {"ERROR-CODE": (401, "Unauthorized"), "REALM": REALM, "NONCE": b"nonce"}
        response = stun.Message(request.message_method, stun.Class.ERROR, request.transaction_id, attributes)
        self.transport.sendto(bytes(response), addr)


@asynccontextmanager
async def serve_turn() -> AsyncIterator[TurnServer]:
    """Serve TURN on a free port for the duration of the context."""
    loop = asyncio.get_running_loop()
    _, server = await loop.create_datagram_endpoint(TurnServer, local_addr=("127.0.0.1", 0))
    try:
        yield server
    finally:
        server.close()
