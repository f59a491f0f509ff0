"""Changes the speed of a mel as it is rendered, by linear interpolation between frames.

New frame i lies at (i + 1/2) speed - 1/2 of the old frames, and both ends are extended:

    speed 2.0    old frames    0   1   2   3   4   5
                 new frames      0       1       2

Upstream rounds the speed so that the new mel has a whole number of frames, and therefore cannot start before
the mel is complete.

Source: FunAudioLLM/CosyVoice@ace7c47 cli/model.py (token2wav, speed), torch.nn.functional.interpolate.
"""

import torch
from torch import Tensor


class MelStretcher:
    """Stretches the mel of one session; the frames are the same for any split of the mel.

    speed: 2.0 is twice as fast. Raises ValueError outside 0.1 to 10.
    """

    def __init__(self, speed: float) -> None:
        if not 0.1 <= speed <= 10:
            raise ValueError(f"speed is {speed}; allowed: 0.1 to 10")
        self._speed = speed
        self._frames: Tensor | None = None
        self._first = 0  # old frame number of the first one in ``_frames``
        self._emitted = 0

    def push(self, mel: Tensor) -> Tensor:
        """Add old frames, (B, 80, T), and return the new frames between known ones, (B, 80, T')."""
        self._frames = mel if self._frames is None else torch.cat([self._frames, mel], 2)
        newest = self._first + self._frames.shape[2] - 1
        return self._take(int((newest + 0.5) / self._speed + 0.5))

    def finish(self) -> Tensor:
        """The last of T / speed frames, rounded; resets the stretcher. Raises ValueError without any mel."""
        if self._frames is None:
            raise ValueError("finish() before any mel was pushed")
        total = int((self._first + self._frames.shape[2]) / self._speed + 0.5)
        rest = self._take(max(total, self._emitted))
        self._frames, self._first, self._emitted = None, 0, 0
        return rest

    def _take(self, end: int) -> Tensor:
        """New frames up to ``end``; drops the old frames that no later frame needs."""
        assert self._frames is not None
        frames, count = self._frames, self._frames.shape[2]
        new = torch.arange(self._emitted, end, dtype=torch.float64, device=frames.device)
        position = ((new + 0.5) * self._speed - 0.5 - self._first).clamp(0, count - 1)
        before = position.long().clamp(max=max(count - 2, 0))
        weight = (position - before).float()
        after = (before + 1).clamp(max=count - 1)
        stretched = torch.lerp(frames[:, :, before], frames[:, :, after], weight)
        self._emitted = max(end, self._emitted)
        past = min(max(0, int((self._emitted + 0.5) * self._speed - 0.5) - self._first), count - 1)
        self._frames, self._first = frames[:, :, past:], self._first + past
        return stretched
