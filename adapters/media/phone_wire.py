"""Interface between a phone call and the protocol that carries it.

``phone_call.PhoneCall`` has what all calls share: the tick, the playout, discards, control's messages. A wire
has the socket and the protocol: ``audiosocket.wire``, ``rtp.wire``. ``CallerAudioQueue`` stands between them.
"""

from collections import deque
from typing import Final, Protocol

_TICK_S: Final = 0.1  # of audio; five times the speed at which a phone sends it


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
    """Takes what the caller does (``paced_media.PacedMedia``, behind a ``CallerAudioQueue``)."""

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


class CallerAudioQueue:
    """Passes on audio of the caller at a tenth of a second a tick; implements ``WireListener``.

    Detection of speech takes 4 % of the audio's time, and the calls of a media server share its thread. What
    comes at once, after a stall of the network or from a flooding peer, would delay packets of other calls.
    The queue has no bound: read from the wire only when it is empty.
    """

    def __init__(self, listener: WireListener) -> None:
        self._listener = listener
        self._waiting: deque[tuple[bytes, int]] = deque()  # s16le, Hz
        self._room_s = _TICK_S  # for audio in this tick

    @property
    def is_empty(self) -> bool:
        """Whether all audio has been passed on."""
        return not self._waiting

    def begin_tick(self) -> None:
        """Pass on as much of the waiting audio as a tick may."""
        self._room_s = _TICK_S
        if self._waiting:
            self._pass_on()

    def receive_audio(self, pcm: bytes, sample_rate: int) -> None:
        """Pass on s16le mono audio, or queue what is too much for this tick."""
        if not self._waiting and (seconds := len(pcm) / (2 * sample_rate)) <= self._room_s:  # nearly always
            self._room_s -= seconds
            self._listener.receive_audio(pcm, sample_rate)
            return
        size = 2 * round(_TICK_S * sample_rate)
        for start in range(0, len(pcm), size):
            self._waiting.append((pcm[start : start + size], sample_rate))
        self._pass_on()

    def press(self, digit: str) -> None:
        """Pass on a key."""
        self._listener.press(digit)

    def _pass_on(self) -> None:
        while self._waiting and self._room_s > 0:
            pcm, sample_rate = self._waiting.popleft()
            self._room_s -= len(pcm) / (2 * sample_rate)
            self._listener.receive_audio(pcm, sample_rate)
