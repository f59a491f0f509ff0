"""The prompt of a voice: a recording as the networks are conditioned on it, and its file format.

    prompt.save(path)
    VoicePrompt.load(path)      one file of arrays, without pickle

The mel, and the ids that belong to it, are cut at the beginning to whole blocks of 25 ids, so that the first
chunk of speech needs no padding and continues the recording without a seam:

    speech_ids    |..|-------------------------|-------------------------|   all, for the language model
    flow_ids, mel    |  whole blocks of 25 ids, 50 mel frames, 1 second  |   for the flow

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/cli/frontend.py:167-185 (alignment).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...prompt_file import (
    VoicePromptError,
    content_id,
    pack_prompt,
    prompt_faults,
    read_prompt,
    unpack_prompt,
    write_prompt,
)
from ..config import (
    BLOCK_IDS,
    FRAMES_PER_SPEECH_ID,
    MEL_BANDS,
    SPEAKER_WIDTH,
    SPEECH_IDS_PER_S,
    CosyVoiceVersion,
)

__all__ = ["VoicePrompt", "VoicePromptError", "align_prompt"]

Float = NDArray[np.float32]
Ids = NDArray[np.int32]

_FILE_FORMAT = 1


@dataclass(frozen=True, slots=True, eq=False)
class VoicePrompt:
    """A voice, ready to condition the networks. Equal content has an equal ``id``."""

    version: CosyVoiceVersion
    transcript: str  # of the recording; may be empty
    speech_ids: Ids  # (N,) int32, 25 ids/s
    mel: Float  # (80, 2 * M) float32, natural log, 50 frames/s, M = N // 25 * 25
    embedding: Float  # (192,) float32, of the speaker

    @property
    def flow_ids(self) -> Ids:
        """The last M ids, those that the mel belongs to."""
        return self.speech_ids[len(self.speech_ids) - self.mel.shape[1] // FRAMES_PER_SPEECH_ID :]

    @property
    def duration_s(self) -> float:
        """Seconds of speech."""
        return len(self.speech_ids) / SPEECH_IDS_PER_S

    @property
    def id(self) -> str:
        """32 hexadecimal digits of the content's SHA-256."""
        header = [_FILE_FORMAT, self.version.value, self.transcript]
        return content_id(header, (self.speech_ids, self.mel, self.embedding))

    @property
    def model_version(self) -> int:
        """Number of the version."""
        return self.version.value

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return self.speech_ids.nbytes + self.mel.nbytes + self.embedding.nbytes

    def to_bytes(self) -> bytes:
        """The content of a saved prompt."""
        about = {"format": _FILE_FORMAT, "version": self.version.value, "transcript": self.transcript}
        arrays = {"speech_ids": self.speech_ids, "mel": self.mel, "embedding": self.embedding}
        return pack_prompt(about, arrays)

    @classmethod
    def from_bytes(cls, content: bytes, name: str = "prompt") -> "VoicePrompt":
        """Read the content of a saved prompt; ``name`` is for errors. Raises VoicePromptError."""
        with prompt_faults(name):
            return _parse_arrays(*unpack_prompt(content))

    def save(self, path: Path) -> None:
        """Write to a file, complete or not at all. Raises OSError."""
        write_prompt(path, self.to_bytes())

    @classmethod
    def load(cls, path: Path) -> "VoicePrompt":
        """Read a saved prompt. Raises VoicePromptError, and OSError if the file cannot be read."""
        return cls.from_bytes(read_prompt(path), path.name)


def align_prompt(speech_ids: Ids, mel: Float) -> tuple[Ids, Float]:
    """Cut the ids to those that have a mel, (80, T), and the mel to the last whole blocks of them."""
    count = min(mel.shape[1] // FRAMES_PER_SPEECH_ID, len(speech_ids))
    whole = count // BLOCK_IDS * BLOCK_IDS
    frames = mel[:, FRAMES_PER_SPEECH_ID * (count - whole) : FRAMES_PER_SPEECH_ID * count]
    return speech_ids[:count].copy(), np.ascontiguousarray(frames)


def _parse_arrays(about: dict[str, Any], stored: dict[str, NDArray[Any]]) -> VoicePrompt:
    if about["format"] != _FILE_FORMAT:
        raise VoicePromptError(f"its format is {about['format']}; {_FILE_FORMAT} is supported")
    ids, mel, embedding = stored["speech_ids"], stored["mel"], stored["embedding"]
    whole = len(ids) // BLOCK_IDS * BLOCK_IDS
    shapes = (ids.ndim, mel.shape, embedding.shape)
    if shapes != (1, (MEL_BANDS, FRAMES_PER_SPEECH_ID * whole), (SPEAKER_WIDTH,)):
        raise VoicePromptError(
            f"its arrays have the shapes {ids.shape}, {mel.shape}, {embedding.shape}; "
            f"expected (N,), ({MEL_BANDS}, {FRAMES_PER_SPEECH_ID * whole}), ({SPEAKER_WIDTH},)"
        )
    if [str(array.dtype) for array in (ids, mel, embedding)] != ["int32", "float32", "float32"]:
        raise VoicePromptError(
            f"its arrays are {ids.dtype}, {mel.dtype}, {embedding.dtype}; expected int32, float32, float32"
        )
    return VoicePrompt(CosyVoiceVersion(about["version"]), str(about["transcript"]), ids, mel, embedding)
