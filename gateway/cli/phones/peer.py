"""Interface of a simulated peer: everything of its wire, without I/O."""

from dataclasses import dataclass
from typing import Protocol

Message = str | bytes


@dataclass(frozen=True, slots=True)
class PeerStep:
    """What a peer does in one packet period."""

    messages: tuple[Message, ...]  # to the gateway
    pcm: bytes  # 20 ms that the caller hears, s16le


class SimulatedPeer(Protocol):
    """One call of a peer that paces the playout. It sends silence as the caller's audio."""

    call_id: str
    path: str  # of the gateway's WebSocket
    subprotocols: tuple[str, ...]
    sample_rate: int  # Hz
    has_hung_up: bool  # whether the gateway asked it to

    def start(self) -> list[Message]:
        """Return the first messages."""

    def receive(self, message: Message) -> list[Message]:
        """Take a message of the gateway; return the replies."""

    def step(self) -> PeerStep:
        """Play one packet, and send one of the caller."""

    def press(self, digit: str) -> list[Message]:
        """Return the messages of a key."""

    def hang_up(self) -> list[Message]:
        """Return the messages before the peer closes the WebSocket."""
