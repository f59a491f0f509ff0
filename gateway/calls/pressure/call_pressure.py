"""Pressure of all calls together: faults that callers hear, and the processor time of the server."""

from ....adapters.playback.playout import PlayoutStats
from ....tts_engine.errors import Overloaded
from ....tts_engine.metrics import Metrics
from .playout_pressure import PlayoutPressure
from .processor_load import ProcessorLoad


class CallPressure:
    """Refuses further calls for the sake of those that are up. Times are monotonic seconds.

    Attributes:
        playout: faults that callers hear.
        processor: time that calls take.
    """

    def __init__(self, processor: ProcessorLoad) -> None:
        self.playout = PlayoutPressure()
        self.processor = processor

    def refusal(self, now: float) -> Overloaded | None:
        """Return why no call should be admitted now, or None."""
        return self.playout.refusal(now) or self.processor.refusal(now)


class PlayoutCounters:
    """Counts one call's packets, late packets and underruns in the metrics and in the pressure."""

    def __init__(self, metrics: Metrics, pressure: CallPressure | None) -> None:
        self._metrics, self._pressure = metrics, pressure
        self._counted = PlayoutStats()

    def count(self, stats: PlayoutStats, now: float) -> None:
        """Count what has been added to ``stats``, which are of the whole call. now: monotonic seconds."""
        counted, self._counted = self._counted, stats
        packets = stats.packets - counted.packets
        late_packets = stats.late_packets - counted.late_packets
        skipped_packets = stats.skipped_packets - counted.skipped_packets
        underruns = stats.underruns - counted.underruns
        self._metrics.packets.inc(packets)
        self._metrics.late_packets.inc(late_packets)
        self._metrics.underruns.inc(underruns)
        if self._pressure is not None:
            self._pressure.processor.sample(now)
            late = late_packets + skipped_packets  # the caller hears the same
            self._pressure.playout.add(now, packets=packets, late_packets=late, underruns=underruns)
