"""Processor and wall-clock time of a block of code."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

THREADS = 2  # that torch computes on, and over which processor time is divided


@dataclass(frozen=True, slots=True)
class MeasuredTime:
    """Time of a block."""

    cpu_s: float  # processor seconds of all threads / THREADS: the wall-clock time on an idle machine
    wall_s: float


class Stopwatch:
    """Measures a ``with`` block; the result is in ``elapsed``."""

    def __enter__(self) -> "Stopwatch":
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        cpu_s = (time.process_time() - self._cpu) / THREADS
        self.elapsed = MeasuredTime(cpu_s, time.perf_counter() - self._wall)


def median_time(times: Sequence[MeasuredTime]) -> MeasuredTime:
    """Median of processor time and of wall-clock time, each by itself."""
    return MeasuredTime(
        statistics.median(lap.cpu_s for lap in times), statistics.median(lap.wall_s for lap in times)
    )
