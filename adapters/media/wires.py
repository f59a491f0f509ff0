"""The wire of a call, by its opening."""

import socket
import time
from collections.abc import Callable
from typing import assert_never

from ..audiosocket.wire import AudioSocketWire
from ..rtp.wire import RtpWire
from .messages import AudioSocketOpening, OpenPhoneCall, RtpOpening
from .phone_wire import PhoneWire


def make_wire(
    opening: OpenPhoneCall,
    sock: socket.socket,
    report: Callable[[str], None],
    now: Callable[[], float] = time.monotonic,
) -> PhoneWire:
    """Return the wire, which owns the socket.

    Args:
        report: takes a sentence for the log about a fault of the peer that does not end the call.
    """
    match opening.wire:
        case AudioSocketOpening():
            return AudioSocketWire(opening.wire, opening.options, sock, now)
        case RtpOpening():
            return RtpWire(opening.wire, opening.options, sock, report, now)
        case _:
            assert_never(opening.wire)
