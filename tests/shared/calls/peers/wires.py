"""Phones of every wire: those of ``vivavoce phone``, and those behind simulated carriers and Asterisk."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from shared.calls.peers.kinds import MAKE_PEER
from shared.calls.websocket_phones import WebSocketPhones
from vivavoce.gateway.cli.phones.wires import MAKE_PHONES, MakePhones, Phones


def _over_websocket(wire: str) -> MakePhones:
    def make(host: str, port: int) -> Phones:
        return WebSocketPhones(f"ws://{host}:{port}", MAKE_PEER[wire])

    return make


ALL_WIRES: Final[Mapping[str, MakePhones]] = MappingProxyType(
    {**MAKE_PHONES, **{wire: _over_websocket(wire) for wire in MAKE_PEER}}
)
