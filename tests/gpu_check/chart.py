"""Draws first audio and audio seconds a second against the number of streams, of the step ``streams``."""

import re
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from gpu_check.findings import Finding

CHART_FILE = "gpu-check.png"
_OF_STREAMS = re.compile(r"(\d+) streams?, (first audio, p50|first audio, p95|audio seconds a second)")


def draw_chart(findings: Iterable[Finding], path: Path) -> str:
    """Write the PNG; returns a line that says so, or why not."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for finding in findings:
        if (found := _OF_STREAMS.fullmatch(finding.name)) and not isinstance(finding.value, str):
            lines.setdefault(found[2], []).append((int(found[1]), finding.value))
    if not lines:
        return f"{path.name}: not drawn, no stream was measured"
    if find_spec("matplotlib") is None:
        return f"{path.name}: not drawn, matplotlib is not installed"
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6), layout="constrained")
    above, below = figure.subplots(2, sharex=True)
    for name, points in lines.items():
        axes = below if "seconds" in name else above
        axes.plot(*zip(*points, strict=True), marker="o", label=name)
    above.set_ylabel("ms")
    below.set_ylabel("audio s a second")
    below.set_xlabel("streams")
    below.set_xscale("log", base=2)
    for axes in (above, below):
        axes.legend()
    figure.savefig(path)
    return f"{path}: drawn"
