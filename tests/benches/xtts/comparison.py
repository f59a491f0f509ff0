"""XTTS v2 beside its upstream: ids, the first chunk, the vocoder and memory, each in a process of its own.

Both have the released sizes and random weights, two threads and float32. Times are processor seconds of all
threads over two cores, the wall-clock time of an idle machine. Memory is resident, at the end of the work.
The baseline needs transformers 4.57 in the environment.
"""

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benches.cosyvoice.bench_process import measure_in_process, print_figures
from benches.cosyvoice.stopwatch import THREADS, Stopwatch, median_time
from vivavoce.gateway.cli.bench.report import BenchFailed, BenchFigure, BenchReport
from vivavoce.models.devices.execution import Precision

MODULE = "benches.xtts.comparison"
SCORE_ERROR = "benches.xtts.score_error"
_CHUNK_IDS = 20  # upstream's stream_chunk_size
_CONTEXT, _LATENTS, _IDS = 100, 215, 24
_ID, _CHUNK = f"GPT, an id at context {_CONTEXT}", f"first chunk of {_CHUNK_IDS} ids"
_OFFLINE, _STREAMED = "vocoder, 10 s at once", "vocoder, 10 s streamed"
_MEMORY = "resident memory"
_TARGETS = {_ID: 0.7, _CHUNK: 0.6, _MEMORY: 1.0}  # at most, of upstream's


def measure(folder: Path, precision: str = "fp32") -> BenchReport:
    """Measure a bundle of the full size, and the baseline in float32. Raises BenchFailed."""
    if importlib.util.find_spec("transformers") is None:
        raise BenchFailed("the baseline needs transformers: pip install 'transformers>=4.57,<4.58'")
    with Console(stderr=True).status("bench xtts"):
        ours, upstream = (
            {figure.name: figure for figure in measure_in_process(MODULE, folder, part)}
            for part in (precision, "upstream")
        )
    figures = []
    for name, figure in ours.items():
        figures.append(replace(figure, name=f"{name}, ours"))
        if name in upstream:
            figures.append(replace(upstream[name], name=f"{name}, upstream"))
            share = figure.value / upstream[name].value
            target = _TARGETS.get(name)
            figures.append(BenchFigure(f"{name}, ours against upstream", share, "x", at_most=target))
    if precision != Precision.FP32:
        figures += measure_in_process(SCORE_ERROR, folder, precision)
    cost = ours[_STREAMED].value / ours[_OFFLINE].value
    figures.append(BenchFigure("vocoder, streamed against at once", cost, "x", at_most=1.1))
    return BenchReport("xtts", tuple(figures), {"precision": precision, "threads": THREADS})


def _median_cpu_s(work: Callable[[], object], times: int) -> float:
    """Processor seconds of a call over two cores; the first call warms up and is left out."""
    laps = []
    for _ in range(times + 1):
        with Stopwatch() as watch:
            work()
        laps.append(watch.elapsed)
    return median_time(laps[1:]).cpu_s


def _resident_memory() -> BenchFigure:
    status = Path("/proc/self/status").read_text()
    kilobytes = int(status.partition("VmRSS:")[2].split()[0])
    return BenchFigure(_MEMORY, kilobytes * 1024 / 1e9, "GB")


def measure_upstream(folder: Path) -> Iterator[BenchFigure]:
    """The baseline's figures; it reads as many columns as the bundle's first chunk."""
    import torch

    from benches.xtts.upstream_networks import UpstreamGpt, UpstreamVocoder, other_weights
    from vivavoce.models.xtts.config import XttsConfig
    from vivavoce.tts_engine.xtts.benchmark import first_chunk_columns

    torch.set_num_threads(THREADS)
    config = XttsConfig()
    gpt, vocoder, rest = UpstreamGpt(config).eval(), UpstreamVocoder(config).eval(), other_weights()
    prefix = torch.randn(1, _CONTEXT, config.gpt.hidden)
    speaker = torch.randn(1, config.vocoder.speaker_width, 1)
    one = _median_cpu_s(lambda: gpt.generate(prefix, 1), 2)
    many = _median_cpu_s(lambda: gpt.generate(prefix, 1 + _IDS), 2)
    yield BenchFigure(_ID, 1000 * (many - one) / _IDS, "ms")
    latents = [torch.randn(1, config.gpt.hidden) for _ in range(_LATENTS)]
    text = torch.randn(1, first_chunk_columns(folder), config.gpt.hidden)
    chunk_s = _median_cpu_s(lambda: vocoder(gpt.generate(text, _CHUNK_IDS), speaker), 2)
    yield BenchFigure(_CHUNK, chunk_s, "s")
    yield _resident_memory()
    yield BenchFigure(_OFFLINE, _median_cpu_s(lambda: vocoder(latents, speaker), 1), "s")
    stops = (*range(_CHUNK_IDS, _LATENTS, _CHUNK_IDS), _LATENTS)
    streamed_s = _median_cpu_s(lambda: [vocoder(latents[:stop], speaker) for stop in stops], 1)
    yield BenchFigure(_STREAMED, streamed_s, "s")
    del rest


def measure_ours(folder: Path, precision: str) -> Iterator[BenchFigure]:
    """The figures of a bundle."""
    import torch

    from vivavoce.tts_engine.xtts.benchmark import XttsBenchmarkSize, measure_xtts

    torch.set_num_threads(THREADS)
    size = XttsBenchmarkSize(context=_CONTEXT, latents=_LATENTS)
    timings = measure_xtts(folder, "cpu", size, lambda: time.process_time() / THREADS, precision)
    yield BenchFigure(_ID, 1000 * timings.id_s, "ms")
    yield BenchFigure(_CHUNK, timings.first_chunk_s, "s")
    yield BenchFigure(_OFFLINE, timings.offline_s, "s")
    yield BenchFigure(_STREAMED, timings.streamed_s, "s")
    gain = size.sessions * timings.id_s / timings.batched_id_s
    yield BenchFigure(f"{size.sessions} sessions in one step against one by one", gain, "x", at_least=3)
    yield BenchFigure(_MEMORY, timings.resident_bytes / 1e9, "GB")
    yield BenchFigure("memory at its highest", timings.peak_bytes / 1e9, "GB")


if __name__ == "__main__":
    bundle, part = sys.argv[1:]
    sys.exit(
        print_figures(
            measure_upstream(Path(bundle)) if part == "upstream" else measure_ours(Path(bundle), part)
        )
    )
