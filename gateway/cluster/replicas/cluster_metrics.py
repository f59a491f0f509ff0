"""Metrics of a cluster in the scrape of a gateway: what it did itself, and what all replicas report.

    replica   its engine's metrics ---ReplicaMetrics, every 5 s---> gateway   the same as vivavoce_replica_*

A name of its own keeps them apart from the gateway's streams, which are the same ones seen from the caller's
side. One gateway has the metrics of a replica.
"""

import functools
import pickle
import time
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, ProcessCollector
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ....tts_engine.metrics import Metrics
from ...operation.process_metrics import graphics_cards
from .messages import ReplicaMetrics

REPORT_INTERVAL_S = 5.0
_WORK_BUCKETS_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0)
_AGE_BUCKETS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
_MAX_AGE_S = 15.0  # of a report; a replica that ended disappears after as long


def replica_families(metrics: Metrics, *others: Metric) -> bytes:
    """The metrics that mean something at a replica, which has neither calls nor requests, packed.

    Those of its process and its machine's cards are added, and ``others``.
    """
    counted = (
        *(metrics.ttfa, metrics.steps, metrics.playout_lead, metrics.cancel_latency),
        *(metrics.active_streams, metrics.audio_seconds, metrics.unread_characters),
        *(metrics.underruns, metrics.refusals, metrics.failures),
    )
    families = [family for each in counted for family in each.collect()]
    return pickle.dumps([*families, *_own_families(), *others], protocol=5)


def _own_families() -> list[Metric]:
    """The metrics of this process, without its virtual memory, and of the cards of its machine."""
    families = (family for each in _own_collectors() for family in each.collect())
    return [family for family in families if family.name != "process_virtual_memory_bytes"]


@functools.cache
def _own_collectors() -> tuple[Collector, ...]:
    return (ProcessCollector(registry=None), *graphics_cards())


def queue_families(streams: int, wait_s: float) -> tuple[Metric, Metric]:
    """The queue of a replica: streams with text and no audio, and what a new one would wait."""
    return (
        GaugeMetricFamily("vivavoce_waiting_streams", "Streams whose first audio has not come.", streams),
        GaugeMetricFamily(
            "vivavoce_expected_wait_seconds", "Wait of a new stream for its first step.", wait_s
        ),
    )


class ClusterMetrics(Collector):
    """The metrics of one gateway's cluster, in its registry. clock: monotonic seconds.

    Attributes:
        lost_replicas, moved_streams, routed_audio, report_age: observed by the engine.
    """

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        self.lost_replicas = Counter(
            "vivavoce_lost_replicas", "Replicas that ended or did not answer while in use.", registry=registry
        )
        self.moved_streams = Counter(
            "vivavoce_moved_streams", "Streams that went on at another replica.", registry=registry
        )
        self.routed_audio = Histogram(
            "vivavoce_routed_audio_seconds",
            "Speech expected of the streams for which a replica was chosen.",
            buckets=_WORK_BUCKETS_S,
            registry=registry,
        )
        self.report_age = Histogram(
            "vivavoce_replica_report_age_seconds",
            "Age of the report of the replica that was chosen.",
            buckets=_AGE_BUCKETS_S,
            registry=registry,
        )
        self.replicas = Gauge(
            "vivavoce_cluster_replicas", "Replicas that take streams here.", ["state"], registry=registry
        )
        for state in ("running", "desired", "starting"):
            self.replicas.labels(state)
        self._clock = clock
        self._reports: dict[str, tuple[float, ReplicaMetrics]] = {}  # by replica, with the time
        registry.register(self)

    def take(self, reports: Iterable[ReplicaMetrics]) -> None:
        """Show these reports in the place of earlier ones of the same replicas."""
        now = self._clock()
        self._reports |= {each.replica: (now, each) for each in reports}
        self._forget_old()

    def has(self, replica: str) -> bool:
        """Whether this gateway shows the metrics of a replica."""
        return replica in self._reports

    def collect(self) -> Iterator[Metric]:
        """One family for each name, with the samples of all replicas that reported lately."""
        self._forget_old()
        families: dict[str, Metric] = {}
        for _, report in self._reports.values():
            for reported in pickle.loads(report.families):  # of a peer that may run programs here
                name = _replica_name(reported.name)
                family = families.setdefault(name, Metric(name, reported.documentation, reported.type))
                _add_samples(family, reported, report)
        yield from families.values()

    def _forget_old(self) -> None:
        since = self._clock() - _MAX_AGE_S
        self._reports = {
            replica: (taken_at, report)
            for replica, (taken_at, report) in self._reports.items()
            if taken_at > since
        }


def _add_samples(family: Metric, reported: Metric, report: ReplicaMetrics) -> None:
    origin = {"replica": report.replica, "deployment": report.deployment}
    for sample in reported.samples:
        if not sample.name.endswith("_created"):
            family.add_sample(_replica_name(sample.name), sample.labels | origin, sample.value)


def _replica_name(name: str) -> str:
    return f"vivavoce_replica_{name.removeprefix('vivavoce_')}"
