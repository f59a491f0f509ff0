"""The flow cases of a golden folder: what upstream's own networks answered, against what ours answer.

Configuration, salt and multipliers come from the folder's config.json, so that any folder laid out this way
can be checked. Only comparisons: no printing, no verdict.

Source: the cases a_encoder, b_estimator, b_cfm, c_flow, v3_dit, v3_flow of the golden set's README, from
FunAudioLLM/CosyVoice@ace7c47.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from golden.reference.rule_weights import read_rule, rule_weights
from golden.reference.upstream_flow import AttentionMask, compute_whole, solve_whole
from vivavoce.models.cosyvoice.flow.attention_memory import CacheForm
from vivavoce.models.cosyvoice.flow.attention_plan import ContiguousAttentionPlan, make_plan
from vivavoce.models.cosyvoice.flow.dit import DitConfig, FlowDit
from vivavoce.models.cosyvoice.flow.encoder import (
    FRAMES_PER_SPEECH_ID,
    LOOKAHEAD_IDS,
    EncoderConfig,
    FlowEncoder,
)
from vivavoce.models.cosyvoice.flow.flow import Flow, FlowConfig
from vivavoce.models.cosyvoice.flow.state import BLOCK_IDS, FlowChunk, FlowPolicy
from vivavoce.models.cosyvoice.flow.unet import FlowUnet, UnetConfig
from vivavoce.models.cosyvoice.layers import load_weights

NETWORK_TOLERANCE = 1e-4
MEL_TOLERANCE = 5e-4

Arrays = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One array of a case: the largest absolute difference, and what is allowed."""

    case: str
    array: str
    error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        return self.error <= self.tolerance


def compare(case: str, array: str, ours: Tensor, theirs: Tensor, tolerance: float) -> Comparison:
    """A comparison; arrays of different shapes, or with a NaN, are infinitely far apart."""
    if ours.shape != theirs.shape:
        return Comparison(case, array, float("inf"), tolerance)
    error = float((ours.double() - theirs.double()).abs().max()) if ours.numel() else 0.0
    return Comparison(case, array, error if error == error else float("inf"), tolerance)


def read_arrays(folder: Path, case: str) -> Arrays:
    """The arrays of a case, as tensors."""
    with np.load(folder / f"{case}.npz", allow_pickle=False) as stored:
        return {name: torch.from_numpy(stored[name]) for name in stored.files}


def stated_flow_config(folder: Path, version: int) -> FlowConfig:
    """The reduced flow that a golden folder states, for version 2 or 3."""
    stated = json.loads((folder / "config.json").read_text("utf-8"))
    sizes, steps = stated["config"], stated["n_timesteps"]
    common = {
        "speech_ids": sizes["speech_token_size"],
        "speaker_width": sizes["spk_embed_dim"],
        "solver_steps": steps,
        "guidance": stated["cfm"]["inference_cfg_rate"],
    }
    if version == 3:
        dit = sizes["dit"]
        estimator = DitConfig(dit["dim"], dit["depth"], dit["heads"], dit["dim_head"], dit["ff_mult"])
        width = sizes["pre_lookahead_channels"]
        return FlowConfig(encoder=None, estimator=estimator, lookahead_width=width, **common)
    encoder, unet = sizes["encoder"], sizes["estimator"]
    return FlowConfig(
        EncoderConfig(
            encoder["dim"],
            encoder["attention_heads"],
            encoder["linear_units"],
            encoder["num_blocks"],
            encoder["num_up_blocks"],
        ),
        UnetConfig(
            channels=unet["channels"][0],
            attention_head_dim=unet["attention_head_dim"],
            blocks=unet["n_blocks"],
            mid_blocks=unet["num_mid_blocks"],
            heads=unet["num_heads"],
        ),
        **common,
    )


def load_rule_weights(network: nn.Module, folder: Path) -> None:
    """Load the weights that the folder's rule makes of the network's own keys."""
    shapes = {key: tuple(tensor.shape) for key, tensor in network.state_dict().items()}
    made = rule_weights(shapes, read_rule(folder))
    load_weights(network, {key: torch.from_numpy(value) for key, value in made.items()})


def reference_flow(folder: Path, version: int, policy: FlowPolicy | None = None) -> Flow:
    """The reduced flow with its weights."""
    flow = Flow(stated_flow_config(folder, version), policy)
    load_rule_weights(flow, folder)
    return flow


@torch.inference_mode()
def encoder_case(folder: Path) -> Iterator[Comparison]:
    """a_encoder: the whole input, with and without block mask and lookahead."""
    flow, arrays = reference_flow(folder, 2), read_arrays(folder, "a_encoder")
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
        length = x.shape[1]
        ids = make_plan([0], length, block=block or length, capacity=length)
        frames = make_plan(
            [0],
            FRAMES_PER_SPEECH_ID * length,
            block=FRAMES_PER_SPEECH_ID * (block or length),
            capacity=FRAMES_PER_SPEECH_ID * length,
        )
        ours, _ = flow.encoder.step(
            x, after, flow.encoder.init_state(1, FRAMES_PER_SPEECH_ID * length), ids, frames
        )
        yield compare("a_encoder", name, ours, arrays[name], NETWORK_TOLERANCE)
    for name, seen in stages.items():
        yield compare("a_encoder", name, seen, arrays[name], NETWORK_TOLERANCE)


