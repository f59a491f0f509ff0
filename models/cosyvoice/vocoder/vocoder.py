"""The interface of the vocoders, for either version and any library that computes them."""

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor

from ...networks.state import gather, join_states
from ..config import HiftConfig


class Vocoder(Protocol):
    """Mel to samples in chunks. A state is a tree of batch-first tensors, of a type of the vocoder's own."""

    config: HiftConfig

    def init_state(self, rows: int) -> Any:
        """The state before the first chunk."""

    def noise_samples(self, mel_frames: int, state: Any, *, last: bool) -> int:
        """Samples of noise that ``step``, or ``finish`` if ``last``, needs for ``mel_frames`` new frames."""

    def step(self, mel: Tensor, noise: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Samples (B, N) of a chunk, less those that depend on the next one, and the next state.

        mel: (B, 80, n). noise: (B, ``noise_samples``, waves); standard normal in version 2, uniform in 0..1
        in version 3.
        """

    def finish(self, mel: Tensor, noise: Tensor, state: Any) -> Tensor:
        """All remaining samples."""


def step_together(
    vocoder: Vocoder, mel: Tensor, noise: Tensor, states: Sequence[Any]
) -> tuple[Tensor, list[Any]]:
    """``Vocoder.step`` for streams whose states have 1 row each and equal shapes: samples, next states."""
    samples, state = vocoder.step(mel, noise, join_states(states))
    return samples, [gather(state, [row]) for row in range(len(states))]
