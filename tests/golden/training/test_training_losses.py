"""Losses, gradients and optimizer steps against upstream's classes; tolerances of the vectors' README.md."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the [train] extra is not installed")

from torch import Tensor, nn  # noqa: E402

from golden.reference.comparison import Arrays, read_arrays  # noqa: E402
from golden.training.vectors import (  # noqa: E402
    DATA,
    flow_batch,
    flow_draws,
    golden_flow,
    golden_lm,
    gradients,
    lm_batch,
    lm_rows,
    stated_config,
    stored_places,
    upstream_tensors,
)
from vivavoce.models.cosyvoice.config import CosyVoiceVersion  # noqa: E402
from vivavoce.models.cosyvoice.flow.encoder import FlowEncoder  # noqa: E402
from vivavoce.models.cosyvoice.lm.generation import LmInput, LmInputKind  # noqa: E402
from vivavoce.models.cosyvoice.training.flow_loss import (  # noqa: E402
    FlowBatch,
    FlowDraws,
    TrainingLoss,
    flow_conditions,
    flow_loss,
    flow_velocity,
)
from vivavoce.models.cosyvoice.training.lm_loss import lm_loss  # noqa: E402

CASES = sorted(stated_config()["cases"])
LM_CASES = [case for case in CASES if case.startswith("lm") and not case.endswith("smooth")]
FLOW_CASES = [case for case in CASES if case.startswith("flow") and case != "flow_inputs"]
_CODES = {LmInputKind.TEXT: 0, LmInputKind.SPEECH: 1000, LmInputKind.START: 2000, LmInputKind.TURN: 2001}


@pytest.fixture
def leaking_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upstream's fault: padding is not masked before the lookahead of version 2's encoder."""
    step: Callable[..., Any] = FlowEncoder.step

    def leak(self: FlowEncoder, x: Tensor, future: Tensor, state: Any, ids: Any, frames: Any) -> Any:
        return step(self, x, future, state, replace(ids, frame_mask=None), frames)

    monkeypatch.setattr(FlowEncoder, "step", leak)


def _version(case: str) -> CosyVoiceVersion:
    return CosyVoiceVersion(int(case.removeprefix("lm").removeprefix("flow")[0]))


def _network_and_loss(case: str, arrays: Arrays) -> tuple[nn.Module, Callable[[], TrainingLoss]]:
    if case.startswith("lm"):
        lm = golden_lm(_version(case))
        rows = lm_batch(lm, arrays)
        return lm, lambda: lm_loss(lm, rows)
    flow, batch, draws = golden_flow(_version(case)), flow_batch(), flow_draws(arrays)
    return flow, lambda: flow_loss(flow, batch, draws)


@pytest.mark.parametrize("case", LM_CASES)
def test_rows_of_the_language_model_are_those_of_upstream(case: str) -> None:
    arrays = read_arrays(DATA, case)
    rows = lm_rows(golden_lm(_version(case)), arrays)
    targets, codes = arrays["lm_target"].tolist(), arrays["lm_input_codes"].tolist()
    assert [len(row.inputs) for row in rows] == arrays["lm_input_len"].tolist()
    for row, target, code in zip(rows, targets, codes, strict=True):
        padding = [-1] * (len(target) - len(row.targets))
        assert [*row.targets, *padding] == target
        assert [*map(_code, row.inputs), *padding] == code


def _code(lm_input: LmInput) -> int:
    return _CODES[lm_input.kind] + lm_input.id


