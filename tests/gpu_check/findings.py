"""What the check of a card is told, what it finds, and the time that work on a device takes."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The card to check, and with what."""

    device: str  # "cuda", "cuda:N" or "cpu"
    out: Path  # folder of the results, and of the random bundle
    is_quick: bool = False  # a tiny bundle and few rounds, to try the steps

    @property
    def torch_device(self) -> torch.device:
        """The device by torch's name."""
        return torch.device(self.device)

    @property
    def bundle(self) -> Path:
        """Folder of the random bundle that the step ``bundle`` writes."""
        return self.out / "bundle"


@dataclass(frozen=True, slots=True)
class Finding:
    """A figure, or a word such as a version or a reason. unit: "" for a count, a ratio or a word."""

    name: str
    value: float | str
    unit: str = ""

    def __str__(self) -> str:
        value = self.value if isinstance(self.value, str) else f"{self.value:,.4g}"
        return f"{self.name}: {value} {self.unit}".rstrip()


def synchronize(device: torch.device) -> None:
    """Wait for all work on a GPU; nothing on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def median_s(work: Callable[[], object], device: torch.device, rounds: int) -> float:
    """Median seconds of some work until the device has done it, after one round that is not counted."""
    times = []
    for _ in range(rounds + 1):
        synchronize(device)
        began = time.perf_counter()
        work()
        synchronize(device)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def as_known(findings: AsyncIterator[Finding]) -> Iterator[Finding]:
    """Findings of asynchronous work, each as soon as it is known."""
    with asyncio.Runner() as runner:
        while (finding := runner.run(_next(findings))) is not None:
            yield finding


async def _next(findings: AsyncIterator[Finding]) -> Finding | None:
    return await anext(findings, None)
