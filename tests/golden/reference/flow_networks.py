"""Cases a_encoder, b_estimator and v3_dit: the flow's encoder and velocity estimators."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from golden.reference.comparison import Arrays, Comparison, compare, read_arrays
from golden.reference.flow import load_flow
from vivavoce.models.cosyvoice.config import (
    BLOCK_FRAMES,
    BLOCK_IDS,
    FRAMES_PER_SPEECH_ID,
    LOOKAHEAD_IDS,
    CosyVoiceVersion,
)
from vivavoce.models.cosyvoice.flow.attention_plan import ContiguousAttentionPlan, make_plan
from vivavoce.models.cosyvoice.flow.dit import FlowDit
from vivavoce.models.cosyvoice.flow.encoder import FlowEncoder
from vivavoce.models.cosyvoice.flow.flow import Flow
from vivavoce.models.cosyvoice.flow.policy import CacheForm
from vivavoce.models.cosyvoice.flow.unet import FlowUnet

_TOLERANCE = 1e-4


@torch.inference_mode()
def check_encoder(folder: Path) -> Iterator[Comparison]:
    """Compare the whole input with and without block mask and lookahead, and the stages of the first run."""
    flow, arrays = load_flow(folder, CosyVoiceVersion.V2), read_arrays(folder, "a_encoder")
    inputs, none = arrays["xs"], arrays["xs"][:, :0]
    shorter, future = inputs[:, :-LOOKAHEAD_IDS], inputs[:, -LOOKAHEAD_IDS:]
    runs = {
        "full": (inputs, none, None),
        "stream": (inputs, none, BLOCK_IDS),
        "stream_ctx": (shorter, future, BLOCK_IDS),
        "full_ctx": (shorter, future, None),
    }
    stages = _record_stages(flow.encoder)
    for name, (x, after, block) in runs.items():
        ours = _encode(flow.encoder, x, after, block or x.shape[1])
        yield compare("a_encoder", name, ours, arrays[name], _TOLERANCE)
    for name, output in stages.items():
        yield compare("a_encoder", name, output, arrays[name], _TOLERANCE)


def _encode(encoder: FlowEncoder, x: Tensor, future: Tensor, block: int) -> Tensor:
    length = x.shape[1]
    frames = FRAMES_PER_SPEECH_ID * length
    id_plan = make_plan([0], length, block=block, capacity=length)
    frame_plan = make_plan([0], frames, block=FRAMES_PER_SPEECH_ID * block, capacity=frames)
    return encoder.step(x, future, encoder.init_state(1, frames), id_plan, frame_plan)[0]


def _record_stages(encoder: FlowEncoder) -> dict[str, Tensor]:
    """Outputs of the encoder's stages, filled in by its next run."""
    outputs: dict[str, Tensor] = {}
    stages: dict[str, nn.Module] = {
        "i_embed": encoder.embed,
        "i_pre_lookahead": encoder.pre_lookahead_layer,
        "i_layer0_attn": encoder.encoders[0].get_submodule("self_attn"),
        "i_encoders": encoder.encoders[-1],
        "i_up_layer": encoder.up_layer.conv,
        "i_up_embed": encoder.up_embed,
    }
    for name, module in stages.items():
        module.register_forward_hook(partial(_record_output, outputs, name))
    return outputs


def _record_output(
    outputs: dict[str, Tensor], name: str, _module: nn.Module, _inputs: object, output: object
) -> None:
    value = output[0] if isinstance(output, tuple) else output
    if isinstance(value, Tensor):
        outputs.setdefault(name, value)


def check_unet(folder: Path) -> Iterator[Comparison]:
    """Compare the v2 estimator, with a batch row that is shorter than the other."""
    arrays = read_arrays(folder, "b_estimator")
    names = ("out", "out_stream", "out_pad", "out_pad_stream")
    yield from _check_estimator(load_flow(folder, CosyVoiceVersion.V2), "b_estimator", arrays, arrays, names)


def check_dit(folder: Path) -> Iterator[Comparison]:
    """Compare the v3 estimator on the inputs of b_estimator, and the lookahead layer."""
    flow, arrays = load_flow(folder, CosyVoiceVersion.V3), read_arrays(folder, "v3_dit")
    inputs = read_arrays(folder, "b_estimator")
    yield from _check_estimator(flow, "v3_dit", inputs, arrays, ("out", "out_stream", "out_pad"))
    x, layer = arrays["pl_x"], flow.pre_lookahead_layer
    context = layer.conv2.initial_context(1)
    full, _ = layer(x, x[:, :0], context)
    with_future, _ = layer(x[:, :-LOOKAHEAD_IDS], x[:, -LOOKAHEAD_IDS:], context)
    yield compare("v3_dit", "pl_full", full, arrays["pl_full"], _TOLERANCE)
    yield compare("v3_dit", "pl_ctx", with_future, arrays["pl_ctx"], _TOLERANCE)


@torch.inference_mode()
def _check_estimator(
    flow: Flow, case: str, inputs: Arrays, expected: Arrays, names: tuple[str, ...]
) -> Iterator[Comparison]:
    network = flow.decoder.estimator
    yield compare(case, "time_emb", network.time_embedding(inputs["t"]), expected["time_emb"], _TOLERANCE)
    x, mu, prompt = (inputs[name].transpose(1, 2) for name in ("x", "mu", "cond"))
    rows, length, _ = x.shape
    conditions = torch.cat([mu, inputs["spks"][:, None].expand_as(mu), prompt], 2)
    for name in names:
        # Streaming arrays attend in blocks, the others to everything.
        block = BLOCK_FRAMES if name.endswith("stream") else length
        valid = tuple(int(row.sum()) for row in inputs["mask_pad"]) if "pad" in name else None
        plan = make_plan([0] * rows, length, block=block, capacity=length, valid=valid)
        ours = _velocity(network, x, conditions, inputs["t"], plan)
        yield compare(case, name, ours.transpose(1, 2), expected[name], _TOLERANCE)


def _velocity(
    network: FlowUnet | FlowDit, x: Tensor, conditions: Tensor, t: Tensor, plan: ContiguousAttentionPlan
) -> Tensor:
    cache_form = CacheForm.KEYS_VALUES
    state = network.init_state(len(x), x.shape[1], cache_form, torch.float32)
    return network.step(x, conditions, network.time_offsets(t), state, plan, cache_form)[0]  # type: ignore[arg-type]
