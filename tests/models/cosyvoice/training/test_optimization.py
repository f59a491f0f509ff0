"""The optimizer's settings: warm-up, clipping, accumulation, averaged weights and bfloat16."""

from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the [train] extra is not installed")

from safetensors.torch import load_file  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from shared.training.made_up_dataset import ABOUT, made_up_utterance, random_part  # noqa: E402
from shared.training.short_run import SETTINGS, train  # noqa: E402
from vivavoce.models.cosyvoice.training import bundle_parts  # noqa: E402
from vivavoce.models.cosyvoice.training.dataset import DatasetWriter, TrainingDataset  # noqa: E402
from vivavoce.models.cosyvoice.training.loop.optimization import TrainingOptimizer  # noqa: E402
from vivavoce.models.devices.execution import DeviceError  # noqa: E402

SMALL = replace(SETTINGS, learning_rate=0.1, warmup_steps=4, clip_norm=5.0, averaging=0.9)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> TrainingDataset:
    """Ten utterances of 60 mel frames."""
    folder = tmp_path_factory.mktemp("dataset")
    writer = DatasetWriter(folder, ABOUT)
    for number in range(10):
        writer.add(made_up_utterance(number, ids=30))
    writer.flush()
    return TrainingDataset(folder)


def small_network() -> nn.Linear:
    network = nn.Linear(3, 1, bias=False)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[1.0, 2.0, 3.0]]))
    return network


def step(optimizer: TrainingOptimizer, number: int, gradient: Tensor, count: int = 1) -> float:
    optimizer.parameters["weight"].grad = gradient.clone()
    return optimizer.step(number, count)


def test_the_rate_rises_evenly_and_is_the_one_of_the_step() -> None:
    network = small_network()
    optimizer = TrainingOptimizer(network, SMALL)
    rates = [optimizer.learning_rate(number) for number in range(6)]
    assert rates == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])
    for rate in rates:  # with equal gradients, a step of Adam is the rate
        before = network.weight.detach().clone()
        step(optimizer, rates.index(rate), torch.ones(1, 3))
        torch.testing.assert_close(before - network.weight, torch.full((1, 3), rate), rtol=1e-4, atol=0)


def test_a_gradient_above_the_norm_is_shortened_to_it() -> None:
    optimizer = TrainingOptimizer(small_network(), SMALL)
    gradient = torch.tensor([[30.0, 0.0, 40.0]])
    assert step(optimizer, 0, 2 * gradient, count=2) == pytest.approx(50)
    torch.testing.assert_close(optimizer.state()["exp_avg.weight"], 0.1 * gradient / 10)


def test_a_gradient_within_the_norm_is_taken_as_it_is() -> None:
    optimizer = TrainingOptimizer(small_network(), SMALL)
    gradient = torch.tensor([[0.3, 0.0, 0.4]])
    assert step(optimizer, 0, gradient) == pytest.approx(0.5)
    torch.testing.assert_close(optimizer.state()["exp_avg.weight"], 0.1 * gradient)


def test_an_infinite_gradient_changes_nothing() -> None:
    optimizer = TrainingOptimizer(small_network(), SMALL)
    before = {name: tensor.clone() for name, tensor in optimizer.state().items()}
    assert step(optimizer, 0, torch.tensor([[1.0, float("inf"), 1.0]])) == float("inf")
    after = optimizer.state()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_the_averaged_weights_follow_the_own_ones_and_come_back_from_a_state() -> None:
    network = small_network()
    optimizer, expected = TrainingOptimizer(network, SMALL), network.weight.detach().clone()
    for number in range(12):
        step(optimizer, number, torch.tensor([[1.0, -1.0, 0.5]]))
        decay = min(0.9, (1 + number) / (10 + number))
        expected = decay * expected + (1 - decay) * network.weight.detach()
    own, resumed = network.weight.detach().clone(), small_network()
    continued = TrainingOptimizer(resumed, SMALL)
    continued.load_state(optimizer.state())
    for one, its_network in ((optimizer, network), (continued, resumed)):
        with one.averaged() as averaged:
            torch.testing.assert_close(averaged["weight"], expected)
            torch.testing.assert_close(its_network.weight.detach(), expected)
        assert torch.equal(its_network.weight, own) and not torch.allclose(own, expected)
        step(one, 12, torch.tensor([[0.2, 0.1, 0.5]]))
    assert torch.equal(network.weight, resumed.weight)
    with optimizer.averaged() as averaged, continued.averaged() as averaged_too:
        assert torch.equal(averaged["weight"], averaged_too["weight"])


def test_the_weights_of_a_checkpoint_are_the_average(dataset: TrainingDataset, tmp_path: Path) -> None:
    train("flow", dataset, tmp_path, replace(SETTINGS, max_steps=2))
    checkpoint = tmp_path / "checkpoints/step-00000002"
    weights, state = (
        load_file(checkpoint / "weights.safetensors"),
        load_file(checkpoint / "state.safetensors"),
    )
    assert all(torch.equal(tensor, state[f"average.{name}"]) for name, tensor in weights.items())
    assert not all(torch.equal(tensor, state[f"parameter.{name}"]) for name, tensor in weights.items())


@pytest.mark.parametrize("name", ["lm", "flow"])
def test_two_accumulated_batches_are_a_batch_of_both(
    name: str, dataset: TrainingDataset, tmp_path: Path
) -> None:
    settings = replace(SETTINGS, max_steps=2)
    two, one = (
        train(name, dataset, tmp_path / str(count), replace(settings, accumulate=count, max_frames=frames))
        for count, frames in ((2, 300), (1, 600))
    )
    assert [each.epoch for each in two] == [each.epoch for each in one] == [1, 2]
    assert [each.loss for each in two] == pytest.approx([each.loss for each in one], rel=1e-5)
    assert [each.gradient_norm for each in two] == pytest.approx(
        [each.gradient_norm for each in one], rel=1e-4
    )


@pytest.mark.parametrize("name", ["lm", "flow"])
def test_bfloat16_is_near_float32_and_its_parameters_stay_in_float32(
    name: str, dataset: TrainingDataset, tmp_path: Path
) -> None:
    settings, part = replace(SETTINGS, max_steps=2, max_frames=300), random_part(name)
    exact = train(name, dataset, tmp_path / "exact", settings)
    steps = train(name, dataset, tmp_path / "bf16", replace(settings, bf16=True), part=part)
    losses = [each.loss for each in steps]
    assert losses == pytest.approx([each.loss for each in exact], rel=0.02)
    assert losses != [each.loss for each in exact]
    assert {parameter.dtype for parameter in part.network.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("capabilities", "is_emulated"),
    [({"avx512_bf16": False, "amx_bf16": False, "avx2": True}, True), ({"avx512_bf16": True}, False)],
)
def test_a_processor_without_bfloat16_is_named(
    capabilities: dict[str, bool], is_emulated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    notice = bundle_parts.bf16_notice(torch.device("cpu"))
    assert (notice is not None and "emulates bfloat16" in notice) is is_emulated


def test_a_card_without_bfloat16_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    card, capability = torch.device("cuda", 0), [7, 5]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: tuple(capability))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    with pytest.raises(DeviceError, match="Tesla T4 has no bfloat16"):
        bundle_parts.bf16_notice(card)
    capability[:] = 8, 0
    assert bundle_parts.bf16_notice(card) is None
