"""Rendering of a line of the packaged voice in pieces, and what of it is kept."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...models.hibari import voice as hibari_voice
from ...models.hibari.harmonic_vocoder import Band
from ...models.hibari.melody import Melody, shape
from ...models.hibari.phonemizer import PhonemeLine

# Frames of 12.5 ms in each step of a stream: 0.2 s for an early first sound, then larger, because a step
# has a fixed cost of about 0.5 ms.
STEP_FRAMES: Final = (16, 32, 64)
_WORD_BYTES: Final = 192  # its times, and its share of the line's phonemes
NO_FRAMES: Final = np.zeros((1, 0, 0), np.float32)


@dataclass(frozen=True, slots=True)
class LineRequest:
    """Everything that the samples of a line depend on."""

    line: PhonemeLine
    before: PhonemeLine | None  # of the same sentence
    after: PhonemeLine | None  # encoded after the line, and not rendered
    speed: float
    melody: Melody
    noise_row: int  # to begin with
    band: Band
    steps: int  # of the stream before this line

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for requests of equal samples in equal pieces."""
        lines = [line and (line.ids.tobytes(), line.words) for line in (self.line, self.before, self.after)]
        first_step = min(self.steps, len(STEP_FRAMES) - 1)
        return (*lines, self.speed, self.melody, self.noise_row, self.band, first_step)


@dataclass(frozen=True, slots=True)
class LinePiece:
    """What one step renders."""

    samples: NDArray[np.float32]  # (N,) at the band's rate
    mel_frames: tuple[int, int]  # decoded in this step
    line: hibari_voice.EncodedLine  # without its hidden frames
    word_times: tuple[tuple[float, float], ...]  # (start, stop) in seconds from the line's first sample
    rendered_s: float  # of the line, with these samples
    lead_s: float  # what the time of a frame has more than the time at which its sound is heard
    last: bool

    @property
    def nbytes(self) -> int:
        """Bytes of memory, with a share of the line's."""
        return self.samples.nbytes + _WORD_BYTES * len(self.word_times) + 512


def render_line(voice: hibari_voice.HibariVoice, request: LineRequest) -> Iterator[LinePiece]:
    """Encode a line and render it piece by piece."""
    encoded = voice.encode_between(request.line, request.before, request.after, request.speed)
    encoded = shape(encoded, request.melody)
    described = replace(encoded, hidden=NO_FRAMES)
    state = voice.init_state(encoded, request.noise_row, request.band)
    steps, last = request.steps, False
    while not last:
        first = state.decoded_frames
        frames = STEP_FRAMES[min(steps, len(STEP_FRAMES) - 1)]
        samples, state = voice.step(encoded, state, frames)
        steps, last = steps + 1, hibari_voice.is_finished(encoded, state)
        yield LinePiece(
            samples,
            (first, state.decoded_frames),
            described,
            tuple(hibari_voice.word_times(described, state)),
            state.samples / state.sample_rate,
            hibari_voice.lead_s(state),
            last,
        )
