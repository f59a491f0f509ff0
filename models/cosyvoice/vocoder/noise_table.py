"""Upstream's table of uniform noise for the v3 vocoder, drawn on demand.

Upstream keeps (7,200,000, waves) float32, 259 MB, drawn in order after seed 0. Every session reads the table
from its beginning and in order, so a clone of the generator gives the same numbers from 5 KB a session.
Upstream has no noise after 300 s; here the draws continue.

Source: FunAudioLLM/CosyVoice@ace7c47 hifigan/generator.py (SineGen2), flow/flow_matching.py (rand_noise).
"""

import torch
from torch import Tensor

from ..config import MEL_BANDS

# Draws that upstream makes between the solver's noise and the table, at the released sizes. All of them come
# from one generator, so they have to be skipped.
NOISE_TABLE_OFFSET = 3_852_970


class NoiseTable:
    """The generator of the table, positioned at its first row. waves: columns of the table."""

    def __init__(self, waves: int, skipped_draws: int = NOISE_TABLE_OFFSET) -> None:
        self._waves = waves
        self._generator = torch.Generator().manual_seed(0)
        torch.randn(1, MEL_BANDS, 15_000, generator=self._generator)  # the solver's noise comes first
        torch.rand(skipped_draws, generator=self._generator)

    def open_reader(self) -> "NoiseReader":
        """A reader at the beginning of the table."""
        return NoiseReader(self._waves, self._generator.clone_state())


class NoiseReader:
    """Reads a noise table in order, for one session."""

    def __init__(self, waves: int, generator: torch.Generator) -> None:
        self._waves = waves
        self._generator = generator

    def read(self, samples: int) -> Tensor:
        """The next rows: (1, samples, waves), uniform in 0..1."""
        return torch.rand(1, samples, self._waves, generator=self._generator)
