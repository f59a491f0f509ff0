"""Changes the speed of a mel as it is rendered, on tensors of any device."""

from typing import Any

import torch
from torch import Tensor

from ...devices.torch_devices import to_device
from .array_mel_stretcher import ArrayMelStretcher


class MelStretcher(ArrayMelStretcher):
    """``ArrayMelStretcher`` for mels that are tensors."""

    def _join(self, frames: Any, more: Any) -> Tensor:
        return torch.cat([frames, more], -1)

    def _interpolate(self, before: Any, after: Any, weight: Any) -> Tensor:
        frames: Tensor = self._frames
        start, end, share = (
            to_device(torch.from_numpy(part), frames.device) for part in (before, after, weight)
        )
        return torch.lerp(frames[..., start], frames[..., end], share)
