"""The flow of CosyVoice 2 and 3 against what upstream's own networks answered, and its noise against
upstream's.
"""

import hashlib
import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the [cosyvoice] extra is not installed")

from golden.reference import flow as reference_flow  # noqa: E402
from vivavoce.models.cosyvoice.flow.flow import NOISE_FRAMES, Flow  # noqa: E402

DATA = Path(__file__).parent / "data"
torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the golden vectors are not in this checkout")


@pytest.mark.parametrize("case", sorted(reference_flow.CASES))
def test_the_flow_answers_as_upstream_does(case: str) -> None:
    comparisons = list(reference_flow.CASES[case](DATA))
    assert comparisons
    assert [missed for missed in comparisons if not missed.passed] == []


def test_every_array_of_a_flow_case_is_compared_or_an_input() -> None:
    stated = json.loads((DATA / "config.json").read_text("utf-8"))["cases"]
    inputs = set(
        "xs x mu cond spks t mask mask_pad pl_x token prompt_token prompt_feat embedding n1 n2".split()
    )
    for case, compare in reference_flow.CASES.items():
        compared = {comparison.array for comparison in compare(DATA)}
        assert set(stated[case]["arrays"]) - inputs <= compared, case


def test_the_solver_starts_from_upstreams_noise() -> None:
    stored = reference_flow.read_arrays(DATA, "rand_noise")["rand_noise"]
    flow = Flow(reference_flow.stated_flow_config(DATA, 3))
    assert torch.equal(flow.noise(0, 800).T, stored[0])
    everything = flow.noise(0, NOISE_FRAMES).T.contiguous().numpy().tobytes()
    stated = json.loads((DATA / "config.json").read_text("utf-8"))["rand_noise"]["sha256"]
    assert hashlib.sha256(everything).hexdigest() == stated


def test_beyond_300_s_the_noise_goes_on_with_the_next_seed() -> None:
    flow = Flow(reference_flow.stated_flow_config(DATA, 3))
    across = flow.noise(NOISE_FRAMES - 2, 4)
    following = torch.randn(80, NOISE_FRAMES, generator=torch.Generator().manual_seed(1))
    assert torch.equal(across[2:], following[:, :2].T)
    assert torch.equal(across[:2], flow.noise(0, NOISE_FRAMES)[-2:])
