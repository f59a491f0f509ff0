"""Two callers who hear each other through the gateway, after a transfer from one call to another.

    phone A <-- RTP, codec of A --> wire A --> audio, keys --> wire B <-- RTP, codec of B --> phone B

Each side keeps its own encoding, keys and encryption, so that no phone must reach the other one.
"""

import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from .....adapters.audio.input_resampler import InputResampler, make_input_resampler
from .....adapters.media.clock import Clock
from .....adapters.media.phone_media import PhoneCallOptions
from .....adapters.media.phone_wire import WireEnded
from .....adapters.rtp.connection import RtpOptions
from .....adapters.rtp.wire import RtpOpening, RtpWire

logger = logging.getLogger(__name__)

_PACKETS_PER_S: Final = 50
_MAX_WAITING_S: Final = 0.2  # of audio; a burst after a stall is cut to it


@dataclass(slots=True, eq=False)
class JoinedSide:
    """The media of one caller: a ``WireListener`` of its own wire."""

    wire: RtpWire
    sample_rate: int  # Hz
    pcm: bytearray = field(default_factory=bytearray)  # from the other side, at this side's rate
    other: "JoinedSide | None" = None
    resampler: InputResampler | None = None  # to the other side's rate

    @classmethod
    def open(cls, sock: socket.socket, options: RtpOptions, now: Callable[[], float]) -> "JoinedSide":
        """Take a socket, which stays the caller's way in."""
        rate = options.codec.sample_rate
        wire = RtpWire(RtpOpening(options), PhoneCallOptions(rate, 10.0), sock, logger.info, now)
        return cls(wire, rate)

    def receive_audio(self, pcm: bytes, sample_rate: int) -> None:
        """Pass audio to the other side."""
        assert self.other is not None
        if self.resampler is not None:
            pcm = self.resampler.push(pcm)
        waiting = self.other.pcm
        waiting += pcm
        most = 2 * round(_MAX_WAITING_S * self.other.sample_rate)
        if len(waiting) > most:
            del waiting[: len(waiting) - most]

    def press(self, digit: str) -> None:
        """Pass a key to the other side."""
        assert self.other is not None
        self.other.wire.send_keys(digit)

    def send_packet(self) -> None:
        """Send 20 ms: of the other side, or silence."""
        size = 2 * self.sample_rate // _PACKETS_PER_S
        packet = bytes(self.pcm[:size])
        del self.pcm[:size]
        self.wire.send(packet + bytes(size - len(packet)))


class JoinedCalls:
    """Two sides on the clock of the server: a ``Ticked``.

    Args:
        on_failed: ends both calls after an error.
    """

    def __init__(
        self, first: JoinedSide, second: JoinedSide, clock: Clock, on_failed: Callable[[], None]
    ) -> None:
        first.other, second.other = second, first
        for side, other in ((first, second), (second, first)):
            if side.sample_rate != other.sample_rate:
                side.resampler = make_input_resampler(side.sample_rate, other.sample_rate)
        self._sides = (first, second)
        self._clock = clock
        self._on_failed = on_failed
        clock.join(self)

    def tick(self, now: float) -> None:
        """Pass on what has arrived, and send one packet to each side."""
        for side in self._sides:
            try:
                side.wire.receive(now, side)
            except WireEnded:  # BYE of RTCP; the end of the session follows
                continue
        for side in self._sides:
            side.send_packet()

    def fail(self, error: Exception) -> None:
        """Log an error, and end both calls."""
        logger.error("Two calls that were joined failed", exc_info=error)
        self._on_failed()

    def change(self, number: int, options: RtpOptions) -> None:
        """Go on with other options of one side."""
        self._sides[number].wire.change(RtpOpening(options))

    def close(self) -> None:
        """Close both sockets."""
        self._clock.leave(self)
        for side in self._sides:
            side.wire.close()


def open_joined(
    first: tuple[socket.socket, RtpOptions],
    second: tuple[socket.socket, RtpOptions],
    clock: Clock,
    on_failed: Callable[[], None],
) -> JoinedCalls:
    """Let two callers hear each other."""
    sides = [JoinedSide.open(sock, options, time.monotonic) for sock, options in (first, second)]
    return JoinedCalls(sides[0], sides[1], clock, on_failed)
