"""A registry with every metric of a gateway of a cluster on a machine with a card."""

from types import SimpleNamespace

from prometheus_client import CollectorRegistry, ProcessCollector

from vivavoce.gateway.cluster.replicas.cluster_metrics import ClusterMetrics, queue_families, replica_families
from vivavoce.gateway.cluster.replicas.messages import ReplicaMetrics
from vivavoce.gateway.operation.process_metrics import ChildProcesses, GraphicsCards
from vivavoce.tts_engine.metrics import Metrics

_CARD = SimpleNamespace(
    NVMLError=RuntimeError,
    nvmlInit=lambda: None,
    nvmlDeviceGetCount=lambda: 1,
    nvmlDeviceGetHandleByIndex=lambda index: index,
    nvmlDeviceGetName=lambda card: "a card",
    nvmlDeviceGetMemoryInfo=lambda card: SimpleNamespace(used=1, total=2),
    nvmlDeviceGetUtilizationRates=lambda card: SimpleNamespace(gpu=1),
)


def every_metric() -> CollectorRegistry:
    """Return the registry; a metric with labels has one value."""
    metrics = Metrics()
    for counter in (metrics.refusals, metrics.steps, metrics.active_requests, metrics.first_byte):
        counter.labels("a label")
    metrics.request_characters.labels("an api", "a key")
    metrics.request_audio_seconds.labels("an api", "a key")
    metrics.requests.labels("an api", "a key", "ok")
    cluster = ClusterMetrics(metrics.registry)
    others = (*queue_families(0, 0.0), *GraphicsCards(_CARD).collect())
    cluster.take([ReplicaMetrics("a replica", "voice", replica_families(metrics, *others))])
    ProcessCollector(registry=metrics.registry)
    metrics.registry.register(ChildProcesses(lambda: {"media": (), "voice": ()}))
    metrics.registry.register(GraphicsCards(_CARD))
    return metrics.registry
