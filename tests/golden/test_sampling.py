"""The sampling rule against 240 draws of upstream: golden case f_ras."""

from pathlib import Path

import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from golden.reference.sampling import check_sampling  # noqa: E402

DATA = Path(__file__).parent / "data"


def test_every_draw_of_the_trace_is_repeated() -> None:
    comparisons = list(check_sampling(DATA))
    assert {comparison.array for comparison in comparisons} == {
        "ids",
        "fallback",
        "n_candidates",
        "n_uniforms_used",
    }
    assert [comparison for comparison in comparisons if not comparison.passed] == []
