"""Decode steps of the language model of XTTS on a GPU, captured once as CUDA graphs and replayed.

A step feeds a speech id to each of the first rows of the memory, and gives their latents and scores; the host
samples. It is captured for a number of rows and of attended positions, each rounded up to a bucket. Rows that
take no part write to the scratch position:

    row            0    1    2    3          rows 0 and 2 decode, 4 rows are computed
    write to       57   end  203  end        256 positions are attended to

Where one kernel computes all layers (``TorchXttsGpt.has_fused_layers``), it reads what each row has, so that
the step is captured for the whole memory. Elsewhere torch computes them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..decoding.kv_memory import SpeechLmState, input_and_write_positions, plan_kv_step
from ..networks.cuda_graphs import CapturedSteps, GraphMemoryPool, StagingBuffer, StepGraph, bucket, buckets
from .gpt import TorchXttsGpt

_MIN_ATTENDED = 128  # smallest bucket of attended positions


@dataclass(frozen=True, slots=True)
class GptGraphKey:
    """Sizes for which a step is captured."""

    rows: int  # the first rows of the memory
    attended_positions: int


@dataclass(frozen=True, slots=True)
class _GptStepInputs:
    """Inputs of a captured step, on the host or on the device; (B, 1) int64 each."""

    ids: Tensor
    decoded: Tensor  # ids before it
    positions: Tensor
    write_positions: Tensor


class XttsDecodeGraphs:
    """Captured steps on one memory, whose keys and values they write in place."""

    def __init__(self, gpt: TorchXttsGpt, state: SpeechLmState) -> None:
        self._gpt, self._state = gpt, state
        self._steps: CapturedSteps[GptGraphKey, _CapturedGptStep] = CapturedSteps(
            gpt.device, lambda key, pool: _CapturedGptStep(gpt, state, key, pool)
        )

    @property
    def recorded(self) -> tuple[GptGraphKey, ...]:
        """Sizes for which steps have been captured."""
        return self._steps.keys

    @torch.inference_mode()
    def record(self) -> None:
        """Capture all steps, so that no session waits for a capture later."""
        for rows in buckets(len(self._state.lengths)):
            for attended in buckets(self._state.capacity, self._min_attended(rows)):
                self._steps.get(GptGraphKey(rows, attended))

    @torch.inference_mode()
    def step(self, ids: Tensor, decoded: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Feed ids (B, 1) after ``decoded`` (B, 1) others to the first B rows, where ``valid`` (B,) is 1.

        All are int64 on the host. Returns the latents (B, hidden) and the scores (B, V) float32, on the
        device and valid until the next step; undefined in other rows. Raises ValueError if a row would
        outgrow its memory.
        """
        lengths = self._state.lengths[: len(ids)] * valid + valid
        max_length = int(lengths.max())
        if max_length > self._state.capacity:
            raise ValueError(
                f"a row would hold {max_length} ids; its memory was made for {self._state.capacity}"
            )
        rows = bucket(len(ids), len(self._state.lengths))
        attended = bucket(max_length, self._state.capacity, self._min_attended(rows))
        return self._steps.get(GptGraphKey(rows, attended)).run(ids, decoded, valid)

    def _min_attended(self, rows: int) -> int:
        """The smallest bucket of attended positions."""
        return self._state.capacity if self._gpt.has_fused_layers(rows) else _MIN_ATTENDED


class _CapturedGptStep:
    """One captured step and its staging buffer."""

    def __init__(
        self, gpt: TorchXttsGpt, state: SpeechLmState, key: GptGraphKey, pool: GraphMemoryPool | None
    ) -> None:
        self._gpt, self._state, self._key = gpt, state, key
        zeros = torch.zeros(key.rows, 1, dtype=torch.int64)
        idle = _GptStepInputs(zeros, zeros, zeros, torch.full_like(zeros, state.capacity))
        self._staging = StagingBuffer(idle, gpt.device)
        self._graph = StepGraph(self._compute, gpt.device, pool)

    def run(self, ids: Tensor, decoded: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """As ``XttsDecodeGraphs.step``."""
        rows, host = len(ids), self._staging.host
        host.write_positions.fill_(self._state.capacity)
        fed = SpeechLmState(self._state.kv[:rows], self._state.lengths[:rows])
        positions, write_positions = input_and_write_positions(fed, valid, 1)
        for buffer, numbers in (
            (host.ids, ids),
            (host.decoded, decoded),
            (host.positions, positions * valid[:, None]),
            (host.write_positions, write_positions),
        ):
            buffer[:rows].copy_(numbers)
        self._staging.upload()
        latents, logits = self._graph.replay()
        return latents[:rows], logits[:rows]

    def _compute(self) -> tuple[Tensor, Tensor]:
        inputs, key = self._staging.on_device_tensors, self._key
        x, kv = self._gpt.embed_speech(inputs.ids, inputs.decoded), self._state.kv[: key.rows]
        places = (inputs.positions, inputs.write_positions, key.attended_positions)
        if self._gpt.has_fused_layers(key.rows):
            hidden = self._gpt.run_fused_layers(x, kv, *places)
        else:
            hidden = self._gpt.run_layers(x, kv, plan_kv_step(*places))
        latents = self._gpt.latents(hidden[:, 0])
        return latents, self._gpt.logits(latents).float()
