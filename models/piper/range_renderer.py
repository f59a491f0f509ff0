"""Renders any range of samples by parts in a row, of which each computes a range of its output.

    part 0    |context| known |      new      |context|
    part 1              |context| known |  new  |context|       at its own rate
    samples                             |  new  |

A part computes each position once. It keeps the last ones that it gave, which the next part needs as context.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..devices.onnx_sessions import OnnxSessions
from .graph import LocalGraph

Float = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class KeptOutput:
    """Output of a part that the next part may need. values: (1, C, n), from the position ``start`` on."""

    values: Float
    start: int

    @property
    def stop(self) -> int:
        """The first position that is not computed yet."""
        return self.start + int(self.values.shape[2])

    def range(self, positions: slice) -> Float:
        """The values at some positions."""
        return self.values[:, :, positions.start - self.start : positions.stop - self.start]

    def followed_by(self, values: Float) -> "KeptOutput":
        """With the values after these."""
        return KeptOutput(np.concatenate([self.values, values], axis=2), self.start)

    def kept_from(self, start: int) -> "KeptOutput":
        """Without the positions before ``start``, whose memory is freed."""
        start = max(start, self.start)
        return KeptOutput(self.range(slice(start, self.stop)).copy(), start)


RangeState = tuple[KeptOutput, ...]  # of each part; empty before the first range


@dataclass(frozen=True, slots=True)
class _Step:
    """What a part computes now: positions of its input from ``first`` to ``stop``, with their context."""

    first: int
    stop: int
    context: slice  # of the input


class RangeRenderer:
    """Inference sessions of the parts. ``render`` may be called from several threads."""

    def __init__(self, graphs: Sequence[LocalGraph], sessions: OnnxSessions) -> None:
        self._graphs = tuple(graphs)
        self._sessions = [sessions.open(graph.model) for graph in graphs]

    def render(
        self, values: Mapping[str, Float], frames: int, state: RangeState, start: int, stop: int
    ) -> tuple[Float, RangeState]:
        """The samples (n,) from ``start`` to ``stop``, and the next state.

        values: the encoder's outputs by name. frames: of the clause. state: empty, or the one that the range
        before this one gave.
        """
        kept: list[KeptOutput] = list(state)
        for index, step in enumerate(self._plan(frames, state, start, stop)):
            if step is None:
                continue
            graph = self._graphs[index]
            if index:
                shown = kept[index - 1].range(step.context)
                kept[index - 1] = kept[index - 1].kept_from(step.stop - graph.context)
            else:
                shown = values[graph.inputs[0]][:, :, step.context]
            output = self._run(index, values, frames, shown)
            first = (step.first - step.context.start) * graph.rate
            output = output[:, :, first : first + (step.stop - step.first) * graph.rate]
            if state:
                kept[index] = kept[index].followed_by(output)
            else:
                kept.append(KeptOutput(output, step.first * graph.rate))
        samples = kept[-1].range(slice(start, stop))
        kept[-1] = kept[-1].kept_from(stop)
        return samples.reshape(-1), tuple(kept)

    def _plan(self, frames: int, state: RangeState, start: int, stop: int) -> Sequence[_Step | None]:
        """The step of each part so that the last one gives the samples from ``start`` to ``stop``."""
        steps: list[_Step | None] = []
        positions = frames * math.prod(graph.rate for graph in self._graphs)
        for graph, kept in zip(
            reversed(self._graphs), reversed(state or (None,) * len(self._graphs)), strict=True
        ):
            positions //= graph.rate
            first, end = (kept.stop if kept else start) // graph.rate, -(-stop // graph.rate)
            if first >= end:
                break  # it has given them before
            if kept:
                end = max(end, min(positions, first + graph.least_step))
            start, stop = max(0, first - graph.context), min(positions, end + graph.context)
            steps.append(_Step(first, end, slice(start, stop)))
        without = len(self._graphs) - len(steps)
        return [*(None,) * without, *reversed(steps)]

    def _run(self, index: int, values: Mapping[str, Float], frames: int, shown: Float) -> Float:
        """The output of a part (1, C, n) for a range of its main input; other inputs are cut to as many."""
        main, *others = self._graphs[index].inputs
        feed = {main: shown}
        for name in others:
            value = values[name]
            feed[name] = value[..., : shown.shape[2]] if value.shape[-1] == frames else value
        output: Float = self._sessions[index].run(None, feed)[0]
        return output.reshape(1, -1, output.shape[-1])
