"""The error of scores in a precision: none in float32, some in fewer bits."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the XTTS networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from benches.xtts.score_error import measure_score_error
from shared.voices.tiny_xtts import write_tiny_xtts


def test_the_divergence_of_a_precision_is_measured(tmp_path: Path) -> None:
    folder = write_tiny_xtts(tmp_path / "tiny")
    errors = {}
    for precision in ("fp32", "bf16", "int8"):
        [figure] = measure_score_error(folder, precision)
        errors[precision] = figure.value
    assert abs(errors["fp32"]) < 1e-6
    assert 1e-6 < errors["int8"] < 0.01
    assert 1e-6 < errors["bf16"] < 0.01
