"""Turns a recording into a voice prompt: speaker embedding, mel and speech ids.

    encoder = VoiceEncoder.load(bundle.speaker_encoder, bundle.speech_tokenizer, ...)
    prompt = encoder.enroll(samples, 16_000, "what is said in it")

The engine stores and finds prompts; this module only makes one.

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/cli/frontend.py:95-126 (features), 167-185 (alignment).
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import ArrayLike, NDArray

from ...devices.onnx_sessions import CPU_SESSIONS, OnnxSessions
from ...signal.recording_resampler import resample
from ..config import (
    CODEBOOK_SIZE,
    SAMPLE_RATE,
    SPEAKER_WIDTH,
    SPEECH_IDS_PER_S,
    CosyVoiceVersion,
)
from . import features
from .recording import check_recording
from .voice_prompt import VoicePrompt, VoicePromptError, align_prompt

Float = NDArray[np.float32]
Ids = NDArray[np.int32]

MAX_TRANSCRIPT_CHARACTERS = 1000  # 30 s of speech have about 500
_SAMPLES_PER_ID = SAMPLE_RATE // SPEECH_IDS_PER_S


@dataclass(frozen=True, slots=True, eq=False)
class EncodedUtterance:
    """What the networks are trained with of an utterance of N ids."""

    speech_ids: Ids  # (N,) int32
    mel: Float  # (2 N, 80), natural log
    embedding: Float  # (192,), of the speaker
    samples: Float  # (960 N,), 24 kHz


class VoiceEncoder:
    """Encodes recordings with the two ONNX encoders of a bundle. Not thread-safe."""

    def __init__(
        self,
        speaker: onnxruntime.InferenceSession,
        speech: onnxruntime.InferenceSession,
        version: CosyVoiceVersion,
        mel_max_hz: float | None,
        codebook_size: int = CODEBOOK_SIZE,
    ) -> None:
        self._speaker, self._speech = speaker, speech
        self._version, self._mel_max_hz, self._codebook_size = version, mel_max_hz, codebook_size

    @classmethod
    def load(
        cls,
        speaker: Path,
        speech: Path,
        version: CosyVoiceVersion,
        mel_max_hz: float | None,
        codebook_size: int = CODEBOOK_SIZE,
        sessions: OnnxSessions = CPU_SESSIONS,
    ) -> "VoiceEncoder":
        """Open the ONNX models of a bundle; ``mel_max_hz`` and ``codebook_size`` come from its settings."""
        return cls(sessions.open(speaker), sessions.open(speech), version, mel_max_hz, codebook_size)

    def enroll(self, samples: ArrayLike, sample_rate: int, transcript: str = "") -> VoicePrompt:
        """Encode a recording as a voice prompt.

        ``samples`` are (N,) mono, floats in [-1, 1] or int16, 3 to 30 s long; ``sample_rate`` is 16,000 to
        192,000 Hz. Raises VoicePromptError.
        """
        if len(transcript) > MAX_TRANSCRIPT_CHARACTERS:
            raise VoicePromptError(
                f"the transcript has {len(transcript):,} characters; "
                f"at most {MAX_TRANSCRIPT_CHARACTERS:,} are allowed"
            )
        speech = check_recording(samples, sample_rate)
        speech_16k = resample(speech, sample_rate, features.SPEECH_RATE)
        speech_24k = resample(speech, sample_rate, SAMPLE_RATE)
        mel = features.mel_spectrogram(speech_24k, self._mel_max_hz)
        ids, mel = align_prompt(self._speech_ids(speech_16k), mel)
        return VoicePrompt(self._version, transcript.strip(), ids, mel, self._embedding(speech_16k))

    def tokenize_speech(self, samples: ArrayLike, sample_rate: int) -> Ids:
        """Encode a recording as (N,) int32 speech ids at 25 ids/s, the input of a voice conversion.

        The limits are those of ``enroll``. Raises VoicePromptError.
        """
        speech = check_recording(samples, sample_rate)
        return self._speech_ids(resample(speech, sample_rate, features.SPEECH_RATE))

    def encode_utterance(self, samples: Float, sample_rate: int) -> "EncodedUtterance":
        """Encode an utterance to train with, of 0.1 to 30 s: (N,) floats, padded with zeros to whole ids.

        Raises VoicePromptError.
        """
        speech = resample(samples / max(1.0, float(np.abs(samples).max())), sample_rate, SAMPLE_RATE)
        padded = np.pad(speech, (0, -len(speech) % _SAMPLES_PER_ID))
        speech_16k = resample(padded, SAMPLE_RATE, features.SPEECH_RATE)
        mel = features.mel_spectrogram(padded, self._mel_max_hz)
        ids = self._speech_ids(speech_16k)
        return EncodedUtterance(ids, mel.T, self._embedding(speech_16k), padded)

    def embed_speaker(self, samples: Float, sample_rate: int) -> Float:
        """The speaker embedding of a recording, (192,). Raises VoicePromptError."""
        return self._embedding(resample(samples, sample_rate, features.SPEECH_RATE))

    def _speech_ids(self, speech_16k: Float) -> Ids:
        mel = features.whisper_log_mel(speech_16k)[None]
        frames, length = self._speech.get_inputs()[:2]
        feed = {frames.name: mel, length.name: np.array([mel.shape[2]], np.int32)}
        ids = np.asarray(self._speech.run(None, feed)[0]).reshape(-1).astype(np.int32)
        if len(ids) == 0 or ids.min() < 0 or ids.max() >= self._codebook_size:
            raise VoicePromptError(
                f"the speech tokenizer returned {len(ids)} ids, not all of 0 to {self._codebook_size - 1}; "
                "is it of the same release as the bundle?"
            )
        return ids

    def _embedding(self, speech_16k: Float) -> Float:
        filter_bank = features.kaldi_filter_bank(speech_16k)
        centred = filter_bank - filter_bank.mean(axis=0, keepdims=True)
        output = self._speaker.run(None, {self._speaker.get_inputs()[0].name: centred[None]})[0]
        embedding = np.asarray(output, np.float32).reshape(-1)
        if embedding.shape != (SPEAKER_WIDTH,) or not np.isfinite(embedding).all():
            raise VoicePromptError("the speaker encoder found no voice; give a recording of one clear voice")
        return embedding
