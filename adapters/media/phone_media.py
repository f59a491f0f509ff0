"""Interface to the media of phone calls on sockets of their own, and to where they are played.

A way in accepts a call and passes its socket on, with the opening of its wire. ``servers.media_servers``
has what reads and sends the packets then.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Protocol

from .call_media import CallMedia
from .paced_media import TICKS_PER_REPORT
from .phone_wire import PhoneWire


@dataclass(frozen=True, slots=True)
class PhoneCallOptions:
    """How a phone call is served."""

    sample_rate: int  # Hz of the audio sent
    stalled_s: float  # as in ``AudioSocketTimeouts``
    report_ticks: int = TICKS_PER_REPORT  # packets from one ``on_report`` to the next
    silent_s: float | None = None  # without any packet of the caller; None: unlimited
    max_assumed_s: float = inf  # time after a report for which control assumes that speech is played on time


class WireOpening(Protocol):
    """A wire that a media server opens; it is pickled, and the socket comes with it."""

    def open(
        self,
        options: PhoneCallOptions,
        sock: socket.socket,
        report: Callable[[str], None],
        now: Callable[[], float],
    ) -> PhoneWire:
        """Return the wire, which owns the socket; raises OSError.

        report: takes a sentence for the log about a fault of the peer that does not end the call.
        """

    def reopened(self) -> "WireOpening":
        """Return the opening for another media server, after the first one has died."""


class PhoneCallOwner(Protocol):
    """The leg of the call."""

    def on_closed(self, reason: str) -> None:
        """The call is over."""

    def on_problem(self, text: str, *, is_internal: bool) -> None:
        """Log an error of the caller's program, or of the media server."""

    def fail(self, error: Exception) -> None:
        """Log an exception of a listener, and end the call."""


class PhoneCallCommands(Protocol):
    """What the leg of a phone call asks of its wire."""

    def change_wire(self, wire: WireOpening) -> None:
        """Go on with another opening on the same socket; the rate of the audio stays."""

    def send_keys(self, digits: str) -> None:
        """Press keys of the far end: ``0-9 * # A-D``."""

    def hang_up(self, reason: str) -> None:
        """End the call; ``PhoneCallOwner.on_closed`` follows."""


class PhoneCallMedia(CallMedia, PhoneCallCommands, Protocol):
    """The media of one phone call, as its leg sees them."""


class PhoneMedia(Protocol):
    """Where the media of all phone calls are played."""

    @property
    def pids(self) -> tuple[int, ...]:
        """Ids of the processes that play them."""

    @property
    def in_processes(self) -> bool:
        """Whether processes of their own play them."""

    @property
    def are_ready(self) -> bool:
        """Whether every process takes calls now."""

    def open_phone_call(
        self, wire: WireOpening, sock: socket.socket, owner: PhoneCallOwner, options: PhoneCallOptions
    ) -> PhoneCallMedia:
        """Serve a call on its socket, and return its media.

        The media own the socket, unless this raises OSError. ``owner.on_closed`` is called at the end of the
        call, unless ``aclose`` comes before.
        """

    async def start(self) -> None:
        """Wait until every process takes calls; raises TimeoutError."""

    async def aclose(self) -> None:
        """End every call and every process."""