@pytest.mark.parametrize("case", LM_CASES + FLOW_CASES)
@pytest.mark.usefixtures("leaking_encoder")
def test_loss_and_gradients_are_those_of_upstream(case: str) -> None:
    arrays = read_arrays(DATA, case)
    network, loss = _network_and_loss(case, arrays)
    computed = loss()
    computed.mean.backward()
    torch.testing.assert_close(computed.mean.detach(), arrays["loss"], rtol=1e-5, atol=0)
    if "acc" in arrays:
        assert torch.tensor(computed.accuracy) == arrays["acc"]
    found, norm = gradients(network), float(arrays["grad_norm"])
    keys = stated_config()["parameters"][case.partition("_")[0]]["keys"]
    norms = torch.stack([found[key].norm() for key in keys])
    assert set(keys) == set(found)
    assert float(norms.norm()) == pytest.approx(norm, rel=1e-4)
    torch.testing.assert_close(norms, arrays["grad_norms"], rtol=1e-3, atol=1e-5 * norm)
    for name in (name for name in arrays if name.startswith("grad/")):
        scale = float(arrays[name].abs().max())
        places = stored_places(found[name.removeprefix("grad/")])
        torch.testing.assert_close(places, arrays[name], rtol=0, atol=1e-4 * scale + 1e-6)


@pytest.mark.parametrize("case", LM_CASES + FLOW_CASES)
@pytest.mark.usefixtures("leaking_encoder")
def test_steps_of_adam_and_adamw_are_those_of_upstream(case: str) -> None:
    arrays, settings = read_arrays(DATA, case), stated_config()["optimizer"]
    network, loss = _network_and_loss(case, arrays)
    adamw = torch.optim.AdamW(network.parameters(), **settings["adamw"])
    _step(network, loss, adamw, settings["clip"])
    _assert_parameters(network, arrays, "adamw/")
    torch.testing.assert_close(loss().mean.detach(), arrays["loss_after_adamw"], rtol=1e-4, atol=0)

    network, loss = _network_and_loss(case, arrays)
    adam = torch.optim.Adam(network.parameters(), **settings["adam"])
    losses = [_step(network, loss, adam, settings["clip"]) for _ in range(4)]
    torch.testing.assert_close(torch.tensor(losses), arrays["losses_adam"], rtol=1e-4, atol=0)
    _assert_parameters(network, arrays, "adam4/")


def _step(
    network: nn.Module, loss: Callable[[], TrainingLoss], optimizer: torch.optim.Optimizer, clip: float
) -> float:
    optimizer.zero_grad()
    mean = loss().mean
    mean.backward()
    nn.utils.clip_grad_norm_(network.parameters(), clip)
    optimizer.step()
    return float(mean.detach())


def _assert_parameters(network: nn.Module, arrays: Arrays, prefix: str) -> None:
    """Compare parameters where their gradient is more than noise."""
    found = upstream_tensors(network, network.state_dict())
    for name in (name for name in arrays if name.startswith(prefix)):
        gradient = arrays["grad/" + name.removeprefix(prefix)]
        clear = gradient.abs() >= 1e-6 * gradient.abs().max()
        places = stored_places(found[name.removeprefix(prefix)])
        torch.testing.assert_close(places[clear], arrays[name][clear], rtol=0, atol=1e-5)


@pytest.mark.parametrize("version", CosyVoiceVersion)
def test_label_smoothing_is_that_of_upstream(version: CosyVoiceVersion) -> None:
    wanted, lm = read_arrays(DATA, f"lm{version.value}_smooth"), golden_lm(version)
    computed = lm_loss(lm, lm_batch(lm, read_arrays(DATA, f"lm{version.value}_uni")), smoothing=0.1)
    computed.mean.backward()
    torch.testing.assert_close(computed.mean.detach(), wanted["loss"], rtol=1e-5, atol=0)
    assert torch.tensor(computed.accuracy) == wanted["acc"]
    norm = torch.stack([gradient.norm() for gradient in gradients(lm).values()]).norm()
    torch.testing.assert_close(norm, wanted["grad_norm"], rtol=1e-4, atol=0)


