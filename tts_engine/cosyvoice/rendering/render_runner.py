"""Runs flow and vocoder: speech ids of a sentence to samples, one chunk at a time.

The flow's state after the whole blocks of a voice's recording is computed once and kept; a sentence continues
from it (``flow_runner``) with the rest of the recording, whose sound is dropped (``hop_schedule``).

Sentences whose chunks have the same length share a step of the flow; final chunks share one if they take the
same number of blocks. In recorded steps, sentences whose chunks take as many blocks share an Euler step, at
whichever each of them is. Sentences share a step of the vocoder if their state shapes agree. State is in each
sentence's ``SentenceRenderState`` and is replaced when a step ends, so a step that raised can be repeated.
On a device other than the CPU the usual steps of both are recorded (``flow_graphs``, ``vocoder_graphs``).
Used by one thread.
"""

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ....models.cosyvoice.config import (
    BLOCK_FRAMES,
    BLOCK_IDS,
    FRAMES_PER_SPEECH_ID,
    LOOKAHEAD_IDS,
    MEL_BANDS,
    CosyVoiceVersion,
)
from ....models.cosyvoice.flow.hop_schedule import HopSchedule, prompt_tail_ids
from ....models.cosyvoice.flow.policy import EXACT_POLICY
from ....models.cosyvoice.flow.state import FlowChunk, FlowState, packed_voice, unpacked_voice
from ....models.cosyvoice.flow.streaming_flow import MelStretcher, StreamingFlow
from ....models.cosyvoice.networks import RenderNetworks
from ....models.cosyvoice.prepared_voice_files import PreparedVoiceFolder
from ....models.cosyvoice.vocoder.layers import HiftNetwork, Vocoder, step_together
from ....models.cosyvoice.vocoder.noise_table import NoiseTable
from ....models.cosyvoice.vocoder.normal_noise import draw_normal_on
from ....models.cosyvoice.vocoder.vocoder_graphs import VocoderGraphs
from ....models.devices.planned_captures import CaptureQueue
from ....models.devices.torch_devices import to_device, to_host
from ....models.networks.state import join_states, map_state, tensors
from ...backends.recently_used import RecentlyUsed
from ..conditioning import FlowPrompt
from ..policy import CosyVoicePolicy
from .flow_runner import EagerFlowRunner, FlowRunner, GraphFlowRunner, supports_graphs
from .render_stage import RenderInput, Samples


class VocoderStream:
    """The vocoder's state and noise in the middle of a sentence.

    draw: the next samples of noise, (1, N, waves), on any device.
    """

    def __init__(self, vocoder: Vocoder, draw: Callable[[int], Tensor], device: torch.device) -> None:
        self.state: Any = vocoder.init_state(1)
        self._vocoder, self._draw, self._device = vocoder, draw, device

    def draw_noise(self, frames: int, *, last: bool) -> Tensor:
        """The noise for that many new mel frames, (1, N, waves)."""
        samples = self._vocoder.noise_samples(frames, self.state, last=last)
        return to_device(self._draw(samples), self._device)


@dataclass(slots=True)
class SentenceRenderState:
    """The state of flow, speed change and vocoder for one sentence."""

    flow_sequence: object  # the ``FlowRunner``'s
    prompt_tail_mel: Tensor  # as of ``FlowPrompt``
    speed: MelStretcher
    vocoder_stream: VocoderStream


@dataclass(frozen=True, slots=True)
class VocoderInput:
    """The vocoder's input for a chunk. mel: (1, 80, T). noise: (1, N, waves)."""

    vocoder_stream: VocoderStream
    mel: Tensor
    noise: Tensor
    final: bool


