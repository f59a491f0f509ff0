"""Reads spk2info.pt: the speakers of a bundle, each an embedding or a zero-shot clone of a recording.

    {name: {"embedding": (1, 192)}}                   a speaker of the training data
    {name: {"prompt_text": (1, N) ids,                a clone, as upstream stores it
            "llm_prompt_speech_token": (1, P) ids,
            "prompt_speech_feat": (1, 2 P, 80),
            "flow_embedding": (1, 192), ...}}

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/cli/cosyvoice.py:71-77, cosyvoice/cli/frontend.py:167-190.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from ..config import MEL_BANDS, SPEAKER_WIDTH, SpeechLmConfig
from ..front_end.text_tokenizer import END_OF_PROMPT_TOKEN, TextTokenizer
from ..front_end.voice_prompt import VoicePrompt, align_prompt
from .weight_files import WeightFileError, read_pickled_data

SPEAKERS_FILE = "spk2info.pt"

_MAX_PROMPT_IDS = 30 * 25  # upstream refuses longer recordings
_MAX_TEXT_IDS = 2_000


@dataclass(frozen=True, slots=True, eq=False)
class ClonedRecording:
    """The recording of a clone. text_ids: (N,), with the greeting of version 3. ids: (P,). mel: (T, 80)."""

    text_ids: Tensor
    speech_ids: Tensor
    mel: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class BundleSpeaker:
    """A speaker. embedding: (192,) float32. recording: None for a speaker of the training data."""

    embedding: Tensor
    recording: ClonedRecording | None

    def voice_prompt(self, tokenizer: TextTokenizer, lm: SpeechLmConfig) -> VoicePrompt | None:
        """The prompt of a clone; None without a recording. Raises WeightFileError for ids out of range."""
        if self.recording is None:
            return None
        ids = self.recording.speech_ids.numpy().astype(np.int32)
        text_ids = self.recording.text_ids.tolist()
        for name, held, count in (
            ("speech ids", ids.tolist(), lm.codebook_size),
            ("text ids", text_ids, tokenizer.vocab_size),
        ):
            if any(not 0 <= id < count for id in held):
                raise WeightFileError(f"{SPEAKERS_FILE}: {name} of a speaker must be 0 to {count - 1:,}")
        transcript = tokenizer.decode(text_ids).rpartition(END_OF_PROMPT_TOKEN)[2].strip()
        ids, mel = align_prompt(ids, self.recording.mel.float().numpy().T)
        return VoicePrompt(lm.version, transcript, ids, mel, self.embedding.numpy())


def read_speakers(path: Path, device: str) -> dict[str, BundleSpeaker]:
    """Read the speakers of a file by name.

    ``device`` "meta" reads shapes only. Raises WeightFileError; ValueError, KeyError, AttributeError or
    TypeError for an entry of another form.
    """
    return {str(name): _speaker(entry) for name, entry in read_pickled_data(path, device).items()}


def _speaker(entry: Mapping[str, Tensor]) -> BundleSpeaker:
    embedding = entry["embedding"] if "embedding" in entry else entry["flow_embedding"]
    if embedding.numel() != SPEAKER_WIDTH:
        raise ValueError(f"an embedding has {embedding.numel()} numbers, expected {SPEAKER_WIDTH}")
    return BundleSpeaker(embedding.reshape(SPEAKER_WIDTH).float(), _recording(entry))


def _recording(entry: Mapping[str, Tensor]) -> ClonedRecording | None:
    if "prompt_speech_feat" not in entry:
        return None
    mel, speech_ids = entry["prompt_speech_feat"], entry["llm_prompt_speech_token"]
    text_ids = entry["prompt_text"]
    if mel.ndim != 3 or mel.shape[0] != 1 or mel.shape[2] != MEL_BANDS:
        raise ValueError(f"prompt_speech_feat is {list(mel.shape)}, expected [1, T, {MEL_BANDS}]")
    for name, ids, max_ids in (
        ("llm_prompt_speech_token", speech_ids, _MAX_PROMPT_IDS),
        ("prompt_text", text_ids, _MAX_TEXT_IDS),
    ):
        if ids.is_floating_point() or ids.numel() > max_ids:
            raise ValueError(
                f"{name} is {list(ids.shape)} {ids.dtype}, expected up to {max_ids} whole numbers"
            )
    if not speech_ids.numel():
        return None
    return ClonedRecording(text_ids.reshape(-1), speech_ids.reshape(-1), mel[0])
