"""TODO."""

import torch
from torch import Tensor

from .layers import MEL_BANDS

# Draws that upstream makes from its seed 0 between the solver's noise and the noise table, in the released
# sizes.
NOISE_TABLE_OFFSET = 3_852_970


class NoiseTable:
    """Upstream's 259 MB of uniform noise as the generator that it was drawn with: 5 KB a session.

    The table is (7,200,000, waves) of float32, drawn in order after seed 0; a session reads it from the
    beginning and in order, so that drawing again gives the same numbers. After 300 s upstream has none; here
    the draws go on.
    """

    def __init__(self, waves: int, skipped_draws: int = NOISE_TABLE_OFFSET) -> None:
        self._waves = waves
        self._generator = torch.Generator().manual_seed(0)
        torch.randn(1, MEL_BANDS, 15_000, generator=self._generator)
        torch.rand(skipped_draws, generator=self._generator)

    def open_reader(self) -> "NoiseReader":
        """A reader at the beginning of the table."""
        return NoiseReader(self._waves, self._generator.clone_state())


class NoiseReader:
    """Reads a noise table from its beginning."""

    def __init__(self, waves: int, generator: torch.Generator) -> None:
        self._waves = waves
        self._generator = generator

    def read(self, samples: int) -> Tensor:
        """The next rows: (1, samples, waves), uniform in 0..1."""
        return torch.rand(1, samples, self._waves, generator=self._generator)
