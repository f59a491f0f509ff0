"""Interface of a simulated peer: everything of its wire, without I/O."""

from dataclasses import dataclass
from typing import Protocol

from shared.calls.peers.queue import PeerQueue

Message = str | bytes


@dataclass(frozen=True, slots=True)
class PeerStep:
    """What a peer does in one packet period."""

    messages: tuple[Message, ...]  # to the gateway
    pcm: bytes  # 20 ms that the caller hears, s16le


class SimulatedPeer(Protocol):
    """One call of a peer that paces the playout. The caller is silent until ``say``."""

    call_id: str
    path: str  # of the gateway's WebSocket
    subprotocols: tuple[str, ...]
    sample_rate: int  # Hz
    has_hung_up: bool  # whether the gateway asked it to
    flushes: int  # of the gateway
    queue: PeerQueue  # what it has not yet played

    def start(self) -> list[Message]:
        """Return the first messages."""

    def receive(self, message: Message) -> list[Message]:
        """Take a message of the gateway; return the replies."""

    def step(self) -> PeerStep:
        """Play one packet, and send one of the caller."""

    def say(self, pcm: bytes) -> None:
        """Send ``pcm``, 20 ms of s16le, as every packet of the caller from now on."""

    def press(self, digit: str) -> list[Message]:
        """Return the messages of a key."""

    def hang_up(self) -> list[Message]:
        """Return the messages before the peer closes the WebSocket."""
