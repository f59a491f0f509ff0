"""The vocoder in training, with its discriminators: crops of recordings, and a turn for each of both.

A crop is 1.02 s of a recording with its mel; its pitch is measured. Discriminators stay in the run.

Source: FunAudioLLM/CosyVoice@ace7c47 hifigan/hifigan.py, dataset/processor.py:137-155 (crops).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ....devices.torch_devices import CPU
from ...front_end.features import MEL_HOP
from ...vocoder.hift_v2 import HiftV2
from ...vocoder.hift_v3 import HiftV3
from ..dataset import TrainingDataset
from ..draws import DrawSeed
from ..flow_loss import TrainingLoss, in_full_precision
from ..networks import fold_weights
from ..parts import TrainedPart, TrainingTurn
from .discriminators import Discriminators, DiscriminatorWidths
from .losses import adversarial_loss, discriminator_loss, mel_distance, vocoder_loss
from .pitch import estimate_pitch

CROP_FRAMES = 51  # 24,480 samples
_PLACE, _NOISE = 7, 8  # purposes of the draws
_SILENT_MEL = float(np.log(1e-5))


@dataclass(frozen=True, slots=True)
class VocoderBatch:
    """Crops of recordings."""

    mel: Tensor  # (B, 80, T)
    samples: Tensor  # (B, 480 T) in [-1, 1]
    pitch: Tensor  # (B, T) Hz, 0 where unvoiced
    noise: Tensor  # (B, 480 T, waves), standard normal, of the source


class VocoderPart(TrainedPart):
    """The vocoder. seed: of the discriminators' first weights. crop_frames: 12 or more."""

    name, weight_file = "vocoder", "hift.pt"

    def __init__(
        self,
        vocoder: HiftV2 | HiftV3,
        seed: int,
        device: torch.device = CPU,
        widths: DiscriminatorWidths | None = None,
        crop_frames: int = CROP_FRAMES,
    ) -> None:
        self.max_row_frames = self._crop_frames = crop_frames
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            discriminators = Discriminators(widths)
        self._vocoder, self._discriminators = vocoder, discriminators
        self.network: nn.Module = nn.ModuleDict({"vocoder": vocoder, "discriminators": discriminators})
        self.network.to(device)
        self._device = device

    @property
    def turns(self) -> Sequence[TrainingTurn]:
        """As ``TrainedPart.turns``: the discriminators', then the vocoder's."""
        return (
            TrainingTurn(self.discriminators_loss, "discriminators."),
            TrainingTurn(self.loss, "vocoder."),
        )

    def discriminators_loss(
        self, dataset: TrainingDataset, numbers: Sequence[int], seed: DrawSeed, step: int
    ) -> TrainingLoss:
        """The loss of the discriminators, as ``TrainedPart.loss``."""
        batch = self._batch(dataset, numbers, seed)
        with torch.no_grad():
            rendered, _ = self._render(batch)
        judge = self._discriminators
        return _mean_of_rows(discriminator_loss(judge(batch.samples), judge(rendered)), batch)

    def loss(
        self, dataset: TrainingDataset, numbers: Sequence[int], seed: DrawSeed, step: int
    ) -> TrainingLoss:
        """As ``TrainedPart.loss``; for validation the mean distance of log mels alone."""
        batch = self._batch(dataset, numbers, seed)
        rendered, pitch = self._render(batch)
        mel = mel_distance(rendered, batch.samples)
        if not self.network.training:
            return _mean_of_rows(mel, batch)
        judge = self._discriminators
        with _frozen(judge):
            adversarial = adversarial_loss(judge(batch.samples), judge(rendered))
        return _mean_of_rows(vocoder_loss(adversarial, mel, F.l1_loss(pitch, batch.pitch)), batch)

    def weight_tensors(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """As ``TrainedPart.weight_tensors``, without the discriminators."""
        prefix = "vocoder."
        named = {name: one for name, one in state.items() if name.startswith(prefix)}
        return {name.removeprefix(prefix): one.float() for name, one in named.items()}

    def _render(self, batch: VocoderBatch) -> tuple[Tensor, Tensor]:
        fold_weights(self._vocoder)
        samples, pitch = self._vocoder.render_whole(batch.mel, batch.noise)
        return in_full_precision(samples), pitch

    def _batch(self, dataset: TrainingDataset, numbers: Sequence[int], seed: DrawSeed) -> VocoderBatch:
        waves = self._vocoder.config.sine_count
        crops = [self._crop(dataset, number, seed) for number in numbers]
        noise = [
            seed.generator(_NOISE, number).standard_normal((self._crop_frames * MEL_HOP, waves), np.float32)
            for number in numbers
        ]
        mel, samples, pitch = (np.stack(arrays) for arrays in zip(*crops, strict=True))
        arrays = (mel, samples, pitch, np.stack(noise))
        return VocoderBatch(*(torch.from_numpy(array).to(self._device) for array in arrays))

    def _crop(
        self, dataset: TrainingDataset, number: int, seed: DrawSeed
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mel (80, T), samples (480 T,) and pitch (T,) at a place that is drawn; silence follows the end."""
        whole, frames = dataset.arrays(number)["mel"], self._crop_frames
        last = max(0, len(whole) - frames)
        first = int(seed.generator(_PLACE, number).integers(last, endpoint=True))
        mel = whole[first : first + frames]
        mel = np.pad(mel, ((0, frames - len(mel)), (0, 0)), constant_values=_SILENT_MEL)
        part = dataset.samples(number)[first * MEL_HOP : (first + frames) * MEL_HOP]
        samples = np.pad(part.astype(np.float32) / 32_768, (0, frames * MEL_HOP - len(part)))
        return np.ascontiguousarray(mel.T), samples, estimate_pitch(samples)


def _mean_of_rows(loss: Tensor, batch: VocoderBatch) -> TrainingLoss:
    rows = len(batch.mel)
    return TrainingLoss(loss * rows, rows)


@contextmanager
def _frozen(network: nn.Module) -> Iterator[None]:
    """Gradients pass through the network, and its parameters get none, in what is computed in the block."""
    network.requires_grad_(False)
    try:
        yield
    finally:
        network.requires_grad_(True)
