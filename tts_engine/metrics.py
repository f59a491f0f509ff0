"""Prometheus metrics of an engine and of the calls and requests that it serves.

Each engine has a ``Metrics`` with a registry of its own, so that two engines in a process do not mix.
"""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from .records.spans import Span

_TTFA_BUCKETS_S = (0.01, 0.02, 0.03, 0.045, 0.06, 0.09, 0.12, 0.2, 0.35, 0.6, 1.0, 2.0)
_LEAD_BUCKETS_S = (0.0, 0.02, 0.06, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
_CANCEL_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)
_STEP_BUCKETS_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    """Counters, gauges and histograms. Times are in seconds; names start with ``vivavoce_``."""

    def __init__(self) -> None:
        self.on_span: Callable[[Span], None] | None = None  # exports traces; None: no span is made
        self.registry = registry = CollectorRegistry()
        self.ttfa = Histogram(
            "vivavoce_ttfa_seconds",
            "From the text that completes the first clause to its first audio handed over.",
            buckets=_TTFA_BUCKETS_S,
            registry=registry,
        )
        self.playout_lead = Histogram(
            "vivavoce_playout_lead_seconds",
            "Unplayed speech a listener holds when more arrives.",
            buckets=_LEAD_BUCKETS_S,
            registry=registry,
        )
        self.cancel_latency = Histogram(
            "vivavoce_cancel_seconds",
            "From cancel() to the slot being free.",
            buckets=_CANCEL_BUCKETS_S,
            registry=registry,
        )
        self.steps = Histogram(
            "vivavoce_step_seconds",
            "Duration of a step, which renders a piece for one stream or for several.",
            ["stage"],
            buckets=_STEP_BUCKETS_S,
            registry=registry,
        )
        self.underruns = Counter(
            "vivavoce_underruns",
            "Times a listener heard over 60 ms of nothing inside speech.",
            registry=registry,
        )
        self.late_packets = Counter(
            "vivavoce_late_packets", "Packets sent over 20 ms after they were due.", registry=registry
        )
        self.packets = Counter("vivavoce_packets", "Packets sent to listeners.", registry=registry)
        self.refusals = Counter(
            "vivavoce_refusals", "Calls and streams refused at once.", ["reason"], registry=registry
        )
        self.unread_characters = Counter(
            "vivavoce_unread_characters",
            "Letters left out because the voice cannot read their script.",
            registry=registry,
        )
        self.recording_failures = Counter(
            "vivavoce_recording_failures",
            "Recordings of calls that could not be written to their end.",
            registry=registry,
        )
        self.failures = Counter("vivavoce_stream_failures", "Streams ended by an error.", registry=registry)
        self._add_speech(registry)
        self._add_load(registry)
        self._add_requests(registry)

    @property
    def rendered_s(self) -> float:
        """Seconds of speech rendered so far: the value of ``audio_seconds``."""
        (metric,) = self.audio_seconds.collect()
        return next(sample.value for sample in metric.samples if sample.name.endswith("_total"))

    def _add_speech(self, registry: CollectorRegistry) -> None:
        """Add the metrics of how much speech was made."""
        self.audio_seconds = Counter(
            "vivavoce_audio_seconds", "Seconds of speech rendered.", registry=registry
        )
        self.repeated_audio_seconds = Counter(
            "vivavoce_repeated_audio_seconds",
            "Of these, seconds that were kept from a stream that said the same.",
            registry=registry,
        )
        self.filed_audio_seconds = Counter(
            "vivavoce_filed_audio_seconds",
            "Of these, seconds of lines that were read from the folder of kept speech.",
            registry=registry,
        )

    def _add_load(self, registry: CollectorRegistry) -> None:
        """Add the metrics of how many calls and streams are open."""
        self.active_calls = Gauge("vivavoce_active_calls", "Calls connected now.", registry=registry)
        self.load = Gauge(
            "vivavoce_load_ratio",
            "Part of the capacity for calls and streams that is in use; 1: another one is refused.",
            registry=registry,
        )
        self.active_streams = Gauge(
            "vivavoce_active_streams", "Utterance streams open now.", registry=registry
        )

    def _add_requests(self, registry: CollectorRegistry) -> None:
        """Add the metrics of the speech APIs, by API and key id."""
        self.requests = Counter(
            "vivavoce_requests", "Requests for speech ended.", ["api", "key", "outcome"], registry=registry
        )
        self.active_requests = Gauge(
            "vivavoce_active_requests", "Requests for speech being answered.", ["api"], registry=registry
        )
        self.request_characters = Counter(
            "vivavoce_request_characters", "Characters asked to be spoken.", ["api", "key"], registry=registry
        )
        self.request_audio_seconds = Counter(
            "vivavoce_request_audio_seconds", "Seconds of speech sent.", ["api", "key"], registry=registry
        )
        self.first_byte = Histogram(
            "vivavoce_first_byte_seconds",
            "From the first text of a request to its first byte of audio.",
            ["api"],
            buckets=_TTFA_BUCKETS_S,
            registry=registry,
        )
