"""What CosyVoice costs on two cores: language model, flow, vocoder, first packet, memory, beside upstream.

Every part runs in a process of its own, alone: a process that has measured one network holds its memory.
Idle threads wait without spinning there, which a process can be told only before it starts. Where a figure
says nothing else, seconds are processor seconds of all threads over two cores: the time on an idle machine.

Run as ``python -m benches.cosyvoice.components FOLDER PART`` it is such a process, and prints a JSON line
a figure.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from benches.cosyvoice.component_timings import MeasuredPart, measure_part
from benches.cosyvoice.measuring_process import measure_in_process, print_measurements
from vivavoce.gateway.cli.bench.bundle_weights import BenchWeights, FigureTargets, is_released
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.tts_engine.bundles import check_bundle
from vivavoce.tts_engine.cosyvoice.device_timings import Measurement

_MODULE = "benches.cosyvoice.components"

# Of version 2 at the released size.
_TARGETS = FigureTargets(
    at_most={
        "LM decode, context 120": 76,
        "flow, 30 s, total": 80,
        "flow, 30 s, last second against first": 2.7,
        "flow, 30 s, window 10 s, total": 50,
        "flow, 30 s, window 10 s, last second against first": 1.3,
        "first packet, 4 s of text": 5,
        "first packet, 4 s of text, by the clock": 5,
        "peak RSS, three networks, without flow state": 3.3,
    }
)
# FunAudioLLM/CosyVoice@ace7c47 with the weights' released sizes, float32, on two cores of an AMD EPYC.
_UPSTREAM: Mapping[MeasuredPart, tuple[Measurement, ...]] = {
    MeasuredPart.LM: (
        Measurement("LM decode, context 120", 76, "ms/token"),
        Measurement("LM decode, context 120, by the clock", 172, "ms/token"),
        Measurement("LM decode, context 1,000, by the clock", 190, "ms/token"),
        Measurement("LM prefill, context 120", 0.9, "s"),
        Measurement("LM prefill, context 1,000", 6.3, "s"),
    ),
    MeasuredPart.FLOW: (
        Measurement("flow, 10 s, total", 45.7, "s"),
        Measurement("flow, 30 s, total", 376, "s"),
        Measurement("flow, 30 s, last second against first", 7.5, "x"),
    ),
    MeasuredPart.WINDOW: (),
    MeasuredPart.HIFT: (Measurement("HiFT, 10 s, RTF", 0.28, ""),),
    MeasuredPart.FIRST_AUDIO: (
        Measurement("first packet, 4 s of text, by the clock", 15.0, "s"),
        Measurement("RTF, end to end, by the clock", 8.7, ""),
    ),
    MeasuredPart.MEMORY: (Measurement("peak RSS, three networks", 3.7, "GB"),),
}


def measure(parts: Sequence[str], weights: BenchWeights) -> BenchReport:
    """Measure parts of them; raises BundleError, BenchFailed."""
    measured: list[Measurement] = []
    with weights.folder() as folder:
        checked = check_bundle(folder)
        for part in parts:
            with Console(stderr=True).status(f"bench cosyvoice: {part}"):
                measured += measure_in_process(_MODULE, folder, part)
    comparable = is_released(checked) and checked.version == 2
    figures = (_TARGETS if comparable else FigureTargets()).figures(measured)
    upstream = _upstream_figures(parts) if comparable else ()
    return BenchReport(
        "cosyvoice",
        (*figures, *upstream),
        {"version": checked.version, "weights": str(weights), "precision": "float32", "threads": 2},
    )


def _upstream_figures(parts: Sequence[str]) -> Iterator[BenchFigure]:
    for part in map(MeasuredPart, parts):
        for one in _UPSTREAM[part]:
            yield BenchFigure(f"upstream: {one.name}", one.value, one.unit)


def main(arguments: Sequence[str]) -> int:
    """Measure one part of one folder; 0, or 1 after one sentence on stderr."""
    folder, part = arguments
    return print_measurements(measure_part(Path(folder), MeasuredPart(part)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