@pytest.mark.parametrize("case", FLOW_CASES)
@pytest.mark.usefixtures("leaking_encoder")
def test_velocity_and_conditions_of_the_flow_are_those_of_upstream(case: str) -> None:
    arrays, flow, batch = read_arrays(DATA, case), golden_flow(_version(case)), flow_batch()
    draws, frames = flow_draws(arrays), arrays["frames"]
    velocity, wanted = flow_velocity(flow, batch, draws)
    mu, speaker, _ = flow_conditions(flow, batch, draws).chunk(3, 2)
    torch.testing.assert_close(speaker[:, 0, ::8], arrays["spks"], rtol=0, atol=1e-5)
    for row, length in enumerate(2 * batch.lengths):
        real = frames[frames < length]
        for name, found in (("mu", mu), ("velocity", velocity)):
            stored = arrays[name][row][:, : len(real)].mT
            torch.testing.assert_close(found[row][real][:, ::8].detach(), stored, rtol=0, atol=1e-4)
        error = (velocity - wanted)[row, :length].square().mean().detach()
        torch.testing.assert_close(error, arrays["row_loss"][row], rtol=1e-5, atol=0)


@pytest.mark.parametrize("version", CosyVoiceVersion)
@pytest.mark.parametrize("mask", ["full", "stream"])
def test_a_row_in_a_batch_has_the_loss_that_upstream_gives_it_alone(
    version: CosyVoiceVersion, mask: str
) -> None:
    flow, case = golden_flow(version), f"flow{version.value}_{mask}_keep"
    batch, draws = flow_batch(), flow_draws(read_arrays(DATA, case))
    velocity, wanted = flow_velocity(flow, batch, draws)
    for row, length in enumerate(2 * batch.lengths):
        loss, gradient_norm = stated_config()["alone"][f"flow{version.value}_row{row}"][mask]
        in_batch = (velocity - wanted)[row, :length].square().mean().detach()
        assert float(in_batch) == pytest.approx(loss, rel=1e-5)
        alone = flow_loss(flow, *_row(batch, draws, row))
        flow.zero_grad()
        alone.mean.backward()
        norm = torch.stack([gradient.norm() for gradient in gradients(flow).values()]).norm()
        assert float(alone.mean.detach()) == pytest.approx(loss, rel=1e-5)
        assert float(norm) == pytest.approx(gradient_norm, rel=1e-4)


def _row(batch: FlowBatch, draws: FlowDraws, row: int) -> tuple[FlowBatch, FlowDraws]:
    one, length = slice(row, row + 1), int(batch.lengths[row])
    alone = FlowBatch(
        batch.ids[one, :length], batch.lengths[one], batch.mel[one, : 2 * length], batch.embedding[one]
    )
    return alone, FlowDraws(
        draws.streaming,
        draws.prompt_frames[one],
        draws.time[one],
        draws.noise[one, : 2 * length],
        draws.kept[one],
    )


@pytest.mark.parametrize("case", ["lm2_mixed", "lm3_mixed", "flow2_stream_drop", "flow3_full_drop"])
def test_gradients_agree_with_finite_differences(case: str) -> None:
    arrays = read_arrays(DATA, case)
    network, loss = _network_and_loss(case, arrays)
    network.double()
    if case.startswith("flow"):
        batch, draws = flow_batch(), flow_draws(arrays)
        flow = golden_flow(_version(case)).double()
        batch = replace(batch, mel=batch.mel.double(), embedding=batch.embedding.double())
        draws = replace(draws, time=draws.time.double(), noise=draws.noise.double())
        network, loss = flow, lambda: flow_loss(flow, batch, draws)
    loss().mean.backward()
    torch.manual_seed(0)
    parameters = list(network.named_parameters())
    for name, parameter in parameters[:: max(1, len(parameters) // 20)]:
        assert parameter.grad is not None, name
        # Part of the direction is the gradient, so that the slope is not near 0.
        gradient, noise = parameter.grad, torch.randn_like(parameter)
        direction = gradient / (gradient.norm() + 1e-12) + noise / noise.norm()
        stated = float((gradient * direction).sum())
        with torch.no_grad():
            parameter.add_(direction, alpha=1e-6)
            after = float(loss().mean)
            parameter.add_(direction, alpha=-2e-6)
            before = float(loss().mean)
            parameter.add_(direction, alpha=1e-6)
        assert (after - before) / 2e-6 == pytest.approx(stated, rel=1e-3, abs=1e-7), name
