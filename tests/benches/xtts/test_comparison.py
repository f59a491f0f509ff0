"""The comparison of XTTS with its upstream: shares of figures, and targets."""

import importlib.util
from pathlib import Path

import pytest

from benches.xtts import comparison
from vivavoce.gateway.cli.bench.report import BenchFailed, BenchFigure

NAMES = (
    "GPT, an id at context 100",
    "first chunk of 20 ids",
    "vocoder, 10 s at once",
    "vocoder, 10 s streamed",
)


def test_the_figures_of_both_become_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(module: str, folder: Path, part: str) -> list[BenchFigure]:
        values = (40.0, 2.0, 4.0, 4.2) if part == "fp32" else (80.0, 2.5, 5.0, 20.0)
        return [BenchFigure(name, value, "s") for name, value in zip(NAMES, values, strict=True)]

    monkeypatch.setattr(comparison, "measure_in_process", measured)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    figures = {figure.name: figure for figure in comparison.measure(Path("bundle")).figures}
    assert figures[f"{NAMES[0]}, ours against upstream"].value == 0.5
    assert figures[f"{NAMES[0]}, ours against upstream"].reached is True
    assert figures[f"{NAMES[1]}, ours against upstream"].reached is False
    assert figures[f"{NAMES[3]}, ours against upstream"].reached is None
    assert figures["vocoder, streamed against at once"].value == pytest.approx(1.05)


def test_the_baseline_needs_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BenchFailed, match="pip install"):
        comparison.measure(Path("bundle"))
