"""Decoding, sampling and streaming of XTTS v2 against the stored answers of upstream."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the XTTS networks need torch: make test EXTRAS=dev,cosyvoice")

from golden.reference.check_folder import XTTS_CHECKS
from golden.reference.golden_config import read_config

DATA = Path(__file__).parent / "xtts_data"


@pytest.mark.parametrize("case", ["e_sampling", "f_latents", "h_stream"])
def test_every_stored_run_is_repeated(case: str) -> None:
    comparisons = list(XTTS_CHECKS[case](DATA))
    assert [comparison for comparison in comparisons if not comparison.passed] == []
    arrays = {name for name in read_config(DATA)["cases"][case]["arrays"] if not name.startswith("u_")}
    assert arrays <= {comparison.array for comparison in comparisons}
