"""The mel with one float16 product in the flow instead of one of float32, for a voice that speaks."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the [cosyvoice] extra is not installed")

from benches.cosyvoice.flow_precision import relative_error, render_with_torch  # noqa: E402
from shared.runtimes.float16_products import (  # noqa: E402
    load_flow_with_float16_products,
    rounded_attention,
)
from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle  # noqa: E402
from vivavoce.models.cosyvoice.networks import load_flow  # noqa: E402

SMALL_VOICE = Path(__file__).parents[3] / "data" / "small_voice"


def test_the_mel_stays_within_a_thousandth_of_that_in_float32() -> None:
    bundle = open_bundle(SMALL_VOICE)
    exact, flow = render_with_torch(load_flow(bundle)), load_flow_with_float16_products(bundle)
    with rounded_attention():
        found = render_with_torch(flow)
    assert 1e-5 < relative_error(found, exact) < 1e-3  # 3.6e-4 on an EPYC with AVX-512
    assert np.abs(found - exact).max() < 0.01
