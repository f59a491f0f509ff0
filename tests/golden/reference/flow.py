"""Cases b_cfm, c_flow, v3_flow and rand_noise: the flow from speech ids to mel, and its initial noise."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from golden.reference.comparison import Arrays, Comparison, compare, read_arrays
from golden.reference.golden_config import load_rule_weights, read_network_config
from golden.reference.upstream_flow import AttentionMask, compute_whole, solve_whole
from vivavoce.models.cosyvoice.config import (
    BLOCK_IDS,
    FRAMES_PER_SPEECH_ID,
    LOOKAHEAD_IDS,
    MEL_BANDS,
    CosyVoiceVersion,
)
from vivavoce.models.cosyvoice.flow.flow import Flow
from vivavoce.models.cosyvoice.flow.policy import FlowPolicy
from vivavoce.models.cosyvoice.flow.state import FlowChunk
from vivavoce.models.devices.torch_devices import CPU

_MEL_TOLERANCE = 5e-4
_STEP_EDGES = (25, 50, 100)  # ids at which the stepped run is cut


def load_flow(
    folder: Path,
    version: CosyVoiceVersion,
    policy: FlowPolicy | None = None,
    device: torch.device = CPU,
) -> Flow:
    """The reduced flow of a folder, with its weights."""
    flow = Flow(read_network_config(folder, version).flow, policy)
    load_rule_weights(flow, folder, device)
    return flow


def check_noise(folder: Path) -> Iterator[Comparison]:
    """Compare the stored beginning of the solver's noise with the product's, number by number."""
    stored = read_arrays(folder, "rand_noise")["rand_noise"][0]
    flow = Flow(read_network_config(folder, CosyVoiceVersion.V3).flow)
    yield compare("rand_noise", "rand_noise", flow.noise(0, stored.shape[1]).T, stored, 0.0)


def check_solver(folder: Path) -> Iterator[Comparison]:
    """Compare ten steps of the guided solver on a given conditioning."""
    flow, arrays = load_flow(folder, CosyVoiceVersion.V2), read_arrays(folder, "b_cfm")
    mu = arrays["mu"].transpose(1, 2)
    for name, mask in (("out", AttentionMask.NONE), ("out_stream", AttentionMask.BLOCKS)):
        mel = solve_whole(flow, mu, arrays["cond"], arrays["spks"], mask)
        yield compare("b_cfm", name, mel, arrays[name], _MEL_TOLERANCE)


def check_flow_v2(folder: Path) -> Iterator[Comparison]:
    """Compare case c_flow."""
    return _check_flow(folder, "c_flow", CosyVoiceVersion.V2)


def check_flow_v3(folder: Path) -> Iterator[Comparison]:
    """Compare case v3_flow."""
    return _check_flow(folder, "v3_flow", CosyVoiceVersion.V3)


def _check_flow(folder: Path, case: str, version: CosyVoiceVersion) -> Iterator[Comparison]:
    """Whole and shortened, with and without block mask and prompt, and in steps."""
    inputs, arrays = read_flow_inputs(folder, version)
    bare = inputs.without_prompt()
    prompt, total = inputs.prompt_ids, inputs.ids.shape[1]
    first, second = prompt + int(arrays["n1"]), prompt + int(arrays["n2"])
    bare_total = arrays["noprompt_offline"].shape[2] // FRAMES_PER_SPEECH_ID
    runs: dict[str, Callable[[], Tensor]] = {
        "offline": lambda: _whole_mel(inputs, total, AttentionMask.NONE, last=True),
        "stream_final": lambda: _whole_mel(inputs, total, AttentionMask.BLOCKS, last=True),
        "stream_1": lambda: _whole_mel(inputs, first, AttentionMask.BLOCKS),
        "stream_2": lambda: _whole_mel(inputs, second, AttentionMask.BLOCKS),
        "offline_notfinal": lambda: _whole_mel(inputs, first, AttentionMask.NONE),
        "noprompt_offline": lambda: _whole_mel(bare, bare_total, AttentionMask.NONE, last=True),
        "noprompt_stream": lambda: _whole_mel(bare, BLOCK_IDS, AttentionMask.BLOCKS),
    }
    for name, run in runs.items():
        yield compare(case, name, run(), arrays[name], _MEL_TOLERANCE)
    stepped = torch.cat(list(_stepped_mel(inputs)), 2)[..., FRAMES_PER_SPEECH_ID * prompt :]
    yield compare(case, "stream_final, in steps", stepped, arrays["stream_final"], _MEL_TOLERANCE)


@dataclass(frozen=True, slots=True)
class FlowInputs:
    """Inputs of c_flow or v3_flow."""

    flow: Flow
    ids: Tensor  # (1, P + N) int64, prompt first
    prompt_ids: int  # P
    prompt_mel: Tensor  # (1, 80, 2 P)
    speaker: Tensor  # (1, 80), projected

    def chunk(self, begin: int, end: int, *, last: bool = False) -> FlowChunk:
        """Ids from ``begin`` to ``end``, with lookahead unless it is the last chunk."""
        future = self.ids[:, end : end + (0 if last else LOOKAHEAD_IDS)]
        mel = self.prompt_mel.new_zeros(1, MEL_BANDS, FRAMES_PER_SPEECH_ID * (end - begin))
        prompt = self.prompt_mel[..., FRAMES_PER_SPEECH_ID * begin : FRAMES_PER_SPEECH_ID * end]
        mel[..., : prompt.shape[2]] = prompt
        return FlowChunk(self.ids[:, begin:end], future, mel)

    def without_prompt(self) -> "FlowInputs":
        """The same utterance without a prompt."""
        return replace(
            self, ids=self.ids[:, self.prompt_ids :], prompt_ids=0, prompt_mel=self.prompt_mel[..., :0]
        )


def read_flow_inputs(
    folder: Path, version: CosyVoiceVersion, device: torch.device = CPU
) -> tuple[FlowInputs, Arrays]:
    """Inputs of c_flow (version 2) or v3_flow (version 3), and all its arrays. device: of the flow alone."""
    arrays = read_arrays(folder, "c_flow" if version is CosyVoiceVersion.V2 else "v3_flow")
    flow = load_flow(folder, version, device=device)
    prompt = arrays["prompt_token"].long()
    ids = torch.cat([prompt, arrays["token"].long()], 1)
    mel = arrays["prompt_feat"].transpose(1, 2)
    speaker = flow.project_speaker(arrays["embedding"].to(device)).cpu()
    return FlowInputs(flow, ids, prompt.shape[1], mel, speaker), arrays


def _whole_mel(inputs: FlowInputs, end: int, mask: AttentionMask, *, last: bool = False) -> Tensor:
    """Mel after the prompt, of all ids up to ``end`` at once."""
    mel = compute_whole(inputs.flow, inputs.chunk(0, end, last=last), inputs.speaker, mask)
    return mel[..., FRAMES_PER_SPEECH_ID * inputs.prompt_ids :]


def _stepped_mel(inputs: FlowInputs) -> Iterator[Tensor]:
    """Mel of prompt and text in steps that end at fixed edges, and one more to the end."""
    state, begin, total = inputs.flow.init_state(inputs.speaker), 0, inputs.ids.shape[1]
    for end in (*_STEP_EDGES, total):
        mel, state = inputs.flow.step(inputs.chunk(begin, end, last=end == total), state)
        yield mel
        begin = end
