"""What CosyVoice costs on two cores: language model, flow, vocoder, first packet, memory, beside upstream.

Every part runs in a process of its own, alone: a process that has measured one network holds its memory.
Idle threads wait without spinning there, which a process can be told only before it starts. Where a figure
says nothing else, seconds are processor seconds of all threads over two cores: the time on an idle machine.

Run as ``python -m vivavoce.gateway.bench.cosyvoice FOLDER PART`` it is such a process, and prints a JSON line
a figure.
"""

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from ...tts_engine.bundles import CheckedBundle, check_bundle, write_random_bundle
from ...tts_engine.cosyvoice_timings import Measured, Part, measure_part
from .apart import measured_apart, print_figures
from .report import Figure, Report

DEFAULT_PARTS = tuple(Part)
_RELEASED_BYTES = 1_000_000_000  # a bundle with less is a reduced one

# Of version 2 at the released size.
_AT_MOST: Mapping[str, float] = {
    "LM decode, context 120": 76,
    "flow, 30 s, total": 80,
    "flow, 30 s, last second against first": 2.7,
    "flow, 30 s, window 10 s, total": 50,
    "flow, 30 s, window 10 s, last second against first": 1.3,
    "first packet, 4 s of text": 5,
    "first packet, 4 s of text, by the clock": 5,
    "peak RSS, three networks, without flow state": 3.3,
}
# FunAudioLLM/CosyVoice@ace7c47 with the weights' released sizes, float32, on two cores of an AMD EPYC.
_UPSTREAM: Mapping[Part, tuple[Measured, ...]] = {
    Part.LM: (
        Measured("LM decode, context 120", 76, "ms/token"),
        Measured("LM decode, context 120, by the clock", 172, "ms/token"),
        Measured("LM decode, context 1,000, by the clock", 190, "ms/token"),
        Measured("LM prefill, context 120", 0.9, "s"),
        Measured("LM prefill, context 1,000", 6.3, "s"),
    ),
    Part.FLOW: (
        Measured("flow, 10 s, total", 45.7, "s"),
        Measured("flow, 30 s, total", 376, "s"),
        Measured("flow, 30 s, last second against first", 7.5, "x"),
    ),
    Part.WINDOW: (),
    Part.HIFT: (Measured("HiFT, 10 s, RTF", 0.28, ""),),
    Part.FIRST_AUDIO: (
        Measured("first packet, 4 s of text, by the clock", 15.0, "s"),
        Measured("RTF, end to end, by the clock", 8.7, ""),
    ),
    Part.MEMORY: (Measured("peak RSS, three networks", 3.7, "GB"),),
}


def measure(
    parts: Sequence[str] = DEFAULT_PARTS,
    *,
    size: str = "full",
    version: int = 2,
    bundle: Path | None = None,
    progress: Console | None = None,
) -> Report:
    """Measure a bundle, or one of random weights that is made for it; raises BundleError, BenchFailed."""
    console = progress or Console(stderr=True)
    with bundle_folder(bundle, size, version, console) as folder:
        checked = check_bundle(folder)
        figures: list[Figure] = []
        for part in map(Part, parts):
            with console.status(f"bench cosyvoice: {part}"):
                figures += [_figure(one) for one in _measured_apart(folder, part)]
        released = is_released(checked)
    if not released or checked.version != 2:
        figures = [replace(figure, at_most=None) for figure in figures]
    upstream = _upstream(parts) if released and checked.version == 2 else ()
    settings: dict[str, str | int] = {
        "version": checked.version,
        "weights": "of the bundle" if bundle else f"random, {size}",
        "precision": "float32",
        "threads": 2,
    }
    return Report("cosyvoice", (*figures, *upstream), settings)


def is_released(checked: CheckedBundle) -> bool:
    """Whether a bundle has the released size, which targets are of."""
    return sum(file.size_bytes for file in checked.files) > _RELEASED_BYTES


def _figure(measured: Measured) -> Figure:
    return Figure(measured.name, measured.value, measured.unit, at_most=_AT_MOST.get(measured.name))


def _upstream(parts: Sequence[str]) -> Iterator[Figure]:
    for part in map(Part, parts):
        for one in _UPSTREAM[part]:
            yield Figure(f"upstream: {one.name}", one.value, one.unit)


@contextlib.contextmanager
def bundle_folder(bundle: Path | None, size: str, version: int, console: Console) -> Iterator[Path]:
    """A bundle, or a folder of random weights that is gone afterwards."""
    if bundle is not None:
        yield bundle
        return
    with tempfile.TemporaryDirectory(prefix="vivavoce-") as folder:
        with console.status("bench cosyvoice: making random weights"):
            write_random_bundle(Path(folder), version, size, seed=7)
        yield Path(folder)


def _measured_apart(folder: Path, part: Part) -> list[Measured]:
    return measured_apart("vivavoce.gateway.bench.cosyvoice", part, [str(folder), part])


def main(arguments: Sequence[str]) -> int:
    """Measure one part of one folder; 0, or 1 after one sentence on stderr."""
    folder, part = arguments
    return print_figures(measure_part(Path(folder), Part(part)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
