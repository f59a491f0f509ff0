"""Speaks a mel faster or slower, a few frames at a time: linear interpolation between frames, no network.

New frame i lies at (i + 1/2) speed - 1/2 of the old ones, held at both ends. Upstream rounds the speed so
that the new mel is exactly as long as the old one, and can therefore not begin before the end.

Source: FunAudioLLM/CosyVoice@ace7c47 cli/model.py (token2wav, speed), torch.nn.functional.interpolate.
"""

import torch
from torch import Tensor


class MelSpeed:
    """One session's change of speed; the same frames however the mel is cut. speed: 2.0 is twice as fast."""

    def __init__(self, speed: float) -> None:
        if not 0.1 <= speed <= 10:
            raise ValueError(f"speed is {speed}; allowed: 0.1 to 10")
        self._speed = speed
        self._held: Tensor | None = None
        self._first = 0  # the old frame that ``_held`` begins with
        self._given = 0

    def push(self, mel: Tensor) -> Tensor:
        """mel: (B, 80, T) -> the new frames that lie between known ones, (B, 80, T')."""
        self._held = mel if self._held is None else torch.cat([self._held, mel], 2)
        newest = self._first + self._held.shape[2] - 1
        return self._take(int((newest + 0.5) / self._speed + 0.5))

    def finish(self) -> Tensor:
        """The rest, of an utterance of T / speed frames, rounded; afterwards as new."""
        if self._held is None:
            raise ValueError("finish() before any mel was pushed")
        total = int((self._first + self._held.shape[2]) / self._speed + 0.5)
        rest = self._take(max(total, self._given))
        self._held, self._first, self._given = None, 0, 0
        return rest

    def _take(self, end: int) -> Tensor:
        """New frames up to ``end``, and forget the old frames before them."""
        assert self._held is not None
        held, count = self._held, self._held.shape[2]
        new = torch.arange(self._given, end, dtype=torch.float64, device=held.device)
        place = ((new + 0.5) * self._speed - 0.5 - self._first).clamp(0, count - 1)
        before = place.long().clamp(max=max(count - 2, 0))
        share = (place - before).float()
        after = (before + 1).clamp(max=count - 1)
        taken = torch.lerp(held[:, :, before], held[:, :, after], share)
        self._given = max(end, self._given)
        past = min(max(0, int((self._given + 0.5) * self._speed - 0.5) - self._first), count - 1)
        self._held, self._first = held[:, :, past:], self._first + past
        return taken
