"""The serve bench: what it makes of pieces and times, and one small run against a real server."""

from pathlib import Path

import numpy as np
import pytest

from vivavoce.adapters.client import SpeechPiece
from vivavoce.gateway.cli.bench.report import BenchReport
from vivavoce.gateway.cli.bench.serve import (
    RequestLoadOptions,
    RequestTimes,
    _audible_after_s,
    draw_waits,
    load_figures,
    max_in_flight,
    measure,
)
from vivavoce.tts_engine.chunk import SAMPLE_RATE


def heard(asked_at: float, *gaps_s: float, ended_at: float = 10.0, failure: str = "") -> RequestTimes:
    return RequestTimes(asked_at, 0.1, 0.12, 2.0, list(gaps_s), ended_at, failure)


def shown(report_figures: object) -> dict[str, float]:
    return {figure.name: figure.value for figure in report_figures}  # type: ignore[attr-defined]


def test_only_gaps_over_60_ms_are_underruns() -> None:
    assert heard(0, 0.01, 0.06).underruns == 0
    assert heard(0, 0.061, 0.5, 0.02).underruns == 2


def test_the_first_audible_sample_is_the_first_above_minus_50_dbfs() -> None:
    samples = np.zeros(SAMPLE_RATE, "<i2")
    samples[12_000:] = 103
    assert _audible_after_s(SpeechPiece(samples.tobytes(), ()), 1.0) is None
    samples[18_000:] = -104
    assert _audible_after_s(SpeechPiece(samples.tobytes(), ()), 1.0) == pytest.approx(1.75)


def test_failures_are_counted_by_kind_and_not_among_the_waits() -> None:
    table = shown(load_figures([heard(0), heard(1, 0.2), heard(2, failure="refused (streams)")], took_s=4.0))
    assert table["requests served"] == 2
    assert table["requests not served: refused (streams)"] == 1
    assert table["listeners with an underrun"] == table["underruns"] == 1
    assert table["speech made a second"] == 1.0
    assert table["first byte, p50"] == pytest.approx(100)


def test_when_nobody_was_served_there_are_no_waits() -> None:
    assert "first byte, p50" not in shown(load_figures([heard(0, failure="ServerUnavailable")], took_s=1.0))


def test_the_peak_is_of_those_under_way_at_once() -> None:
    assert max_in_flight([heard(0, ended_at=3), heard(1, ended_at=2), heard(2, ended_at=4)]) == 2
    assert max_in_flight([]) == 0


def test_a_plot_is_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "waits.png"
    draw_waits(
        [heard(0.0), heard(1.0, 0.5), heard(2.0, failure="ServerUnavailable")],
        RequestLoadOptions(1.0, 1, 3),
        file,
    )
    assert file.read_bytes().startswith(b"\x89PNG")


def test_a_server_is_listened_to_and_more_than_it_lets_in_is_counted_as_refused() -> None:
    report: BenchReport = measure(RequestLoadOptions(rate=50.0, max_streams=2, requests=8))
    table = shown(report.figures)
    refused = table.get("requests not served: refused (overloaded_streams)", 0)
    assert table["requests served"] + refused == 8
    assert refused > 0
    assert table["first byte, p50"] < table["first audible sample, p50"]
    assert table["peak in flight"] >= 3
