"""Reads spk2info.pt: the speakers of a bundle, each an embedding or a zero-shot clone of a recording.

    {name: {"embedding": (1, 192)}}                   a speaker of the training data
    {name: {"prompt_text": (1, N) ids,                a clone, as upstream stores it
            "llm_prompt_speech_token": (1, P) ids,
            "prompt_speech_feat": (1, 2 P, 80),
            "flow_embedding": (1, 192), ...}}

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/cli/cosyvoice.py:71-77, cosyvoice/cli/frontend.py:167-190.
"""

import reprlib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...bundle_files import WeightFileError
from ..config import MEL_BANDS, SPEAKER_WIDTH, SpeechLmConfig
from ..front_end.text_tokenizer import END_OF_PROMPT_TOKEN, TextTokenizer
from ..front_end.voice_prompt import VoicePrompt, align_prompt

if TYPE_CHECKING:
    from torch import Tensor

SPEAKERS_FILE = "spk2info.pt"
EXPORTED_SPEAKERS = "onnx/speakers.npz"  # the same without a pickle

_MAX_PROMPT_IDS = 30 * 25  # upstream refuses longer recordings
_MAX_TEXT_IDS = 2_000
_MAX_ID = 2**31 - 1  # larger numbers are out of every range, which ``check_ids`` reports
_REMEDY = "expected an embedding or a recording for each speaker; remove the file or download it again"


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
        """The prompt of a clone whose ids are in range; None without a recording."""
        if self.recording is None:
            return None
        text_ids = self.recording.text_ids.tolist()
        transcript = tokenizer.decode(text_ids).rpartition(END_OF_PROMPT_TOKEN)[2].strip()
        ids, mel = align_prompt(self.recording.speech_ids, self.recording.mel.T)
        return VoicePrompt(lm.version, transcript, ids, mel, self.embedding)


def check_ids(speakers: Mapping[str, BundleSpeaker], text_vocab_size: int, codebook_size: int) -> None:
    """Raise WeightFileError, with the speaker's name, for ids of a recording that are out of range."""
    for name, speaker in speakers.items():
        recording = speaker.recording
        if recording is None:
            continue
        for what, ids, count in (
            ("speech ids", recording.speech_ids, codebook_size),
            ("text ids", recording.text_ids, text_vocab_size),
        ):
            if ids.size and not (ids.min() >= 0 and ids.max() < count):
                raise WeightFileError(
                    f"{SPEAKERS_FILE}: {what} of speaker {name!r} are {ids.min():,} to {ids.max():,}, "
                    f"expected 0 to {count - 1:,}; was the voice made with this release?"
                )


def read_speakers(path: Path) -> dict[str, BundleSpeaker]:
    """Read the speakers of a file by name. Raises WeightFileError."""
    from ...checkpoint.weight_files import read_pickled_data

    entries = read_pickled_data(path)
    if not isinstance(entries, dict):
        raise WeightFileError(f"{path.name}: holds no table of speakers; {_REMEDY}")
    speakers = {}
    for name, entry in entries.items():
        try:
            if not isinstance(name, str):
                raise ValueError(f"its name is a {type(name).__name__}, expected text")
            speakers[name] = _speaker(entry)
        except ValueError as error:
            raise WeightFileError(f"{path.name}: speaker {reprlib.repr(name)}: {error}; {_REMEDY}") from error
    return speakers


def _speaker(entry: object) -> BundleSpeaker:
    key = "embedding" if isinstance(entry, dict) and "embedding" in entry else "flow_embedding"
    embedding = _tensor(entry, key)
    if embedding.numel() != SPEAKER_WIDTH:
        raise ValueError(f"an embedding has {embedding.numel()} numbers, expected {SPEAKER_WIDTH}")
    return BundleSpeaker(embedding.reshape(SPEAKER_WIDTH).float().numpy(), _recording(entry))


def _tensor(entry: object, key: str) -> "Tensor":
    from torch import Tensor

    if not isinstance(entry, dict):
        raise ValueError(f"an entry is a {type(entry).__name__}, expected a table of tensors")
    value = entry.get(key)
    if not isinstance(value, Tensor):
        raise ValueError(f"{key} is missing" if value is None else f"{key} is a {type(value).__name__}")
    if not _holds_plain_numbers(value):
        raise ValueError(f"{key} is {_described(value)}, expected a tensor of plain, finite numbers")
    return value


def _holds_plain_numbers(tensor: "Tensor") -> bool:
    """Whether numpy can hold the tensor and each of its numbers is finite."""
    import torch

    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
        return False
    return not (tensor.is_complex() or tensor.dtype is torch.bool) and bool(tensor.isfinite().all())


def _described(tensor: "Tensor") -> str:
    parts = (list(tensor.shape), tensor.dtype, tensor.layout)
    return " ".join(str(part).removeprefix("torch.") for part in parts)


def _recording(entry: object) -> ClonedRecording | None:
    if isinstance(entry, dict) and "prompt_speech_feat" not in entry:
        return None
    mel, speech_ids = _tensor(entry, "prompt_speech_feat"), _tensor(entry, "llm_prompt_speech_token")
    text_ids = _tensor(entry, "prompt_text")
    if mel.ndim != 3 or mel.shape[0] != 1 or mel.shape[2] != MEL_BANDS:
        raise ValueError(f"prompt_speech_feat is {list(mel.shape)}, expected [1, T, {MEL_BANDS}]")
    for name, ids, max_ids in (
        ("llm_prompt_speech_token", speech_ids, _MAX_PROMPT_IDS),
        ("prompt_text", text_ids, _MAX_TEXT_IDS),
    ):
        if ids.is_floating_point() or ids.numel() > max_ids:
            raise ValueError(f"{name} is {_described(ids)}, expected up to {max_ids} whole numbers")
    if not speech_ids.numel():
        return None
    return ClonedRecording(
        text_ids.reshape(-1).long().numpy(),
        speech_ids.reshape(-1).clamp(-1, _MAX_ID).int().numpy(),
        mel[0].float().numpy(),
    )


def write_speakers(source: Path, target: Path, embeddings: Mapping[str, NDArray[np.float32]]) -> None:
    """Write a spk2info.pt: the speakers of ``source``, if it exists, and some of whom there is an embedding.

    Raises WeightFileError if the source is damaged, and OSError.
    """
    import torch

    from ...checkpoint.weight_files import read_pickled_data

    entries = read_pickled_data(source) if source.exists() else {}
    if not isinstance(entries, dict):
        raise WeightFileError(f"{source.name}: holds no table of speakers; {_REMEDY}")
    added = {
        name: {"embedding": torch.from_numpy(embedding.copy())[None]}
        for name, embedding in embeddings.items()
    }
    torch.save(entries | added, target)


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
        raise WeightFileError(f"{path.name}: damaged or incomplete; export the bundle again") from error
