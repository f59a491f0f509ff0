"""Interface between a phone call and the protocol that carries it.

``servers.phone_call`` has what all calls share: the tick, the playout, discards, control's messages. A wire
has the socket and the protocol: ``audiosocket.wire``, ``rtp.wire``.
"""

from typing import Protocol


class WireEnded(Exception):
    """The call is over: the peer ended it, broke the protocol, or is gone.

    Args:
        problem: for the log, if the peer is at fault.
        is_stalled: nothing more would reach the peer.
    """

    def __init__(self, reason: str, *, problem: str | None = None, is_stalled: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.problem = problem
        self.is_stalled = is_stalled


class WireListener(Protocol):
    """Takes what the caller does (``paced_media.PacedMedia``, behind a queue)."""

    def receive_audio(self, pcm: bytes, sample_rate: int) -> None:
        """Take s16le mono audio."""

    def press(self, digit: str) -> None:
        """Take a key: one of ``0-9 * # A-D``."""


class PhoneWire(Protocol):
    """Carries one call; owns its sockets, which do not block. Times are monotonic seconds."""

    @property
    def dropped(self) -> int:
        """Packets that the peer did not take in time."""

    def receive(self, now: float, listener: WireListener) -> None:
        """Read what has arrived, and pass it on; raises WireEnded."""

    def send(self, packet: bytes) -> None:
        """Send one s16le packet of 20 ms; raises WireEnded."""

    def change(self, opening: object) -> None:
        """Go on with another opening: the peer moved or changed its encoding; its rate stays."""

    def send_keys(self, digits: str) -> None:
        """Press keys of the far end, ``0-9 * # A-D``; a wire without keys of its own ignores them."""

    def skip(self, packets: int) -> None:
        """Note that so many packets were not sent, because their time had passed."""

    def hang_up(self) -> None:
        """Tell the peer that the call is over."""

    def linger(self, now: float) -> bool:
        """Send the rest after ``hang_up``; return whether there is none."""

    def close(self) -> None:
        """Close the sockets."""
