"""Processor time that calls take: no call is admitted that the machine cannot carry.

The engine's admission compares the cost of rendering with the time of its workers. A call costs more: its
packets are sent, its events and requests are served. Near the limit of the machine all of that comes late,
for every call, and when it is heard it is too late to refuse.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ....tts_engine.errors import Overloaded
from .processor_time import ProcessorQuota, ProcessorUse

MAX_LOAD: Final = 0.95  # of the processor time that other programs, and other machines of the host, leave
WINDOW_S: Final = 3.0
_SAMPLE_INTERVAL_S: Final = 0.25
_MIN_RENDERED_S: Final = 10.0  # in the window; beside little speech, other work of the server is a large part
_MAX_OTHERS_SHARE: Final = 0.5  # of the cores: against this server, the system gives others no more
_RETRY_AFTER_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float  # monotonic s
    use: ProcessorUse
    rendered_s: float
    speaking: int


class ProcessorLoad:
    """Share of the processor time that the server takes, and would take with more calls that speak.

    Args:
        read: the processor time so far.
        rendered_s: seconds of speech rendered so far, of calls and of requests.
        speaking: calls that speak now.
    """

    def __init__(
        self,
        read: Callable[[], ProcessorUse],
        rendered_s: Callable[[], float],
        speaking: Callable[[], int],
        processor: ProcessorQuota | None = None,
    ) -> None:
        self._read = read
        self._rendered_s = rendered_s
        self._speaking = speaking
        self._processor = processor or ProcessorQuota.of_process()
        self._samples: deque[_Sample] = deque()

    def sample(self, now: float) -> None:
        """Read the counters, if a quarter of a second has passed. now: monotonic seconds."""
        if self._samples and now - self._samples[-1].at < _SAMPLE_INTERVAL_S:
            return
        sample = _Sample(now, self._read(), self._rendered_s(), self._speaking())
        if self._samples and sample.use.own_s < self._samples[-1].use.own_s:
            self._samples.clear()  # a process has ended, and its time is not counted any more
        self._samples.append(sample)
        self._forget(now)

    def share(self, further_calls: int, now: float) -> float:
        """Return the share of the time if so many more calls spoke; 0 while it is not known."""
        self._forget(now)
        if len(self._samples) < 2:
            return 0.0
        first, last = self._samples[0], self._samples[-1]
        elapsed_s = last.at - first.at
        own_s = last.use.own_s - first.use.own_s
        rendered_s = last.rendered_s - first.rendered_s
        if rendered_s < _MIN_RENDERED_S:
            return 0.0
        mean_speaking = sum(sample.speaking for sample in self._samples) / len(self._samples)
        added = max(0.0, self._speaking() + further_calls - mean_speaking)
        needed = own_s / elapsed_s + added * own_s / rendered_s
        return needed / (self._processor.cores - self._others(first, last))

    def refusal(self, now: float) -> Overloaded | None:
        """Return why no call should be admitted now, or None."""
        share = self.share(1, now)
        if share <= MAX_LOAD:
            return None
        return Overloaded(
            f"one more call would take {share:.0%} of the processor time; {MAX_LOAD:.0%} is allowed",
            reason="processor",
            retry_after_s=_RETRY_AFTER_S,
        )

    def _others(self, first: _Sample, last: _Sample) -> float:
        """Return the cores that other programs and the host take, as far as they can keep them."""
        if not self._processor.is_shared:
            return 0.0
        own_s = last.use.own_s - first.use.own_s
        others_s = max(0.0, last.use.machine_s - first.use.machine_s - own_s)
        return min(others_s / (last.at - first.at), _MAX_OTHERS_SHARE * self._processor.cores)

    def _forget(self, now: float) -> None:
        while self._samples and now - self._samples[0].at > WINDOW_S:
            self._samples.popleft()
