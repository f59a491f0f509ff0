"""Simulated phones of every wire: the silence and keys that they send, arrival times, and errors."""

import socket
import struct
import time

from ....tts_engine.errors import BadRequest, VivavoceError

PTIME_S = 0.020  # packet length of the silence sent, as of most phones behind Asterisk
SAMPLE_RATE = 8000  # Hz, of the silence sent
CONNECT_TIMEOUT_S = 2.0  # as in Asterisk
FIRST_DIGIT_S = 1.0  # after the connection
DIGIT_EVERY_S = 0.3
TIMESPEC = struct.Struct("@ll")
_DIGITS = "0123456789*#ABCD"
_SO_TIMESTAMPNS = 35  # Linux; the socket module does not define it


class PhoneFailed(VivavoceError):
    """The call could not be made, or its recording could not be written."""


class CallRefused(PhoneFailed):
    """The gateway takes no call now; later it may."""


def check_digits(digits: str) -> None:
    """Raise BadRequest for a digit that is not on a phone."""
    wrong = [digit for digit in digits if digit not in _DIGITS]
    if wrong:
        raise BadRequest(f"got digit {wrong[0]!r}; allowed are {_DIGITS}")


def enable_kernel_timestamps(sock: socket.socket) -> None:
    """Have the kernel note when data arrives, for ``arrival_time``."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    except OSError:
        return  # not on Linux: the arrival time is the time of the read


def arrival_time(ancillary: list[tuple[int, int, bytes]]) -> float:
    """Return when data arrived (monotonic seconds), by the control messages that came with it."""
    now = time.monotonic()
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(data) == TIMESPEC.size:
            seconds, nanoseconds = TIMESPEC.unpack(data)
            waited_s = time.time() - (seconds + nanoseconds / 1e9)
            return now - min(
                max(float(waited_s), 0.0), 1.0
            )  # bounds the error when the wall clock is stepped
    return now
