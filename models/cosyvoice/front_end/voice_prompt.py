"""The prompt of a voice: a recording as the networks are conditioned on it, and its file format.

    prompt.save(path)
    VoicePrompt.load(path)      one file of arrays, without pickle

The mel, and the ids that belong to it, are cut at the beginning to whole blocks of 25 ids, so that the first
chunk of speech needs no padding and continues the recording without a seam:

    speech_ids    |..|-------------------------|-------------------------|   all, for the language model
    flow_ids, mel    |  whole blocks of 25 ids, 50 mel frames, 1 second  |   for the flow

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/cli/frontend.py:167-185 (alignment).
"""

import hashlib
import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..config import (
    BLOCK_IDS,
    FRAMES_PER_SPEECH_ID,
    MEL_BANDS,
    SPEAKER_WIDTH,
    SPEECH_IDS_PER_S,
    CosyVoiceVersion,
)

Float = NDArray[np.float32]
Ids = NDArray[np.int32]

_FILE_FORMAT = 1
_MAX_PROMPT_BYTES = 4_000_000  # of a saved prompt; 30 s take 490 kB


class VoicePromptError(ValueError):
    """A recording or a saved prompt cannot be used; the message says what was got and what is allowed."""


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
        digest = hashlib.sha256(json.dumps([_FILE_FORMAT, self.version.value, self.transcript]).encode())
        for array in (self.speech_ids, self.mel, self.embedding):
            digest.update(json.dumps([array.shape, str(array.dtype)]).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:32]

    def to_bytes(self) -> bytes:
        """The content of a saved prompt."""
        about = json.dumps(
            {"format": _FILE_FORMAT, "version": self.version.value, "transcript": self.transcript}
        )
        packed = io.BytesIO()
        np.savez(
            packed,
            about=np.frombuffer(about.encode(), np.uint8),
            speech_ids=self.speech_ids,
            mel=self.mel,
            embedding=self.embedding,
        )
        return packed.getvalue()

    def save(self, path: Path) -> None:
        """Write to a file, complete or not at all. Raises OSError."""
        partial = path.with_name(path.name + ".partial")
        try:
            partial.write_bytes(self.to_bytes())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> "VoicePrompt":
        """Read a saved prompt. Raises VoicePromptError, and OSError if the file cannot be read."""
        with path.open("rb") as file:
            return _read_prompt(file, path.name)

    @classmethod
    def from_bytes(cls, content: bytes) -> "VoicePrompt":
        """Read the content of a saved prompt. Raises VoicePromptError."""
        return _read_prompt(io.BytesIO(content), "prompt")


def _read_prompt(file: BinaryIO, name: str) -> VoicePrompt:
    try:
        with zipfile.ZipFile(file) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > _MAX_PROMPT_BYTES:
            raise VoicePromptError(
                f"{name}: holds {size:,} bytes; a prompt has at most {_MAX_PROMPT_BYTES:,}"
            )
        file.seek(0)
        with np.load(file, allow_pickle=False) as stored:
            return _parse_arrays(dict(stored))
    except (zipfile.BadZipFile, ValueError, KeyError, TypeError, EOFError) as error:
        raise VoicePromptError(f"{name}: not a saved prompt, or damaged ({error}); enrol again") from error


def align_prompt(speech_ids: Ids, mel: Float) -> tuple[Ids, Float]:
    """Cut the ids to those that have a mel, (80, T), and the mel to the last whole blocks of them."""
    count = min(mel.shape[1] // FRAMES_PER_SPEECH_ID, len(speech_ids))
    whole = count // BLOCK_IDS * BLOCK_IDS
    frames = mel[:, FRAMES_PER_SPEECH_ID * (count - whole) : FRAMES_PER_SPEECH_ID * count]
    return speech_ids[:count].copy(), np.ascontiguousarray(frames)


def _parse_arrays(stored: dict[str, NDArray[Any]]) -> VoicePrompt:
    about = json.loads(stored["about"].tobytes())
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
