"""Metrics of processes, of this test's own, and of cards of a stand-in for NVML."""

import os
import subprocess
import sys
from types import SimpleNamespace

from prometheus_client import CollectorRegistry

from vivavoce.gateway.operation.process_metrics import GraphicsCards, process_metrics


class NVMLError(Exception):
    """As in pynvml."""


def _use(card: int) -> SimpleNamespace:
    if card == 2:
        raise NVMLError("a MIG part has no such figure")
    return SimpleNamespace(gpu=75)


NVML = SimpleNamespace(
    NVMLError=NVMLError,
    nvmlInit=lambda: None,
    nvmlDeviceGetCount=lambda: 3,
    nvmlDeviceGetHandleByIndex=lambda index: index,
    nvmlDeviceGetName=lambda card: f"card {card}",
    nvmlDeviceGetMemoryInfo=lambda card: SimpleNamespace(used=1000 + card, total=5000),
    nvmlDeviceGetUtilizationRates=_use,
)


def test_the_processes_that_serve_beside_the_server_are_measured() -> None:
    registry = CollectorRegistry()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        pids = {"media": (child.pid, os.getpid()), "voice": ()}
        with process_metrics(registry, lambda: pids):
            memory = "vivavoce_child_resident_memory_bytes"
            assert (registry.get_sample_value(memory, {"process": "media"}) or 0) > 10_000_000
            assert registry.get_sample_value(memory, {"process": "voice"}) == 0
            seconds = registry.get_sample_value("vivavoce_child_cpu_seconds_total", {"process": "media"})
            assert (seconds or 0) > 0.1
            assert (registry.get_sample_value("process_resident_memory_bytes") or 0) > 10_000_000
            child.communicate(b"\n")
    assert list(registry.collect()) == []


def test_the_memory_and_use_of_each_card_are_shown() -> None:
    registry = CollectorRegistry()
    registry.register(GraphicsCards(NVML))
    labels = {"card": "1", "name": "card 1"}
    assert registry.get_sample_value("vivavoce_gpu_memory_used_bytes", labels) == 1001
    assert registry.get_sample_value("vivavoce_gpu_memory_bytes", labels) == 5000
    assert registry.get_sample_value("vivavoce_gpu_busy_ratio", labels) == 0.75


def test_a_card_that_does_not_tell_its_use_still_tells_its_memory() -> None:
    registry = CollectorRegistry()
    registry.register(GraphicsCards(NVML))
    labels = {"card": "2", "name": "card 2"}
    assert registry.get_sample_value("vivavoce_gpu_memory_used_bytes", labels) == 1002
    assert registry.get_sample_value("vivavoce_gpu_busy_ratio", labels) is None
