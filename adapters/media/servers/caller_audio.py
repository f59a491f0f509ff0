"""The caller's audio between the wire of a phone call and its media."""

from collections import deque
from typing import Final

from ..phone_wire import WireListener

_TICK_S: Final = 0.1  # of audio; five times the speed at which a phone sends it


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