def _record_stages(encoder: FlowEncoder) -> dict[str, Tensor]:
    """What comes out of the encoder's stages in its first run, filled in while it runs."""
    seen: dict[str, Tensor] = {}
    stages: dict[str, nn.Module] = {
        "i_embed": encoder.embed,
        "i_pre_lookahead": encoder.pre_lookahead_layer,
        "i_layer0_attn": encoder.encoders[0].get_submodule("self_attn"),
        "i_encoders": encoder.encoders[-1],
        "i_up_layer": encoder.up_layer.conv,
        "i_up_embed": encoder.up_embed,
    }
    for name, module in stages.items():
        module.register_forward_hook(partial(_record_output, seen, name))
    return seen


def _record_output(
    seen: dict[str, Tensor], name: str, _module: nn.Module, _inputs: object, output: object
) -> None:
    value = output[0] if isinstance(output, tuple) else output
    if isinstance(value, Tensor):
        seen.setdefault(name, value)


def estimator_case(folder: Path) -> Iterator[Comparison]:
    """b_estimator: the v2 estimator once, with a row that is shorter than the other."""
    arrays = read_arrays(folder, "b_estimator")
    names = ("out", "out_stream", "out_pad", "out_pad_stream")
    yield from _estimator(reference_flow(folder, 2), "b_estimator", arrays, arrays, names)


def dit_case(folder: Path) -> Iterator[Comparison]:
    """v3_dit: the v3 estimator on the same inputs, and its lookahead layer."""
    flow, arrays = reference_flow(folder, 3), read_arrays(folder, "v3_dit")
    inputs = read_arrays(folder, "b_estimator")
    yield from _estimator(flow, "v3_dit", inputs, arrays, ("out", "out_stream", "out_pad"))
    x, layer = arrays["pl_x"], flow.pre_lookahead_layer
    begin = layer.conv2.initial_context(1)
    full, _ = layer(x, x[:, :0], begin)
    with_context, _ = layer(x[:, :-LOOKAHEAD_IDS], x[:, -LOOKAHEAD_IDS:], begin)
    yield compare("v3_dit", "pl_full", full, arrays["pl_full"], NETWORK_TOLERANCE)
    yield compare("v3_dit", "pl_ctx", with_context, arrays["pl_ctx"], NETWORK_TOLERANCE)


@torch.inference_mode()
def _estimator(
    flow: Flow, case: str, inputs: Arrays, expected: Arrays, names: tuple[str, ...]
) -> Iterator[Comparison]:
    network = flow.decoder.estimator
    time = network.time_embedding(inputs["t"])
    yield compare(case, "time_emb", time, expected["time_emb"], NETWORK_TOLERANCE)
    x, mu, prompt = (inputs[name].transpose(1, 2) for name in ("x", "mu", "cond"))
    rows, length, _ = x.shape
    conditions = torch.cat([mu, inputs["spks"][:, None].expand_as(mu), prompt], 2)
    for name in names:
        valid = _valid(inputs, name)
        block = flow_block(name, length)
        plan = make_plan([0] * rows, length, block=block, capacity=length, valid=valid)
        ours = _velocity(network, x, conditions, inputs["t"], plan)
        yield compare(case, name, ours.transpose(1, 2), expected[name], NETWORK_TOLERANCE)


def _velocity(
    network: FlowUnet | FlowDit, x: Tensor, conditions: Tensor, t: Tensor, plan: ContiguousAttentionPlan
) -> Tensor:
    keep = CacheForm.KEYS_VALUES
    state = network.init_state(len(x), x.shape[1], keep, torch.float32)
    return network.step(x, conditions, network.time_offsets(t), state, plan, keep)[0]  # type: ignore[arg-type]


def _valid(inputs: Arrays, name: str) -> tuple[int, ...] | None:
    return tuple(int(row.sum()) for row in inputs["mask_pad"]) if "pad" in name else None


def flow_block(name: str, length: int) -> int:
    """Streaming arrays are attended in blocks of 50 frames, others at once."""
    return FRAMES_PER_SPEECH_ID * BLOCK_IDS if name.endswith("stream") else length


def solver_case(folder: Path) -> Iterator[Comparison]:
    """b_cfm: ten steps of the guided solver on a given conditioning."""
    flow, arrays = reference_flow(folder, 2), read_arrays(folder, "b_cfm")
    mu = arrays["mu"].transpose(1, 2)
    for name, mask in (("out", AttentionMask.NONE), ("out_stream", AttentionMask.BLOCKS)):
        ours = solve_whole(flow, mu, arrays["cond"], arrays["spks"], mask)
        yield compare("b_cfm", name, ours, arrays[name], MEL_TOLERANCE)


