"""Detection of a peer that has stopped reading while its kernel goes on taking data.

A program that hangs, or is stopped, sends nothing either. A caller may send nothing for minutes too: some
phones send no silence, and none is sent on hold. What tells them apart is the window, the bytes that the
peer's kernel offers to take. The window of a program that reads is the same again soon after each packet.
Unread data makes it smaller, but late where the kernel enlarges its buffer meanwhile.

No I/O; times are arguments in monotonic seconds. Measured with Linux 6.18 on both sides, 16 kB/s: the window
of a program that reads every 0.1 s is 1 KiB smaller for 0.1 s; of one that stops, 3 KiB after 1 to 40 s.
"""

from typing import Final

_MIN_SILENCE_S: Final = 0.2  # a phone in a call sends a message every 10 to 60 ms
_MIN_SHRINKAGE: Final = 3 * 1024  # bytes
_MIN_SHRUNK_S: Final = 1.0  # a busy program reads late, but it reads


class UnreadDataDetector:
    """Judges one peer by the times at which it sent something, and by its window in between."""

    def __init__(self, now: float) -> None:
        self.has_unread_data = False
        self._received_at = now
        self._max_window = 0  # since then
        self._shrunk_at: float | None = None

    def note_received(self, now: float) -> None:
        """Note that the peer has sent something: it runs."""
        self._received_at = now
        self._max_window = 0
        self._shrunk_at = None
        self.has_unread_data = False

    def silence_s(self, now: float) -> float:
        """Return the seconds in which the peer has sent nothing."""
        return now - self._received_at

    def is_peer_silent(self, now: float) -> bool:
        """Whether the peer has sent nothing for so long that its window is of interest."""
        return self.silence_s(now) >= _MIN_SILENCE_S

    def note_window(self, window: int, now: float) -> None:
        """Take the window, in bytes, of a peer that is silent."""
        self._max_window = max(self._max_window, window)
        if window > self._max_window - _MIN_SHRINKAGE:
            self._shrunk_at = None
        elif self._shrunk_at is None:
            self._shrunk_at = now
        self.has_unread_data = self._shrunk_at is not None and now - self._shrunk_at >= _MIN_SHRUNK_S
