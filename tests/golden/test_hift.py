"""The vocoders of CosyVoice 2 and 3, and ids to samples, against what upstream's own networks answered."""

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the [cosyvoice] extra is not installed")

from golden.reference import vocoder as reference_hift_v2  # noqa: E402
from vivavoce.models.cosyvoice.lm.silence_filter import SilenceFilter  # noqa: E402

DATA = Path(__file__).parent / "data"
torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the golden vectors are not in this checkout")


@pytest.mark.parametrize("case", sorted(reference_hift_v2.CASES))
def test_the_vocoder_answers_as_upstream_does(case: str) -> None:
    comparisons = list(reference_hift_v2.CASES[case](DATA))
    assert comparisons
    assert [missed for missed in comparisons if not missed.passed] == []


@pytest.mark.parametrize("case", sorted(reference_hift_v2.CASES))
def test_every_array_is_compared_or_an_input(case: str) -> None:
    stated = json.loads((DATA / "config.json").read_text("utf-8"))["cases"][case]["arrays"]
    compared = {comparison.array for comparison in reference_hift_v2.CASES[case](DATA)}
    inputs = {"mel", "noise", "noise_abs", "cache_source", "stft_real", "stft_imag"}
    assert set(stated) - inputs <= compared


def test_long_silences_are_shortened_as_upstream_does() -> None:
    stated = json.loads((DATA / "v3_silent_filter.json").read_text("utf-8"))
    silent, longest = frozenset(stated["silent_tokens"]), stated["max_consecutive_kept"]
    for case in stated["cases"]:
        assert list(SilenceFilter(silent, longest).push(case["inp"])) == case["out"]
        pieces = SilenceFilter()
        assert [kept for speech_id in case["inp"] for kept in pieces.push([speech_id])] == case["out"]