@dataclass(frozen=True, slots=True)
class FlowCase:
    """The inputs of c_flow or v3_flow. ids: (1, P + N). prompt_mel: (1, 80, 2 P). speaker: (1, 80)."""

    flow: Flow
    ids: Tensor
    prompt_ids: int
    prompt_mel: Tensor
    speaker: Tensor

    def chunk(self, begin: int, end: int, *, last: bool = False) -> FlowChunk:
        """Ids begin..end of prompt and text, with lookahead unless it is the last chunk."""
        future = self.ids[:, end : end + (0 if last else LOOKAHEAD_IDS)]
        mel = self.prompt_mel.new_zeros(1, 80, FRAMES_PER_SPEECH_ID * (end - begin))
        prompt = self.prompt_mel[..., FRAMES_PER_SPEECH_ID * begin : FRAMES_PER_SPEECH_ID * end]
        mel[..., : prompt.shape[2]] = prompt
        return FlowChunk(self.ids[:, begin:end], future, mel)

    def without_prompt(self) -> "FlowCase":
        """The same utterance, spoken by nobody in particular."""
        return FlowCase(self.flow, self.ids[:, self.prompt_ids :], 0, self.prompt_mel[..., :0], self.speaker)


def read_flow_case(folder: Path, version: int, policy: FlowPolicy | None = None) -> tuple[FlowCase, Arrays]:
    """c_flow (version 2) or v3_flow (version 3): its inputs, and all arrays."""
    arrays = read_arrays(folder, "c_flow" if version == 2 else "v3_flow")
    flow = reference_flow(folder, version, policy)
    prompt = arrays["prompt_token"].long()
    ids = torch.cat([prompt, arrays["token"].long()], 1)
    mel = arrays["prompt_feat"].transpose(1, 2)
    return FlowCase(flow, ids, prompt.shape[1], mel, flow.project_speaker(arrays["embedding"])), arrays


def flow_case(folder: Path, version: int) -> Iterator[Comparison]:
    """c_flow, v3_flow: ids to mel, whole and cut short, with and without block mask and prompt."""
    inputs, arrays = read_flow_case(folder, version)
    case, bare = "c_flow" if version == 2 else "v3_flow", inputs.without_prompt()
    prompt, total = inputs.prompt_ids, inputs.ids.shape[1]
    first, second = prompt + int(arrays["n1"]), prompt + int(arrays["n2"])
    runs: dict[str, Callable[[], Tensor]] = {
        "offline": lambda: _whole(inputs, total, AttentionMask.NONE, last=True),
        "stream_final": lambda: _whole(inputs, total, AttentionMask.BLOCKS, last=True),
        "stream_1": lambda: _whole(inputs, first, AttentionMask.BLOCKS),
        "stream_2": lambda: _whole(inputs, second, AttentionMask.BLOCKS),
        "offline_notfinal": lambda: _whole(inputs, first, AttentionMask.NONE),
        "noprompt_offline": lambda: _whole(
            bare, arrays["noprompt_offline"].shape[2] // FRAMES_PER_SPEECH_ID, AttentionMask.NONE, last=True
        ),
        "noprompt_stream": lambda: _whole(bare, BLOCK_IDS, AttentionMask.BLOCKS),
    }
    for name, run in runs.items():
        yield compare(case, name, run(), arrays[name], MEL_TOLERANCE)
    mel = torch.cat(list(flow_in_steps(inputs, (25, 50, 100))), 2)[..., FRAMES_PER_SPEECH_ID * prompt :]
    yield compare(case, "stream_final, in steps", mel, arrays["stream_final"], MEL_TOLERANCE)


def _whole(inputs: FlowCase, end: int, mask: AttentionMask, *, last: bool = False) -> Tensor:
    mel = compute_whole(inputs.flow, inputs.chunk(0, end, last=last), inputs.speaker, mask)
    return mel[..., FRAMES_PER_SPEECH_ID * inputs.prompt_ids :]


def flow_in_steps(inputs: FlowCase, edges: tuple[int, ...]) -> Iterator[Tensor]:
    """The mel of prompt and text in steps that end at ``edges``, and one more to the end."""
    state, begin = inputs.flow.init_state(inputs.speaker), 0
    for end in (*edges, inputs.ids.shape[1]):
        chunk = inputs.chunk(begin, end, last=end == inputs.ids.shape[1])
        mel, state = inputs.flow.step(chunk, state)
        yield mel
        begin = end


CASES: Mapping[str, Callable[[Path], Iterator[Comparison]]] = {
    "a_encoder": encoder_case,
    "b_estimator": estimator_case,
    "b_cfm": solver_case,
    "c_flow": lambda folder: flow_case(folder, 2),
    "v3_dit": dit_case,
    "v3_flow": lambda folder: flow_case(folder, 3),
}
