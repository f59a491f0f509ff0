"""Clock of a Pipecat pipeline that follows the playback of speech.

Word times assume that audio is played as soon as it arrives, but a busy machine starts late, and a stall
skips packets. The clock lags behind the pipeline's by the delay of the current speech.

      arrived     |--------- 1.0 s ---------|
      heard           |----- 0.4 s -----|now           delay = now - arrival - 0.4 s
"""

# Pipecat is typed, but its functions do not declare what they return.
# mypy: disable-error-code="no-untyped-call"

from typing import Final

from pipecat.clocks.base_clock import BaseClock

from ...audiosocket.server_connection import PTIME_S
from .call_handler import PipecatCallHandler

_MAX_DELAY_NS: Final = 10_000_000_000  # of word times; later speech counts as lost


class PlaybackClock(BaseClock):
    """The pipeline's clock minus the delay of the current speech.

    Args:
        clock: Clock of the pipeline.
        handler: Handler of the call, which knows the speech that waits.
    """

    def __init__(self, clock: BaseClock, handler: PipecatCallHandler) -> None:
        self._clock = clock
        self._handler = handler
        self._arrived_ns = 0
        self._frozen_ns: int | None = None
        self._expected_s = self._queued_s = 0.0  # of speech, since the last silence

    @property
    def is_frozen(self) -> bool:
        """Whether the time stands still."""
        return self._frozen_ns is not None

    def get_time(self) -> int:
        """Get the time at which the speech that is heard now was due.

        Returns:
            The time in nanoseconds of the pipeline's clock.
        """
        if self._frozen_ns is not None:
            return self._frozen_ns
        now_ns = self._clock.get_time()
        heard_s = self._heard_s()
        if heard_s >= self._expected_s - PTIME_S:
            return now_ns
        delay_ns = now_ns - self._arrived_ns - round(heard_s * 1e9)
        return now_ns - min(max(0, delay_ns), _MAX_DELAY_NS)

    def start(self) -> None:
        """Start the pipeline's clock."""
        self._clock.start()

    def add_arrived(self, seconds: float, pts: int | None) -> None:
        """Note audio that has arrived from the service; ``pts`` is the time at which it is due, if known."""
        if self._heard_s() >= self._expected_s - PTIME_S:
            self.reset()
            self._arrived_ns = pts or self._clock.get_time()
        self._expected_s += seconds

    def add_queued(self, seconds: float) -> None:
        """Note audio that the playout has taken."""
        self._queued_s += seconds

    def end_utterance(self) -> None:
        """Note the end of an utterance."""
        if self._queued_s >= self._expected_s - PTIME_S:  # otherwise the next utterance has arrived
            self.reset()

    def freeze(self) -> None:
        """Stop the time, so that words of speech that is being dropped do not become due."""
        self._frozen_ns = self.get_time()

    def reset(self) -> None:
        """Forget the current speech; the time goes on without a delay."""
        self._frozen_ns = None
        self._expected_s = self._queued_s = 0.0

    def _heard_s(self) -> float:
        return max(0.0, self._queued_s - self._handler.lead_s())
