"""Metrics of the processes of a server and of its graphics cards, read when they are asked for.

The server's own process has the names that every Prometheus client gives (``process_*``). Those that it
started, and the cards, which need the package ``nvidia-ml-py`` and NVIDIA's driver, have names of ours.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..calls.pressure.processor_time import process_s

_CARD_LABELS: Final = ["card", "name"]
_CARD_METRICS: Final = (
    ("vivavoce_gpu_memory_used_bytes", "Memory in use on a card."),
    ("vivavoce_gpu_memory_bytes", "Memory of a card."),
    ("vivavoce_gpu_busy_ratio", "Part of the last second that a card computed."),
)


class ChildProcesses(Collector):
    """Processor time and memory of the processes that play and render speech, all of a kind together."""

    def __init__(self, pids: Callable[[], dict[str, tuple[int, ...]]]) -> None:
        """pids: returns those of each kind, such as "media"."""
        self._pids = pids

    def collect(self) -> Iterator[Metric]:
        """Read the values."""
        seconds = CounterMetricFamily(
            "vivavoce_child_cpu_seconds", "Processor seconds of the processes of a kind.", labels=["process"]
        )
        memory = GaugeMetricFamily(
            "vivavoce_child_resident_memory_bytes", "Memory of the processes of a kind.", labels=["process"]
        )
        for kind, pids in self._pids().items():
            seconds.add_metric([kind], sum(map(process_s, pids)))
            memory.add_metric([kind], sum(map(_resident_bytes, pids)))
        yield seconds
        yield memory


class GraphicsCards(Collector):
    """Memory and use of the cards of this machine; ``nvml`` is the module ``pynvml``."""

    def __init__(self, nvml: Any) -> None:
        nvml.nvmlInit()
        self._nvml = nvml

    def collect(self) -> Iterator[Metric]:
        """Read the values; one that a card does not tell is left out, such as the use of a MIG part."""
        nvml = self._nvml
        used, total, busy = (
            GaugeMetricFamily(name, meaning, labels=_CARD_LABELS) for name, meaning in _CARD_METRICS
        )
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                card = nvml.nvmlDeviceGetHandleByIndex(index)
                labels = [str(index), str(nvml.nvmlDeviceGetName(card))]
                memory = nvml.nvmlDeviceGetMemoryInfo(card)
                used.add_metric(labels, memory.used)
                total.add_metric(labels, memory.total)
                busy.add_metric(labels, nvml.nvmlDeviceGetUtilizationRates(card).gpu / 100)
            except nvml.NVMLError:
                continue
        yield from (used, total, busy)


@contextmanager
def process_metrics(
    registry: CollectorRegistry, pids: Callable[[], dict[str, tuple[int, ...]]]
) -> Iterator[None]:
    """Show the metrics of the processes, and of the cards if any can be asked, inside the context."""
    collectors = [ProcessCollector(registry=None), ChildProcesses(pids), *graphics_cards()]
    for collector in collectors:
        registry.register(collector)
    try:
        yield
    finally:
        for collector in collectors:
            registry.unregister(collector)


def graphics_cards() -> list[GraphicsCards]:
    """Return what reads the cards; nothing if none can be asked."""
    try:
        import pynvml
    except ImportError:
        return []
    try:
        return [GraphicsCards(pynvml)]
    except pynvml.NVMLError:  # no driver, or no card
        return []


def _resident_bytes(pid: int) -> int:
    """Return the memory of a process; 0 if it has ended, and without /proc."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
