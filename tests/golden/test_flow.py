"""The flow of CosyVoice 2 and 3 against the stored answers of upstream's networks, and its initial noise."""

import hashlib
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the [cosyvoice] extra is not installed")

from golden.reference.check_folder import CHECKS  # noqa: E402
from golden.reference.comparison import read_arrays  # noqa: E402
from golden.reference.golden_config import read_config, read_network_config  # noqa: E402
from vivavoce.models.cosyvoice.config import CosyVoiceVersion  # noqa: E402
from vivavoce.models.cosyvoice.flow.flow import Flow  # noqa: E402
from vivavoce.models.cosyvoice.flow.streaming_flow import NOISE_FRAMES  # noqa: E402

DATA = Path(__file__).parent / "data"
CASES = ("a_encoder", "b_cfm", "b_estimator", "c_flow", "v3_dit", "v3_flow")
INPUTS = set("xs x mu cond spks t mask mask_pad pl_x token prompt_token prompt_feat embedding n1 n2".split())


@pytest.mark.parametrize("case", CASES)
def test_every_array_of_a_case_is_an_input_or_that_of_upstream(case: str) -> None:
    comparisons = list(CHECKS[case](DATA))
    assert [comparison for comparison in comparisons if not comparison.passed] == []
    compared = {comparison.array for comparison in comparisons}
    assert set(read_config(DATA)["cases"][case]["arrays"]) - INPUTS <= compared


def make_flow() -> Flow:
    return Flow(read_network_config(DATA, CosyVoiceVersion.V3).flow)


def test_the_solver_starts_from_upstreams_noise() -> None:
    flow, stored = make_flow(), read_arrays(DATA, "rand_noise")["rand_noise"]
    assert torch.equal(flow.noise(0, 800).T, stored[0])
    whole = flow.noise(0, NOISE_FRAMES).T.contiguous().numpy().tobytes()
    assert hashlib.sha256(whole).hexdigest() == read_config(DATA)["rand_noise"]["sha256"]
    assert all(comparison.passed for comparison in CHECKS["rand_noise"](DATA))


def test_after_300_s_the_noise_continues_with_the_next_seed() -> None:
    flow = make_flow()
    across = flow.noise(NOISE_FRAMES - 2, 4)
    following = torch.randn(80, NOISE_FRAMES, generator=torch.Generator().manual_seed(1))
    assert torch.equal(across[2:], following[:, :2].T)
    assert torch.equal(across[:2], flow.noise(0, NOISE_FRAMES)[-2:])
