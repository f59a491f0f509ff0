"""Features of recorded speech against those of upstream's front end: golden case g_features."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from golden.reference.comparison import read_arrays  # noqa: E402
from golden.reference.features import check_features  # noqa: E402
from vivavoce.models.cosyvoice.front_end import features  # noqa: E402

DATA = Path(__file__).parent / "data"


def test_every_feature_is_that_of_upstream() -> None:
    comparisons = list(check_features(DATA))
    assert [comparison for comparison in comparisons if not comparison.passed] == []
    stored = set(read_arrays(DATA, "g_features")) - {"wav16", "wav24", "wav44"}
    assert {comparison.array for comparison in comparisons} == stored


def test_the_filter_bank_is_that_of_upstream_on_average() -> None:
    arrays = read_arrays(DATA, "g_features")
    bank = features.kaldi_filter_bank(arrays["wav16"][0].numpy())
    assert np.abs(bank - arrays["fbank80"].numpy()).mean() < 1e-5
