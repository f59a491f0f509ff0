"""A voice made of recordings, with the weights that made it, and its file."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ...prompt_file import (
    content_id,
    pack_prompt,
    prompt_faults,
    read_prompt,
    unpack_prompt,
    write_prompt,
)
from ..config import CONDITIONING_LATENTS, SPEAKER_EMBEDDING_WIDTH
from ..voice import XttsVoice

_FILE_FORMAT = 1


@dataclass(frozen=True, slots=True, eq=False)
class XttsVoicePrompt:
    """A cloned voice, ready to be stored. Equal content has an equal ``id``."""

    voice: XttsVoice
    model_version: int  # of the encoders, ``XttsVoiceEncoder.version``
    transcript: str = ""  # of the recordings; XTTS does not read it

    @property
    def id(self) -> str:
        """32 hexadecimal digits of the content's SHA-256."""
        header = [_FILE_FORMAT, self.model_version, self.transcript]
        return content_id(header, [*self._arrays().values()])

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return self.voice.latents.nbytes + self.voice.speaker.nbytes

    def to_bytes(self) -> bytes:
        """The content of a saved prompt."""
        about = {"format": _FILE_FORMAT, "model": self.model_version, "transcript": self.transcript}
        return pack_prompt(about, self._arrays())

    @classmethod
    def from_bytes(cls, content: bytes, name: str = "prompt") -> "XttsVoicePrompt":
        """Read the content of a saved prompt; ``name`` is for errors. Raises VoicePromptError."""
        with prompt_faults(name):
            about, arrays = unpack_prompt(content)
            if about["format"] != _FILE_FORMAT:
                raise ValueError(f"its format is {about['format']}; {_FILE_FORMAT} is supported")
            latents, speaker = torch.from_numpy(arrays["latents"]), torch.from_numpy(arrays["speaker"])
            if (len(latents), *speaker.shape) != (CONDITIONING_LATENTS, SPEAKER_EMBEDDING_WIDTH):
                raise ValueError(f"its arrays are {list(latents.shape)} and {list(speaker.shape)}")
            voice = XttsVoice(latents.float(), speaker.float())
            return cls(voice, int(about["model"]), str(about["transcript"]))

    def save(self, path: Path) -> None:
        """Write to a file, complete or not at all. Raises OSError."""
        write_prompt(path, self.to_bytes())

    @classmethod
    def load(cls, path: Path) -> "XttsVoicePrompt":
        """Read a saved prompt. Raises VoicePromptError, and OSError if the file cannot be read."""
        return cls.from_bytes(read_prompt(path), path.name)

    def _arrays(self) -> dict[str, NDArray[np.float32]]:
        voice = self.voice
        return {"latents": voice.latents.cpu().numpy(), "speaker": voice.speaker.cpu().numpy()}
