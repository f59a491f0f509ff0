"""Changes the speed of a mel as it is rendered, by linear interpolation between frames; on numpy arrays.

New frame i lies at (i + 1/2) speed - 1/2 of the old frames, and both ends are extended:

    speed 2.0    old frames    0   1   2   3   4   5
                 new frames      0       1       2

Upstream rounds the speed so that the new mel has a whole number of frames, and therefore cannot start before
the mel is complete.

Source: FunAudioLLM/CosyVoice@ace7c47 cli/model.py (token2wav, speed), torch.nn.functional.interpolate.
"""

from typing import Any

import numpy as np


class ArrayMelStretcher:
    """Stretches the mel of one session; the frames are the same for any split of the mel.

    speed: 2.0 is twice as fast. Raises ValueError outside 0.1 to 10.
    """

    def __init__(self, speed: float) -> None:
        if not 0.1 <= speed <= 10:
            raise ValueError(f"speed is {speed}; allowed: 0.1 to 10")
        self._speed = speed
        self._frames: Any = None
        self._first = 0  # old frame number of the first one in ``_frames``
        self._emitted = 0

    def push(self, mel: Any) -> Any:
        """Add old frames, (..., 80, T), and return the new frames between known ones, (..., 80, T')."""
        self._frames = mel if self._frames is None else self._join(self._frames, mel)
        newest = self._first + self._frames.shape[-1] - 1
        return self._take(int((newest + 0.5) / self._speed + 0.5))

    def finish(self) -> Any:
        """The last of T / speed frames, rounded; resets the stretcher. Raises ValueError without any mel."""
        if self._frames is None:
            raise ValueError("finish() before any mel was pushed")
        total = int((self._first + self._frames.shape[-1]) / self._speed + 0.5)
        rest = self._take(max(total, self._emitted))
        self._frames, self._first, self._emitted = None, 0, 0
        return rest

    def _take(self, end: int) -> Any:
        """New frames up to ``end``; drops the old frames that no later frame needs."""
        count = self._frames.shape[-1]
        position = (np.arange(self._emitted, end) + 0.5) * self._speed - 0.5 - self._first
        position = position.clip(0, count - 1)
        before = position.astype(np.int64).clip(max=max(count - 2, 0))
        after = (before + 1).clip(max=count - 1)
        stretched = self._interpolate(before, after, (position - before).astype(np.float32))
        self._emitted = max(end, self._emitted)
        past = min(max(0, int((self._emitted + 0.5) * self._speed - 0.5) - self._first), count - 1)
        self._frames, self._first = self._frames[..., past:], self._first + past
        return stretched

    def _join(self, frames: Any, more: Any) -> Any:
        return np.concatenate([frames, more], -1)

    def _interpolate(self, before: Any, after: Any, weight: Any) -> Any:
        start = self._frames[..., before]
        return start + weight * (self._frames[..., after] - start)
