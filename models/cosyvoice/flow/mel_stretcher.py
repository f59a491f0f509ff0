"""Speaks a mel faster or slower, a few frames at a time: linear interpolation between frames, no network.

New frame i lies at (i + 1/2) speed - 1/2 of the old ones, held at both ends. Upstream rounds the speed so
that the new mel is exactly as long as the old one, and can therefore not begin before the end.

Source: FunAudioLLM/CosyVoice@ace7c47 cli/model.py (token2wav, speed), torch.nn.functional.interpolate.
"""

import torch
from torch import Tensor


class MelStretcher:
    """One session's change of speed; the same frames however the mel is cut. speed: 2.0 is twice as fast."""

    def __init__(self, speed: float) -> None:
        if not 0.1 <= speed <= 10:
            raise ValueError(f"speed is {speed}; allowed: 0.1 to 10")
        self._speed = speed
        self._frames: Tensor | None = None
        self._first = 0  # the old frame that ``_held`` begins with
        self._emitted = 0

    def push(self, mel: Tensor) -> Tensor:
        """mel: (B, 80, T) -> the new frames that lie between known ones, (B, 80, T')."""
        self._frames = mel if self._frames is None else torch.cat([self._frames, mel], 2)
        newest = self._first + self._frames.shape[2] - 1
        return self._take(int((newest + 0.5) / self._speed + 0.5))

    def finish(self) -> Tensor:
        """The rest, of an utterance of T / speed frames, rounded; afterwards as new."""
        if self._frames is None:
            raise ValueError("finish() before any mel was pushed")
        total = int((self._first + self._frames.shape[2]) / self._speed + 0.5)
        rest = self._take(max(total, self._emitted))
        self._frames, self._first, self._emitted = None, 0, 0
        return rest

    def _take(self, end: int) -> Tensor:
        """New frames up to ``end``, and forget the old frames before them."""
        assert self._frames is not None
        frames, count = self._frames, self._frames.shape[2]
        new = torch.arange(self._emitted, end, dtype=torch.float64, device=frames.device)
        place = ((new + 0.5) * self._speed - 0.5 - self._first).clamp(0, count - 1)
        before = place.long().clamp(max=max(count - 2, 0))
        share = (place - before).float()
        after = (before + 1).clamp(max=count - 1)
        stretched = torch.lerp(frames[:, :, before], frames[:, :, after], share)
        self._emitted = max(end, self._emitted)
        past = min(max(0, int((self._emitted + 0.5) * self._speed - 0.5) - self._first), count - 1)
        self._frames, self._first = frames[:, :, past:], self._first + past
        return stretched
