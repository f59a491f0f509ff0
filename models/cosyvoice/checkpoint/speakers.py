"""Reads spk2info.pt: the speakers of a bundle, each an embedding or a zero-shot clone of a recording.

    {name: {"embedding": (1, 192)}}                   a speaker of the training data
    {name: {"prompt_text": (1, N) ids,                a clone, as upstream stores it
            "llm_prompt_speech_token": (1, P) ids,
            "prompt_speech_feat": (1, 2 P, 80),
            "flow_embedding": (1, 192), ...}}

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/cli/cosyvoice.py:71-77, cosyvoice/cli/frontend.py:167-190.
"""

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...checkpoint.bundle_files import WeightFileError
from ..config import MEL_BANDS, SPEAKER_WIDTH, SpeechLmConfig
from ..front_end.text_tokenizer import END_OF_PROMPT_TOKEN, TextTokenizer
from ..front_end.voice_prompt import VoicePrompt, align_prompt

if TYPE_CHECKING:
    from torch import Tensor

SPEAKERS_FILE = "spk2info.pt"
EXPORTED_SPEAKERS = "onnx/speakers.npz"  # the same without a pickle

_MAX_PROMPT_IDS = 30 * 25  # upstream refuses longer recordings
_MAX_TEXT_IDS = 2_000


@dataclass(frozen=True, slots=True, eq=False)
class ClonedRecording:
    """The recording of a clone. text_ids: (N,), with the greeting of version 3. ids: (P,). mel: (T, 80)."""

    text_ids: NDArray[np.int64]
    speech_ids: NDArray[np.int32]
    mel: NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class BundleSpeaker:
    """A speaker. embedding: (192,) float32. recording: None for a speaker of the training data."""

    embedding: NDArray[np.float32]
    recording: ClonedRecording | None

    def voice_prompt(self, tokenizer: TextTokenizer, lm: SpeechLmConfig) -> VoicePrompt | None:
        """The prompt of a clone; None without a recording. Raises WeightFileError for ids out of range."""
        if self.recording is None:
            return None
        ids = self.recording.speech_ids
        text_ids = self.recording.text_ids.tolist()
        for name, held, count in (
            ("speech ids", ids.tolist(), lm.codebook_size),
            ("text ids", text_ids, tokenizer.vocab_size),
        ):
            if any(not 0 <= id < count for id in held):
                raise WeightFileError(f"{SPEAKERS_FILE}: {name} of a speaker must be 0 to {count - 1:,}")
        transcript = tokenizer.decode(text_ids).rpartition(END_OF_PROMPT_TOKEN)[2].strip()
        ids, mel = align_prompt(ids, self.recording.mel.T)
        return VoicePrompt(lm.version, transcript, ids, mel, self.embedding)


def read_speakers(path: Path) -> dict[str, BundleSpeaker]:
    """Read the speakers of a file by name.

    Raises WeightFileError; ValueError, KeyError, AttributeError or
    TypeError for an entry of another form.
    """
    from ...checkpoint.weight_files import read_pickled_data

    return {str(name): _speaker(entry) for name, entry in read_pickled_data(path).items()}


def _speaker(entry: Mapping[str, "Tensor"]) -> BundleSpeaker:
    embedding = entry["embedding"] if "embedding" in entry else entry["flow_embedding"]
    if embedding.numel() != SPEAKER_WIDTH:
        raise ValueError(f"an embedding has {embedding.numel()} numbers, expected {SPEAKER_WIDTH}")
    return BundleSpeaker(embedding.reshape(SPEAKER_WIDTH).float().numpy(), _recording(entry))


def _recording(entry: Mapping[str, "Tensor"]) -> ClonedRecording | None:
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
    return ClonedRecording(
        text_ids.reshape(-1).long().numpy(), speech_ids.reshape(-1).int().numpy(), mel[0].float().numpy()
    )


def write_exported_speakers(path: Path, speakers: Mapping[str, BundleSpeaker]) -> None:
    """Write speakers as plain arrays, which are read without torch."""
    arrays: dict[str, NDArray[np.generic]] = {"names": np.array(list(speakers), str)}
    for index, speaker in enumerate(speakers.values()):
        arrays[f"embedding.{index}"] = speaker.embedding
        if speaker.recording:
            arrays[f"text_ids.{index}"] = speaker.recording.text_ids
            arrays[f"speech_ids.{index}"] = speaker.recording.speech_ids
            arrays[f"mel.{index}"] = speaker.recording.mel
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def read_exported_speakers(path: Path) -> dict[str, BundleSpeaker]:
    """The speakers of ``write_exported_speakers``. Raises WeightFileError if the file is damaged."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {
                str(name): BundleSpeaker(
                    arrays[f"embedding.{index}"],
                    ClonedRecording(
                        *(arrays[f"{part}.{index}"] for part in ("text_ids", "speech_ids", "mel"))
                    )
                    if f"mel.{index}" in arrays
                    else None,
                )
                for index, name in enumerate(arrays["names"].tolist())
            }
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise WeightFileError(f"{path.name}: {error}; export the bundle again") from error
