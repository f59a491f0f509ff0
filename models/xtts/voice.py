"""A voice of XTTS: what its networks keep of the recordings of a speaker.

    recordings -> cut to 30 s each -+-> joined, first 30 s, pieces of 4 s -> latents of each piece -> mean
                                    +-> embedding of each recording -> mean, which is not of length 1 again

Source: idiap/coqui-ai-TTS 0.28.0 TTS/tts/models/xtts.py (get_conditioning_latents, get_gpt_cond_latents,
get_speaker_embedding).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..checkpoint.settings_file import require
from ..checkpoint.tensor_digest import add_tensor
from ..signal.recording_resampler import resample
from .conditioning import ConditioningEncoder
from .config import SPEAKER_RATE, XTTS_INPUT_RATE
from .features import conditioning_mel, normalized_log_mel, speaker_mel
from .speaker_encoder import XttsSpeakerEncoder

Float = NDArray[np.float32]

MIN_REFERENCE_S = 0.33  # shorter pieces of a recording are left out
_PEAK = 0.75  # of a recording whose level is normalized


@dataclass(frozen=True, slots=True)
class VoiceConditioningConfig:
    """How a voice is made of recordings; the defaults are those of the released config.json."""

    max_reference_s: float = 30.0  # of each recording
    latents_s: float | None = 30.0  # of all recordings joined, for the latents; None: all of it
    piece_s: float = 4.0  # of the recording for one set of latents
    normalizes_level: bool = False  # whether recordings are scaled to a peak of 0.75

    def __post_init__(self) -> None:
        for name in ("max_reference_s", "piece_s"):
            require(
                getattr(self, name) >= MIN_REFERENCE_S,
                name,
                getattr(self, name),
                f"at least {MIN_REFERENCE_S}",
            )
        if self.latents_s is not None:
            require(
                self.latents_s >= MIN_REFERENCE_S, "latents_s", self.latents_s, f"at least {MIN_REFERENCE_S}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class XttsVoice:
    """A voice. latents: (32, hidden) in front of the text. speaker: (512,) for the vocoder."""

    latents: Tensor
    speaker: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class XttsVoiceEncoder:
    """Makes voices of recordings. mel_norms: (80,) float32 of the checkpoint."""

    conditioning: ConditioningEncoder
    speaker_encoder: XttsSpeakerEncoder
    mel_norms: Tensor

    def version(self) -> int:
        """A number of 48 bits, the first one set, that differs between encoders with different weights."""
        digest = hashlib.sha256()
        networks = {"conditioning": self.conditioning, "speaker": self.speaker_encoder}
        for name, network in networks.items():
            for key, tensor in network.state_dict().items():
                add_tensor(digest, f"{name} {key}", tensor)
        add_tensor(digest, "mel norms", self.mel_norms)
        return int.from_bytes(digest.digest()[:6], "big") | 1 << 47

    def encode(self, recordings: Sequence[Float], config: VoiceConditioningConfig | None = None) -> XttsVoice:
        """A voice of one or more recordings, each mono at 22,050 Hz in -1..1.

        Raises ValueError for recordings that are too short, silent or not numbers.
        """
        config = config or VoiceConditioningConfig()
        cut = [_prepared(recording, config) for recording in recordings]
        speakers = [self.speaker(samples) for samples in cut]
        return XttsVoice(self.latents(np.concatenate(cut), config), torch.stack(speakers).mean(0))

    @torch.inference_mode()
    def latents(self, samples: Float, config: VoiceConditioningConfig) -> Tensor:
        """Mean latents (32, hidden) of the pieces of 22,050 Hz samples. Raises ValueError if too short."""
        if config.latents_s is not None:
            samples = samples[: int(XTTS_INPUT_RATE * config.latents_s)]
        size = int(XTTS_INPUT_RATE * config.piece_s)
        pieces = [samples[start : start + size] for start in range(0, len(samples), size)]
        pieces = [piece for piece in pieces if len(piece) >= XTTS_INPUT_RATE * MIN_REFERENCE_S]
        if not pieces:
            raise ValueError(_too_short(samples))
        return torch.stack([self._latents_of(piece) for piece in pieces]).mean(0)

    @torch.inference_mode()
    def speaker(self, samples: Float) -> Tensor:
        """Embedding (512,) of 22,050 Hz samples."""
        mel = speaker_mel(resample(samples, XTTS_INPUT_RATE, SPEAKER_RATE))
        log_mel = torch.from_numpy(normalized_log_mel(mel))[None]
        embedding: Tensor = self.speaker_encoder(log_mel.to(self.mel_norms))[0]
        return embedding

    def _latents_of(self, piece: Float) -> Tensor:
        mel = torch.from_numpy(conditioning_mel(piece, self.mel_norms.cpu().numpy()))
        latents: Tensor = self.conditioning(mel[None].to(self.mel_norms))[0]
        return latents


def _prepared(recording: Float, config: VoiceConditioningConfig) -> Float:
    samples = np.clip(recording, -1, 1)[: int(XTTS_INPUT_RATE * config.max_reference_s)]
    if len(samples) < XTTS_INPUT_RATE * MIN_REFERENCE_S:
        raise ValueError(_too_short(samples))
    peak = float(np.abs(samples).max())
    if not peak > 0:
        raise ValueError("a recording is silent or not numbers; give one of a voice")
    return samples * np.float32(_PEAK / peak) if config.normalizes_level else samples


def _too_short(samples: Float) -> str:
    return (
        f"a recording has {len(samples) / XTTS_INPUT_RATE:.2f} s; it must have at least {MIN_REFERENCE_S} s"
    )
