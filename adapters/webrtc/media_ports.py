"""Binding of aioice's sockets within a range of UDP ports, so that a firewall can open it.

aioice binds its sockets to port 0 and has no setting for a range. Inside ``bound_to``, the event loop binds
such sockets of the current context within the range; other sockets of the loop are not affected.

Source: aioice 0.13 (ice.py, Connection.get_component_candidates), asyncio's loop.create_datagram_endpoint.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from ...tts_engine.errors import Overloaded
from ..udp_ports import MediaPorts

_RETRY_AFTER_S: Final = 5.0  # as for a full server: of many calls one ends soon

_Endpoint = tuple[asyncio.DatagramTransport, asyncio.DatagramProtocol]
_CreateEndpoint = Callable[..., Awaitable[_Endpoint]]


class MediaPortsExhausted(Overloaded):
    """Every UDP port of the range is in use."""


@contextmanager
def bound_to(ports: MediaPorts) -> Iterator[None]:
    """Bind sockets with port 0 within the range, for the current context and the tasks it starts.

    An exception closes the sockets bound so far. The running loop must be asyncio's own.
    """
    _install(asyncio.get_running_loop())
    binding = _Binding(ports)
    with ExitStack() as undo:
        undo.callback(binding.close)
        token = _BINDING.set(binding)
        try:
            yield
        finally:
            _BINDING.reset(token)
        undo.pop_all()


@dataclass(slots=True)
class _Binding:
    """The sockets that one context has bound."""

    ports: MediaPorts
    transports: list[asyncio.DatagramTransport] = field(default_factory=list)

    async def bind(
        self, create: _CreateEndpoint, protocol_factory: Callable[[], Any], host: str, options: dict[str, Any]
    ) -> _Endpoint:
        """Bind to the first free port. Raises MediaPortsExhausted; OSError if ``host`` cannot be bound to."""
        for port in self.ports.in_turn():
            try:
                endpoint = await create(protocol_factory, local_addr=(host, port), **options)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            self.transports.append(endpoint[0])
            return endpoint
        raise MediaPortsExhausted(
            f"all UDP ports for media, {self.ports}, are in use",
            reason="webrtc_ports",
            retry_after_s=_RETRY_AFTER_S,
        )

    def close(self) -> None:
        for transport in self.transports:
            transport.close()


_BINDING: ContextVar[_Binding | None] = ContextVar("_BINDING", default=None)


@dataclass(frozen=True, slots=True)
class _RangedEndpoints:
    """Replaces a loop's ``create_datagram_endpoint``."""

    create: _CreateEndpoint

    async def __call__(
        self, protocol_factory: Callable[[], Any], local_addr: Any = None, **options: Any
    ) -> _Endpoint:
        binding = _BINDING.get()
        if binding is None or local_addr is None or local_addr[1] != 0:
            return await self.create(protocol_factory, local_addr=local_addr, **options)
        return await binding.bind(self.create, protocol_factory, local_addr[0], options)


def _install(loop: Any) -> None:
    if not isinstance(loop.create_datagram_endpoint, _RangedEndpoints):
        loop.create_datagram_endpoint = _RangedEndpoints(loop.create_datagram_endpoint)
