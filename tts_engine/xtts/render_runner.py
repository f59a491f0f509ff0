"""Runs the vocoder of XTTS: latents of a sentence to samples, one chunk at a time.

Latents are brought to the rate of the vocoder's frames (and to the speed of the sentence) as they arrive, and
the vocoder streams exactly, so chunks are those of the whole sentence. Sentences share a step of the vocoder
if their chunks have the same number of frames; frames beyond a multiple of 8 wait for the next chunk, so that
this is often the case. Used by one thread.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...models.devices.torch_devices import to_device, to_host
from ...models.networks.state import gather, join_states
from ...models.xtts.latent_resampler import LatentResampler
from ...models.xtts.vocoder import XttsVocoder, XttsVocoderState

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FRAME_MULTIPLE = 8


@dataclass(slots=True, eq=False)
class XttsRenderState:
    """The state of a sentence between chunks."""

    resampler: LatentResampler
    vocoder_state: XttsVocoderState  # one row
    frames: Tensor  # (m, width) that no chunk had yet


@dataclass(frozen=True, slots=True)
class XttsRenderInput:
    """A chunk to render. frames: (m, width)."""

    render_state: XttsRenderState
    frames: Tensor
    final: bool


class XttsRenderRunner:
    """The vocoder of a bundle."""

    def __init__(self, vocoder: XttsVocoder, device: torch.device) -> None:
        self._vocoder, self._device = vocoder, device

    def begin(self, speaker: Tensor, speed: float) -> XttsRenderState:
        """The state of a new sentence. speaker: (512,) embedding of the voice."""
        state = self._vocoder.init_state(to_device(speaker, self._device)[None])
        none = torch.zeros(0, self._vocoder.config.input_width, device=self._device)
        return XttsRenderState(LatentResampler(speed), state, none)

    @torch.inference_mode()
    def render_input(
        self, state: XttsRenderState, latents: Sequence[Tensor], *, final: bool
    ) -> XttsRenderInput:
        """The chunk of the next latents; advances the resampler, so call it once."""
        joined = torch.stack([*latents]) if latents else state.frames[:0]
        made = state.resampler.finish(joined) if final else state.resampler.push(joined)
        frames = torch.cat([state.frames, made])
        count = len(frames) if final else len(frames) // _FRAME_MULTIPLE * _FRAME_MULTIPLE
        state.frames = frames[count:]
        return XttsRenderInput(state, frames[:count], final)

    def batch_key(self, render_input: XttsRenderInput) -> Hashable:
        """Equal for chunks that can share a ``run``."""
        return render_input.final, len(render_input.frames)

    def run(self, render_inputs: Mapping[int, XttsRenderInput]) -> "dict[int, NDArray[np.float32]]":
        """The samples of each chunk, (N,) float32; if this raises, no state has changed."""
        rows = [*render_inputs.values()]
        z = torch.stack([row.frames for row in rows]).transpose(1, 2)
        if not rows[0].final and not z.shape[2]:
            return {row: torch.zeros(0).numpy() for row in render_inputs}
        state = join_states([row.render_state.vocoder_state for row in rows])
        if rows[0].final:
            made = self._vocoder.finish(z, state)
        else:
            samples, after = self._vocoder.step(z, state)
            made = [
                row[self._vocoder.utterance_part(state, index, len(row))] for index, row in enumerate(samples)
            ]
            for index, row in enumerate(rows):
                row.render_state.vocoder_state = gather(after, [index])
        return {row: to_host(part).numpy() for row, part in zip(render_inputs, made, strict=True)}