class RenderRunner:
    """The flow and the vocoder of a bundle, and its prepared voices.

    Attributes:
        captures: of recorded steps that are left.
    """

    def __init__(
        self,
        version: CosyVoiceVersion,
        networks: RenderNetworks,
        policy: CosyVoicePolicy,
        voice_files: PreparedVoiceFolder | None = None,
        reserved_bytes: int = 0,
    ) -> None:
        """reserved_bytes: of the device's memory, that sentences leave free where steps are recorded."""
        self._flow: StreamingFlow = networks.flow
        self._device = networks.flow.device
        self._vocoder = networks.vocoder
        # Version 3 reads a table that all sentences begin anew.
        has_table = version is CosyVoiceVersion.V3
        self._noise_table = NoiseTable(self._vocoder.config.sine_count) if has_table else None
        self._voice_files = voice_files if _can_be_kept(networks.flow) else None
        self._vocoder_graphs = _vocoder_graphs(self._vocoder, self._device, policy)
        self._flow_runner = _flow_runner(networks.flow, policy, reserved_bytes)
        self.captures = self._planned_captures(_mel_frames(policy, prompt_tail_ids(version, speed=1.0)))
        self.captures.capture_for_first_sound()
        self._prepared: RecentlyUsed[str, object] = RecentlyUsed(policy.max_prepared_voices)

    def _planned_captures(self, mel_frames: Sequence[int]) -> CaptureQueue:
        """The flow's first: a chunk has ten steps of the flow and one of the vocoder."""
        captures = CaptureQueue()
        if isinstance(self._flow_runner, GraphFlowRunner):
            captures.add(*self._flow_runner.defer_captures(captures.add))
        if self._vocoder_graphs is not None:
            captures.add(*self._vocoder_graphs.planned_captures(mel_frames))
        return captures

    @property
    def memory_ids(self) -> int:
        """Speech ids for which there is memory."""
        return self._flow_runner.memory_ids

    @property
    def prepared_voice_ids(self) -> int:
        """Speech ids of memory that prepared voices take."""
        return sum(self._flow_runner.prepared_voice_ids(voice) for voice in self._prepared.values)

    def copied_voice_ids(self, flow_prompt: FlowPrompt) -> int:
        """Speech ids of memory that each sentence takes for its voice."""
        return self._flow_runner.copied_voice_ids(len(flow_prompt.ids))

    def begin_sentence(
        self, flow_prompt: FlowPrompt, speed: float, noise: np.random.Generator
    ) -> SentenceRenderState:
        """The state of a new sentence. noise: the session's generator; version 3 reads a fixed table instead.

        Raises MemoryError.
        """
        sequence = self._flow_runner.open_sentence(self._prepared_voice(flow_prompt))
        prompt_tail = self._to_device(flow_prompt.prompt_tail_mel)
        return SentenceRenderState(
            sequence, prompt_tail, MelStretcher(speed), self._new_vocoder_stream(noise)
        )

    def flow_batch_key(self, render_input: RenderInput) -> Hashable:
        """Equal for inputs that can share a ``run_flow``."""
        blocks = -(-render_input.length // BLOCK_IDS)
        if isinstance(self._flow_runner, GraphFlowRunner):
            return blocks
        final = render_input.chunk.final
        flow_key = self._flow_runner.batch_key(render_input.render_state.flow_sequence)
        return final, flow_key, blocks if final else render_input.length

    def run_flow(self, render_inputs: Mapping[int, RenderInput]) -> dict[int, Tensor]:
        """The mel of each chunk, (1, 80, T). Where steps are recorded, a mel takes several calls."""
        if isinstance(self._flow_runner, GraphFlowRunner):
            mels = self._advance_flow(render_inputs, self._flow_runner)
        else:
            sequences = [each.render_state.flow_sequence for each in render_inputs.values()]
            chunk = _flow_chunk([*render_inputs.values()], self._device)
            mels = dict(zip(render_inputs, self._flow_runner.step(chunk, sequences), strict=True))
        return {
            row: mel[None, :, : FRAMES_PER_SPEECH_ID * render_inputs[row].length] for row, mel in mels.items()
        }

    def _advance_flow(
        self, render_inputs: Mapping[int, RenderInput], runner: GraphFlowRunner
    ) -> dict[int, Tensor]:
        """Begin chunks that are not begun, and take a few Euler steps of all."""
        sequences = {row: each.render_state.flow_sequence for row, each in render_inputs.items()}
        for final in (False, True):
            new = [
                each
                for row, each in render_inputs.items()
                if each.chunk.final is final and sequences[row].chunk is None
            ]
            if new:
                handles = [each.render_state.flow_sequence for each in new]
                runner.begin(_flow_chunk(new, self._device), handles)
        return runner.advance(sequences)

    def vocoder_input(self, render_input: RenderInput, mel: Tensor) -> VocoderInput:
        """Stretch a chunk's mel to the session's speed and draw its noise; advances both, so call it once."""
        render_state, final = render_input.render_state, render_input.chunk.final
        prompt_frames = max(
            0, render_state.prompt_tail_mel.shape[1] - FRAMES_PER_SPEECH_ID * render_input.chunk.start
        )
        mel = render_state.speed.push(mel[:, :, prompt_frames:])
        if final:
            mel = torch.cat([mel, render_state.speed.finish()], 2)
        noise = render_state.vocoder_stream.draw_noise(mel.shape[2], last=final)
        return VocoderInput(render_state.vocoder_stream, mel, noise, final)

    def vocoder_batch_key(self, vocoder_input: VocoderInput) -> Hashable:
        """Equal for inputs that can share a ``run_vocoder``."""
        state_shapes = tuple(tensor.shape for tensor in tensors(vocoder_input.vocoder_stream.state))
        return vocoder_input.final, vocoder_input.mel.shape, state_shapes

    @torch.inference_mode()
    def run_vocoder(self, vocoder_inputs: Mapping[int, VocoderInput]) -> dict[int, Samples]:
        """The samples of each chunk, except those that depend on the next chunk."""
        rows = [*vocoder_inputs.values()]
        mel, noise = torch.cat([row.mel for row in rows]), torch.cat([row.noise for row in rows])
        states = [row.vocoder_stream.state for row in rows]
        if rows[0].final:
            samples = self._vocoder.finish(mel, noise, join_states(states))
        else:
            samples, states = self._step_vocoder(mel, noise, states)
            for row, state in zip(rows, states, strict=True):
                row.vocoder_stream.state = state
        return dict(zip(vocoder_inputs, to_host(samples).numpy(), strict=True))

    def free(self, render_state: SentenceRenderState) -> None:
        """Free the flow's state of a sentence that is not rendered further."""
        self._flow_runner.free(render_state.flow_sequence)

    def _step_vocoder(self, mel: Tensor, noise: Tensor, states: Sequence[Any]) -> tuple[Tensor, list[Any]]:
        if self._vocoder_graphs is None:
            return step_together(self._vocoder, mel, noise, states)
        return self._vocoder_graphs.step(mel, noise, states)

    def _prepared_voice(self, flow_prompt: FlowPrompt) -> object:
        return self._prepared.get(
            flow_prompt.key, lambda: self._flow_runner.prepare_voice(self._prefilled_voice(flow_prompt))
        )

    @torch.inference_mode()
    def _prefilled_voice(self, flow_prompt: FlowPrompt) -> FlowState:
        speaker = self._flow.project_speaker(self._to_device(flow_prompt.embedding[None]))
        blocks = max(0, len(flow_prompt.ids) - LOOKAHEAD_IDS) // BLOCK_IDS
        files, frames = self._voice_files, blocks * BLOCK_FRAMES
        if files is None or not frames or not files.keeps(flow_prompt.id):
            return self._prefill(flow_prompt, speaker)
        part = f"{type(self._flow).__name__}{len(flow_prompt.ids)}"  # ids are kept by speed
        empty = self._flow.init_state(speaker, frames)
        shapes = _form_on_file(packed_voice(map_state(lambda tensor: tensor.to("meta"), empty)))
        if stored := files.load(flow_prompt.id, part, shapes):
            return unpacked_voice(_as_tensors(stored), empty, frames)
        del empty
        state = self._prefill(flow_prompt, speaker)
        packed = packed_voice(state)
        files.save(flow_prompt.id, part, _on_file(packed))
        # Rounded now as it will be when it is read, so that a voice sounds the same after a restart.
        return unpacked_voice(packed, state, frames)

    def _prefill(self, flow_prompt: FlowPrompt, speaker: Tensor) -> FlowState:
        ids, mel = self._to_device(flow_prompt.ids[None]).long(), self._to_device(flow_prompt.mel[None])
        return self._flow.prefill(ids, mel, speaker)[0]

    def _to_device(self, numbers: NDArray[Any]) -> Tensor:
        return to_device(torch.from_numpy(numbers), self._device)

    def _new_vocoder_stream(self, noise: np.random.Generator) -> VocoderStream:
        draw = self._noise_table.open_reader().read if self._noise_table else self._normal_noise(noise)
        return VocoderStream(self._vocoder, draw, self._device)

    def _normal_noise(self, noise: np.random.Generator) -> Callable[[int], Tensor]:
        waves = self._vocoder.config.sine_count
        return lambda samples: draw_normal_on(self._device, noise, (1, samples, waves))


def _on_file(packed: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    return {name: tensor.numpy() for name, tensor in packed.items()}


def _form_on_file(packed: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    """Arrays of the shapes and types of tensors on the device "meta"; their contents are undefined."""
    return {
        name: np.empty(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        for name, tensor in packed.items()
    }


def _as_tensors(stored: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array) for name, array in stored.items()}


def _can_be_kept(flow: StreamingFlow) -> bool:
    """Whether voices can be kept on file: their memories are whole keys and values in float32, on a CPU."""
    return flow.policy == replace(EXACT_POLICY, reserve_frames=flow.policy.reserve_frames) and (
        flow.device.type == "cpu"
    )


def _flow_runner(flow: StreamingFlow, policy: CosyVoicePolicy, reserved_bytes: int) -> FlowRunner[Any, Any]:
    if not supports_graphs(flow):
        return EagerFlowRunner(flow, policy.memory_share)
    return GraphFlowRunner(
        flow,
        policy.memory_share,
        rows=policy.max_render_rows,
        sentences=policy.slots,
        max_prompt_ids=policy.max_prompt_ids,
        max_hop=policy.max_hop,
        reserved_bytes=reserved_bytes,
    )


def _vocoder_graphs(vocoder: Vocoder, device: torch.device, policy: CosyVoicePolicy) -> VocoderGraphs | None:
    """Steps of a vocoder that torch computes on a device other than the CPU."""
    if device.type == "cpu" or not isinstance(vocoder, HiftNetwork):
        return None
    return VocoderGraphs(vocoder, device, policy.max_render_rows)


def _mel_frames(policy: CosyVoicePolicy, tail_ids: int) -> list[int]:
    """Mel frames of the first chunks of a sentence at speed 1.0, up to one after the longest hop.

    tail_ids: speech ids whose sound the first chunk drops.
    """
    schedule = HopSchedule(hop=policy.first_hop, max_hop=policy.max_hop)
    hops: list[int] = []
    while len(hops) < 3 or hops[-1] != hops[-2]:
        hops.append(schedule.hop)
        schedule.next(sys.maxsize, ended=False)
    return [FRAMES_PER_SPEECH_ID * (hop - (0 if index else tail_ids)) for index, hop in enumerate(hops)]


def _flow_chunk(render_inputs: Sequence[RenderInput], device: torch.device) -> FlowChunk:
    """The chunks as rows of one batch, padded if final chunks differ in length; ids stay on the host."""
    lengths = tuple(render_input.length for render_input in render_inputs)
    max_length = max(lengths)
    ids = torch.zeros(len(render_inputs), max_length, dtype=torch.int64)
    mel = torch.zeros(len(render_inputs), MEL_BANDS, FRAMES_PER_SPEECH_ID * max_length, device=device)
    for row, render_input in enumerate(render_inputs):
        chunk = render_input.chunk
        ids[row, : render_input.length] = torch.tensor(render_input.ids[chunk.start : chunk.stop])
        prompt_tail = render_input.render_state.prompt_tail_mel[:, FRAMES_PER_SPEECH_ID * chunk.start :]
        mel[row, :, : prompt_tail.shape[1]] = prompt_tail
    future = torch.tensor(
        [
            render_input.ids[render_input.chunk.stop : render_input.chunk.lookahead_stop]
            for render_input in render_inputs
        ],
        dtype=torch.int64,
    )
    return FlowChunk(ids, future, mel, lengths if len(set(lengths)) > 1 else None)
