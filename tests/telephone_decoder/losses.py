"""The losses of the student, on windows of rendered frames and on the sound that they make.

    magnitude   |log magnitude - the teacher's|, of each part, weighted by the root of its share of the power
    phase       1 - cos of the angle between student and teacher, of each part, weighted so too
    power       |log power of both parts together - the teacher's|
    sound       spectra of three resolutions of the samples; counts four times as much in the last third

Bins count by their loudness: in full at the level of loud vowels, a tenth 60 dB below.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from telephone_decoder.student import PAIR, Student
from telephone_decoder.teacher import Lessons
from vivavoce.models.hibari import harmonic_vocoder
from vivavoce.models.hibari.harmonic_vocoder import TELEPHONE_BAND, _source, _synthesis_window

_LOUD_DB = 30.0  # of a bin, 20 log10 of its magnitude
_RANGE_DB = 60.0
_LEAST_WEIGHT = 0.1
_FLOOR = 1e-2  # of a magnitude
_HEARD_BINS = slice(15, 171)  # 300 to 3,400 Hz
_LEAST_LOG10 = (_LOUD_DB - _RANGE_DB) / 10  # of a power
_SOUND_FLOOR = 1e-5  # of a power
_RESOLUTIONS = (128, 256, 512)
_LEAST_FRAMES = 32  # rendered, of a line that is drawn
_EDGE_BLOCKS = 3  # at both ends of a window that not all frames cover

Losses = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Batch:
    """Windows of lessons. R rendered frames each."""

    hidden: Tensor  # (B, R + 40, 130)
    parts: Tensor  # (B, R, 4, 200), the teacher's
    source: Tensor  # (B, R, 2, 200) of the pulse train, real and imaginary; 0 where unvoiced
    rendered: Tensor  # (B, R, 1) 1 or 0: a short line fills its window in part


class Windows:
    """Draws windows of the rendered frames of lessons.

    Args:
        frames: rendered frames of a window, even.
        reach: pairs of frames before and after, as of the student.
    """

    def __init__(self, lessons: Lessons, frames: int, reach: tuple[int, int]) -> None:
        self._lessons, self._frames = lessons, frames
        self._before, self._after = (PAIR * pairs for pairs in reach)
        rendered = lessons.lines[:, 3] - lessons.lines[:, 2]
        self._usable = np.flatnonzero(rendered >= _LEAST_FRAMES)
        self._shares = rendered[self._usable] / rendered[self._usable].sum()

    def draw(self, draw: np.random.Generator, windows: int) -> Batch:
        """So many windows, from anywhere in the lessons."""
        chosen = draw.choice(self._usable, windows, p=self._shares)
        return self.batch([(line, draw.random()) for line in chosen])

    def batch(self, places: list[tuple[int, float]]) -> Batch:
        """The windows at places, each a line and a share (0..1) of where a window can begin in it."""
        cut = [self._cut(line, share) for line, share in places]
        return Batch(*(torch.from_numpy(np.stack(arrays)) for arrays in zip(*cut, strict=True)))

    def _cut(self, line: int, share: float) -> tuple[NDArray[Any], ...]:
        """A row of each tensor of a batch."""
        at, length, onset, stop = (int(number) for number in self._lessons.lines[line])
        lowest, highest = onset + onset % PAIR, stop - self._frames
        first = max(0, lowest + int(share * max(0, highest - lowest + 1))) // PAIR * PAIR
        hidden = _padded(
            self._lessons.hidden[at : at + length], first - self._before, first + self._frames + self._after
        )
        parts = _padded(self._lessons.parts[at : at + length], first, first + self._frames)
        f0 = self._lessons.f0[at : at + length]
        state = harmonic_vocoder.init_state(first, 0, TELEPHONE_BAND)
        voiced, spectrum, _ = _source(f0, state, self._frames)
        source = np.zeros((self._frames, 2, TELEPHONE_BAND.bins), np.float32)
        source[voiced] = np.stack([spectrum.real, spectrum.imag], 1)
        rendered = (np.arange(first, first + self._frames) < stop).astype(np.float32)
        return hidden, parts, source, rendered[:, None]


def _padded(rows: NDArray[np.float16], first: int, stop: int) -> NDArray[np.float32]:
    """Rows first to stop - 1, with zeros for those that are not there."""
    found = rows[max(0, first) : max(0, stop)].astype(np.float32)
    before = max(0, -first)
    pad = [(before, stop - first - before - len(found)), *[(0, 0)] * (rows.ndim - 1)]
    return np.pad(found, pad)


def losses(student: Student, batch: Batch, sound_weight: float) -> Losses:
    """The losses of a batch; their sum is minimised."""
    result, mixed, wanted = frame_losses(student(batch.hidden), batch.parts, batch.source, batch.rendered)
    heard, told = _samples(mixed), _samples(wanted)
    return {**result, "sound": sound_weight * spectral_distance(heard, told)}


def frame_losses(
    parts: Tensor, target: Tensor, source: Tensor, rendered: Tensor
) -> tuple[Losses, Tensor, Tensor]:
    """The losses but for that of the sound, and the spectra of student and teacher, (2, B, R, bins).

    The first of two is the real part.
    """
    harmonic, free, told_harmonic, told_free = (
        parts[:, :, 0],
        parts[:, :, 3],
        target[:, :, 0],
        target[:, :, 2],
    )
    source_power = source[:, :, 0] ** 2 + source[:, :, 1] ** 2
    voiced = (source_power.amax(2, keepdim=True) > 0).float()
    harmonic_power = (2 * told_harmonic).exp() * source_power
    free_power = (2 * told_free).exp()
    power = harmonic_power + free_power + _FLOOR**2
    loudness = 1 + (10 * power.log10() - _LOUD_DB) / _RANGE_DB
    weight = loudness.clamp(_LEAST_WEIGHT, 1) * rendered
    harmonic_weight = weight * (harmonic_power / power).sqrt() * voiced
    free_weight = weight * (free_power / power).sqrt()
    scale = 1 / weight.sum()
    angle = _directions(target[:, :, 1].cos(), target[:, :, 1].sin())
    free_angle = _directions(target[:, :, 3].cos(), target[:, :, 3].sin())
    own_angle = _directions(parts[:, :, 1], parts[:, :, 2])
    own_free_angle = _directions(parts[:, :, 4], parts[:, :, 5])
    mixed = _mix(harmonic, own_angle, free, own_free_angle, source) * rendered
    wanted = _mix(told_harmonic, angle, told_free, free_angle, source) * rendered
    result = {
        "harmonic": scale * (harmonic_weight * (harmonic - told_harmonic).abs()).sum(),
        "harmonic_phase": scale * (harmonic_weight * (1 - (own_angle * angle).sum(0))).sum(),
        "free": scale * (free_weight * (free - told_free).abs()).sum(),
        "free_phase": scale * (free_weight * (1 - (own_free_angle * free_angle).sum(0))).sum(),
        "power": 0.5 * scale * (weight * (_log_power(mixed) - _log_power(wanted)).abs()).sum(),
    }
    return result, mixed, wanted


def _directions(cosine: Tensor, sine: Tensor) -> Tensor:
    """(2, B, R, bins) of length 1."""
    return torch.stack([cosine, sine]) * torch.rsqrt(cosine**2 + sine**2 + 1e-6)


def _mix(harmonic: Tensor, angle: Tensor, free: Tensor, free_angle: Tensor, source: Tensor) -> Tensor:
    """The spectrum of both parts, real before imaginary: (2, B, R, bins)."""
    level, free_level = harmonic.clamp(max=7).exp(), free.clamp(max=7).exp()
    real = level * (angle[0] * source[:, :, 0] - angle[1] * source[:, :, 1]) + free_level * free_angle[0]
    imaginary = level * (angle[0] * source[:, :, 1] + angle[1] * source[:, :, 0]) + free_level * free_angle[1]
    return torch.stack([real, imaginary])


def _log_power(spectrum: Tensor) -> Tensor:
    return (spectrum[0] ** 2 + spectrum[1] ** 2 + _FLOOR**2).log()


def _samples(spectrum: Tensor) -> Tensor:
    """Overlap-add as in ``harmonic_vocoder``: (2, B, R, bins) -> (B, N), where all frames add up."""
    window = TELEPHONE_BAND.window
    pieces = torch.fft.irfft(torch.complex(spectrum[0], spectrum[1]), window, dim=2)
    pieces = pieces * torch.from_numpy(_synthesis_window(TELEPHONE_BAND.decimation))
    batch, frames, _ = pieces.shape
    blocks = pieces.reshape(batch, frames, window // TELEPHONE_BAND.hop, TELEPHONE_BAND.hop)
    whole = frames - _EDGE_BLOCKS
    summed = sum(
        blocks[:, _EDGE_BLOCKS - at : _EDGE_BLOCKS - at + whole, at] for at in range(_EDGE_BLOCKS + 1)
    )
    assert isinstance(summed, Tensor)
    return summed.reshape(batch, -1)


def spectral_distance(samples: Tensor, wanted: Tensor) -> Tensor:
    """Mean |log magnitude| difference over three resolutions, plus the relative one of magnitudes."""
    distances: list[Tensor] = []
    for size in _RESOLUTIONS:
        window = torch.hann_window(size)
        own, other = (
            torch.stft(each, size, size // 4, window=window, center=False, return_complex=True)
            for each in (samples, wanted)
        )
        distances += _distances(torch.view_as_real(own), torch.view_as_real(other))
    return torch.stack(distances).mean()


def _distances(own: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    own, other = ((each[..., 0] ** 2 + each[..., 1] ** 2 + _SOUND_FLOOR).sqrt() for each in (own, other))
    return (own.log() - other.log()).abs().mean(), (own - other).norm() / other.norm()


@torch.no_grad()
def log_spectral_distance_db(student: Student, batches: Sequence[Batch]) -> float:
    """Root mean square over the bins of 300 to 3,400 Hz of the difference to the teacher, mean of frames.

    Magnitudes more than 60 dB below loud vowels count as that.
    """
    distances, rendered = [], []
    for batch in batches:
        _, mixed, wanted = frame_losses(student(batch.hidden), batch.parts, batch.source, batch.rendered)
        own, other = (
            10 * (_log_power(each) / np.log(10)).clamp(min=_LEAST_LOG10) for each in (mixed, wanted)
        )
        squares = (own - other)[:, :, _HEARD_BINS] ** 2
        distances.append(squares.mean(2).sqrt())
        rendered.append(batch.rendered[:, :, 0])
    return float((torch.cat(distances) * torch.cat(rendered)).sum() / torch.cat(rendered).sum())
