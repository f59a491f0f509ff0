"""Golden case g: features of speech, against what upstream's own front end computes."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from vivavoce.models.cosyvoice.front_end import features

GOLDEN = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def case() -> dict[str, NDArray[np.float32]]:
    with np.load(GOLDEN / "g_features.npz") as stored:
        return dict(stored)


def test_the_mel_of_version_2_ends_at_8_kilohertz(case: dict[str, NDArray[np.float32]]) -> None:
    mel = features.mel_spectrogram(case["wav24"][0], 8000)
    np.testing.assert_allclose(mel, case["mel24_v2"][0], atol=1e-4)


def test_the_mel_of_version_3_ends_at_half_the_rate(case: dict[str, NDArray[np.float32]]) -> None:
    mel = features.mel_spectrogram(case["wav24"][0], None)
    np.testing.assert_allclose(mel, case["mel24_v3"][0], atol=1e-4)


def test_whisper_features(case: dict[str, NDArray[np.float32]]) -> None:
    np.testing.assert_allclose(features.whisper_log_mel(case["wav16"][0]), case["whisper128"][0], atol=1e-4)


def test_kaldi_features_before_and_after_the_mean_is_taken_off(case: dict[str, NDArray[np.float32]]) -> None:
    # Upstream computes in float32, where nearly empty bands lose three digits before the logarithm.
    bank = features.kaldi_filter_bank(case["wav16"][0])
    np.testing.assert_allclose(bank, case["fbank80"], atol=5e-4)
    np.testing.assert_allclose(bank - bank.mean(axis=0), case["fbank80_cmn"], atol=5e-4)
    assert np.abs(bank - case["fbank80"]).mean() < 1e-5


@pytest.mark.parametrize(
    ("source", "target"), [(24_000, 16_000), (16_000, 24_000), (44_100, 24_000), (44_100, 16_000)]
)
def test_resampling(case: dict[str, NDArray[np.float32]], source: int, target: int) -> None:
    resampled = features.resample(case[f"wav{source // 1000}"][0], source, target)
    np.testing.assert_allclose(resampled, case[f"rs_{source // 1000}_{target // 1000}"][0], atol=1e-5)
