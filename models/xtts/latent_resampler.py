"""Brings latents of the language model to the rate of the vocoder's frames, as they arrive.

    latents 21.5/s -> [1 / speed] -> x 4 -> x 24000 / 22050 -> frames 93.75/s

Each change of rate is a linear interpolation between the two nearest inputs, held at both ends. An output is
made once both of its neighbours are known, so that the frames are those of the whole utterance however the
latents were split.

    input   0     1     2     3            the neighbours of an output at input time (j + 1/2) / scale - 1/2
    output 0  1  2  3 ...                  scale 4; outputs before input 0 and past the last one repeat it

Source: idiap/coqui-ai-TTS 0.28.0 TTS/tts/layers/xtts/hifigan_decoder.py (HifiDecoder.forward),
TTS/tts/models/xtts.py (speed); torch's linear interpolation without aligned corners, in single precision.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..checkpoint.settings_file import require
from ..devices.torch_devices import to_device
from .config import FRAMES_PER_LATENT, XTTS_INPUT_RATE, XTTS_SAMPLE_RATE

MIN_SPEED = 0.05  # slower is held here, as upstream does


class LatentResampler:
    """Frames of one utterance from its latents. speed: above 1 speaks faster. Raises ValueError for 0."""

    def __init__(self, speed: float = 1.0) -> None:
        require(speed > 0, "speed", speed, "above 0")
        scales = [float(FRAMES_PER_LATENT), XTTS_SAMPLE_RATE / XTTS_INPUT_RATE]
        if speed != 1:
            scales.insert(0, 1 / max(speed, MIN_SPEED))
        self._interpolators = [LinearInterpolator(scale) for scale in scales]

    def push(self, latents: Tensor) -> Tensor:
        """(n, width) latents -> (m, width) frames that later latents do not change; m may be 0."""
        for interpolator in self._interpolators:
            latents = interpolator.push(latents)
        return latents

    def finish(self, latents: Tensor) -> Tensor:
        """(n, width) last latents -> (m, width) the remaining frames; n may be 0 after the first latent."""
        for interpolator in self._interpolators:
            latents = torch.cat([interpolator.push(latents), interpolator.finish()])
        return latents


class LinearInterpolator:
    """Interpolates one sequence of vectors to ``scale`` outputs for each input."""

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self._step = np.float32(1 / scale)  # inputs for each output
        self._kept: Tensor | None = None  # the inputs that further outputs depend on
        self._first_kept = 0
        self._made = 0

    def push(self, x: Tensor) -> Tensor:
        """(n, width) -> (m, width), the outputs between the inputs so far."""
        self._kept = x if self._kept is None else torch.cat([self._kept, x])
        fed = self._first_kept + len(self._kept)
        # A few more than can be made: the last ones are cut off by their neighbours.
        candidates = np.arange(self._made, max(self._made, math.ceil(fed * self._scale) + 1))
        times = self._input_times(candidates)
        return self._make(times[times.astype(np.int64) + 1 < fed], fed)

    def finish(self) -> Tensor:
        """The remaining outputs, held at the last input: floor(scale * inputs) in all."""
        assert self._kept is not None
        fed = self._first_kept + len(self._kept)
        total = math.floor(fed * self._scale)
        return self._make(self._input_times(np.arange(self._made, max(self._made, total))), fed)

    def _input_times(self, outputs: NDArray[np.int64]) -> NDArray[np.float32]:
        centred = self._step * (outputs.astype(np.float32) + np.float32(0.5)) - np.float32(0.5)
        return np.asarray(np.maximum(centred, np.float32(0)))

    def _make(self, times: NDArray[np.float32], fed: int) -> Tensor:
        assert self._kept is not None
        before = np.minimum(times.astype(np.int64), fed - 1)
        numbers = (
            np.clip(times - before.astype(np.float32), 0, 1)[:, None],
            before - self._first_kept,
            np.minimum(before + 1, fed - 1) - self._first_kept,
        )
        device = self._kept.device
        share, rows, later = (to_device(torch.from_numpy(each), device) for each in numbers)
        made = self._kept[rows] * (1 - share) + self._kept[later] * share
        self._made += len(times)
        self._forget()
        return made

    def _forget(self) -> None:
        """Drop the inputs that no further output reads; the last one stays."""
        assert self._kept is not None
        next_time = int(self._input_times(np.array([self._made]))[0])
        surplus = max(0, min(next_time - self._first_kept, len(self._kept) - 1))
        self._kept, self._first_kept = self._kept[surplus:].clone(), self._first_kept + surplus
