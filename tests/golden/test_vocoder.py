"""The vocoders of CosyVoice 2 and 3, and speech ids to samples, against the stored answers of upstream."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the [cosyvoice] extra is not installed")

from golden.reference.check_folder import CHECKS  # noqa: E402
from golden.reference.comparison import read_rows  # noqa: E402
from golden.reference.golden_config import read_config  # noqa: E402
from vivavoce.models.cosyvoice.lm.sampling import SilenceFilter  # noqa: E402

DATA = Path(__file__).parent / "data"
CASES = ("d_hift", "j_tts", "v3_hift", "v3_j_tts")
INPUTS = {"mel", "noise", "noise_abs", "cache_source", "stft_real", "stft_imag"}


@pytest.mark.parametrize("case", CASES)
def test_every_array_of_a_case_is_an_input_or_that_of_upstream(case: str) -> None:
    comparisons = list(CHECKS[case](DATA))
    assert [comparison for comparison in comparisons if not comparison.passed] == []
    compared = {comparison.array for comparison in comparisons}
    assert set(read_config(DATA)["cases"][case]["arrays"]) - INPUTS <= compared


def test_long_silences_are_shortened_as_upstream_does() -> None:
    assert [check for check in CHECKS["v3_silent_filter"](DATA) if not check.passed] == []
    for case in read_rows(DATA, "v3_silent_filter")["cases"]:
        default = SilenceFilter()
        assert [kept for id in case["inp"] for kept in default.push([id])] == case["out"]
