"""Both velocity estimators in steps: any split, rows in a batch, offsets of the solver time."""

import pytest

torch = pytest.importorskip("torch", reason="the [cosyvoice] extra is not installed")

from golden.reference.rule_weights import WeightRule, rule_weights  # noqa: E402
from vivavoce.models.cosyvoice.config import DitConfig, UnetConfig  # noqa: E402
from vivavoce.models.cosyvoice.flow.attention_plan import make_plan  # noqa: E402
from vivavoce.models.cosyvoice.flow.dit import FlowDit  # noqa: E402
from vivavoce.models.cosyvoice.flow.policy import CacheForm  # noqa: E402
from vivavoce.models.cosyvoice.flow.unet import FlowUnet  # noqa: E402
from vivavoce.models.networks.layers import load_weights  # noqa: E402

ROWS, LENGTH = 2, 123


def make_unet() -> FlowUnet:
    return FlowUnet(UnetConfig(channels=16, head_width=8, blocks=2, mid_blocks=1, heads=2))


def make_dit() -> FlowDit:
    return FlowDit(DitConfig(32, 2, 2, 16, 2))


@pytest.fixture(params=[make_unet, make_dit], ids=["unet", "dit"])
def network(request: pytest.FixtureRequest) -> FlowUnet | FlowDit:
    made: FlowUnet | FlowDit = request.param()
    prefix = "decoder.estimator."
    shapes = {prefix + key: tuple(tensor.shape) for key, tensor in made.state_dict().items()}
    drawn = rule_weights(shapes, WeightRule()).items()
    load_weights(made, {key.removeprefix(prefix): torch.from_numpy(value) for key, value in drawn})
    return made


def random_inputs(rows: int = ROWS) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, LENGTH, 80, generator=generator), torch.randn(
        rows, LENGTH, 240, generator=generator
    )


def velocity(
    network: FlowUnet | FlowDit, edges: tuple[int, ...], cache_form: CacheForm, rows: int = ROWS
) -> torch.Tensor:
    x, conditions = random_inputs(rows)
    offsets = network.time_offsets(torch.tensor([0.3]))
    state = network.init_state(rows, LENGTH, cache_form, torch.float32)
    pieces, begin = [], 0
    with torch.inference_mode():
        for end in (*edges, LENGTH):
            plan = make_plan([begin] * rows, end - begin, block=50, capacity=LENGTH)
            inputs = (x[:, begin:end], conditions[:, begin:end], offsets)
            piece, state = network.step(*inputs, state, plan, cache_form)  # type: ignore[arg-type]
            pieces.append(piece)
            begin = end
    return torch.cat(pieces, 1)


@pytest.mark.parametrize("edges", [(50,), (100,), (50, 100)])
@pytest.mark.parametrize("cache_form", list(CacheForm))
def test_any_split_gives_the_velocity_of_all_frames_at_once(
    network: FlowUnet | FlowDit, edges: tuple[int, ...], cache_form: CacheForm
) -> None:
    assert torch.allclose(velocity(network, edges, cache_form), velocity(network, (), cache_form), atol=1e-5)


def test_both_forms_of_memory_give_the_same_velocity(network: FlowUnet | FlowDit) -> None:
    from_keys_values, from_inputs = (velocity(network, (50, 100), cache_form) for cache_form in CacheForm)
    assert torch.allclose(from_keys_values, from_inputs, atol=1e-5)


def test_a_frame_depends_on_its_block_and_nothing_after_it(network: FlowUnet | FlowDit) -> None:
    x, conditions = random_inputs()
    offsets = network.time_offsets(torch.tensor([0.3]))
    changed = x.clone()
    changed[:, 100] += 1
    plan = make_plan([0] * ROWS, LENGTH, block=50, capacity=LENGTH)
    velocities = [
        network.step(
            inputs,
            conditions,
            offsets,
            network.init_state(ROWS, LENGTH, CacheForm.KEYS_VALUES, torch.float32),  # type: ignore[arg-type]
            plan,
            CacheForm.KEYS_VALUES,
        )[0]
        for inputs in (x, changed)
    ]
    changed_frames = (velocities[0] - velocities[1]).abs().amax((0, 2)) > 1e-6
    assert not changed_frames[:100].any()
    assert changed_frames[100:].all()


def test_each_solver_time_has_its_own_offsets(network: FlowUnet | FlowDit) -> None:
    together = network.time_offsets(torch.tensor([0.1, 0.7]))
    for row, time in enumerate((0.1, 0.7)):
        assert torch.allclose(together[row], network.time_offsets(torch.tensor([time]))[0], atol=1e-5)
    assert not torch.allclose(together[0], together[1], atol=1e-3)
