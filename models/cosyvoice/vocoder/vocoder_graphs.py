"""Recorded steps of a vocoder: the chunks that most sentences consist of, replayed as CUDA graphs.

A step is hundreds of small operations, which a GPU computes faster than the host launches them. One is
recorded for each number of rows, rounded up to a bucket, and for the mel frames and the state's shapes of a
chunk. A sentence of version 2 at speed 1.0, with longest hops of 50 speech ids, behind 11 ids whose sound is
dropped:

    mel frames    |-- 28 --|--- 50 ---|----- 100 -----|----- 100 -----|- any -|
    state          empty    growing    full            full            full
                   recorded recorded   recorded        the same        finish: without a graph

Other chunks run without a graph: other speeds and last chunks have any length. Padding rows compute whatever
their inputs hold, and their results are dropped. A graph uses the plans that cuFFT made for its warm-up;
torch keeps the last 4096 plans, one for each number of spectra in a step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...devices.planned_captures import PlannedCapture
from ...networks.cuda_graphs import GraphMemoryPool, StepGraph, bucket, bucket_ranges, new_graph_pool
from ...networks.state import map_state, tensors
from ..config import MEL_BANDS
from .layers import Vocoder, step_together

_ROW_GROWTH = 8  # from a bucket of rows to the next: a row of padding takes less time than a graph at load


@dataclass(frozen=True, slots=True)
class _VocoderGraphKey:
    """The shapes that a step is recorded for."""

    rows: int
    mel_frames: int
    state_shapes: tuple[torch.Size, ...]  # of one row


class VocoderGraphs:
    """Runs the steps of a vocoder for several streams, with recorded steps where there are any.

    Create one for up to ``rows`` rows in a step. The vocoder must compute with torch on ``device``.
    """

    def __init__(self, vocoder: Vocoder, device: torch.device, rows: int) -> None:
        self._vocoder, self._device, self._rows = vocoder, device, rows
        self._pool = new_graph_pool(device)
        self._steps: dict[_VocoderGraphKey, _RecordedVocoderStep] = {}

    @property
    def recorded_count(self) -> int:
        """Number of recorded steps."""
        return len(self._steps)

    def planned_captures(self, mel_frames: Sequence[int]) -> list[PlannedCapture]:
        """The captures of a sentence whose chunks have these mel frames, in order, for all row counts."""
        return [
            PlannedCapture(
                f"the vocoder's step of {rows} rows and {frames} frames",
                min_rows,
                is_for_first_sound=index == 0 and rows == 1,
                capture=partial(self._capture, mel_frames[: index + 1], rows),
            )
            for min_rows, rows in bucket_ranges(self._rows, growth=_ROW_GROWTH)
            for index, frames in enumerate(mel_frames)
        ]

    @torch.inference_mode()
    def _capture(self, mel_frames: Sequence[int], rows: int) -> None:
        """Record the last of a sentence's first chunks; the others give the shapes of the state before it."""
        state = self._vocoder.init_state(1)
        for frames in mel_frames[:-1]:
            _, state = self._vocoder.step(*_zero_inputs(self._vocoder, self._device, frames, state), state)
        mel, noise = _zero_inputs(self._vocoder, self._device, mel_frames[-1], state)
        key = _key(rows, mel_frames[-1], state)
        if key not in self._steps:
            self._steps[key] = _RecordedVocoderStep(
                self._vocoder, self._device, self._pool, _in_rows((mel, noise, state), rows)
            )

    @torch.inference_mode()
    def step(self, mel: Tensor, noise: Tensor, states: Sequence[Any]) -> tuple[Tensor, list[Any]]:
        """``Vocoder.step`` for streams whose states have equal shapes: samples (B, N), and the next states.

        mel: (B, 80, n). noise: (B, ``noise_samples``, waves). states: one of 1 row for each stream, which
        stay as they are.
        """
        key = _key(bucket(len(states), self._rows, growth=_ROW_GROWTH), mel.shape[2], states[0])
        if len(states) > self._rows or key not in self._steps:
            return step_together(self._vocoder, mel, noise, states)
        return self._steps[key].run(mel, noise, states)


class _RecordedVocoderStep:
    """One recorded step and its inputs. inputs: mel, noise and state, which the step keeps."""

    def __init__(
        self,
        vocoder: Vocoder,
        device: torch.device,
        pool: GraphMemoryPool | None,
        inputs: tuple[Tensor, Tensor, Any],
    ) -> None:
        self._vocoder = vocoder
        self._mel, self._noise, self._state = inputs
        self._graph = StepGraph(self._compute, device, pool)

    def run(self, mel: Tensor, noise: Tensor, states: Sequence[Any]) -> tuple[Tensor, list[Any]]:
        """``VocoderGraphs.step`` for at most as many rows as were recorded."""
        rows = len(states)
        self._mel[:rows], self._noise[:rows] = mel, noise
        for recorded, *parts in zip(tensors(self._state), *map(tensors, states), strict=True):
            torch.cat(parts, out=recorded[:rows])
        # Copied, because the next replay overwrites the results.
        samples, following = map_state(lambda result: result[:rows].clone(), self._graph.replay())
        return samples, [_row(following, row) for row in range(rows)]

    def _compute(self) -> tuple[Tensor, Any]:
        return self._vocoder.step(self._mel, self._noise, self._state)


def _key(rows: int, mel_frames: int, state: Any) -> _VocoderGraphKey:
    return _VocoderGraphKey(rows, mel_frames, tuple(tensor.shape[1:] for tensor in tensors(state)))


def _zero_inputs(
    vocoder: Vocoder, device: torch.device, mel_frames: int, state: Any
) -> tuple[Tensor, Tensor]:
    """Mel (1, 80, n) and noise (1, N, waves) of a chunk, all 0."""
    samples = vocoder.noise_samples(mel_frames, state, last=False)
    return (
        torch.zeros(1, MEL_BANDS, mel_frames, device=device),
        torch.zeros(1, samples, vocoder.config.sine_count, device=device),
    )


def _in_rows(inputs: tuple[Tensor, Tensor, Any], rows: int) -> tuple[Tensor, Tensor, Any]:
    """Copies of the only row, ``rows`` times."""
    return map_state(lambda tensor: torch.cat([tensor] * rows), inputs)


def _row(state: Any, row: int) -> Any:
    """A row, without a copy."""
    return map_state(lambda tensor: tensor[row : row + 1], state)
