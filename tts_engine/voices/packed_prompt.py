"""A prompt of any model as its file's content, for a process that has neither the model nor its libraries."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ...models.prompt_file import (
    content_id,
    prompt_faults,
    read_prompt,
    unpack_prompt,
    write_prompt,
)


@dataclass(frozen=True, slots=True, eq=False)
class PackedPrompt:
    """A ``StorablePrompt`` whose arrays nothing here looks at. Made by ``from_bytes``."""

    id: str
    model_version: int
    transcript: str
    content: bytes

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return len(self.content)

    @classmethod
    def from_bytes(cls, content: bytes, name: str = "prompt") -> "PackedPrompt":
        """Read the content of a saved prompt of any model. Raises VoicePromptError, a ValueError."""
        with prompt_faults(name):
            about, arrays = unpack_prompt(content)
            # CosyVoice's files name a version, those of XTTS a model.
            version = int(about["version"] if "version" in about else about["model"])
            transcript = str(about["transcript"])
            header = [about["format"], version, transcript]
            return cls(content_id(header, [*arrays.values()]), version, transcript, content)

    @classmethod
    def load(cls, path: Path) -> "PackedPrompt":
        """Read a saved prompt. Raises VoicePromptError, and OSError if the file cannot be read."""
        return cls.from_bytes(read_prompt(path), path.name)

    def to_bytes(self) -> bytes:
        """The content of a saved prompt."""
        return self.content

    def save(self, path: Path) -> None:
        """Write to a file, complete or not at all. Raises OSError."""
        write_prompt(path, self.content)


_XTTS_BIT = 1 << 47  # set in the numbers of XTTS, which are made of its weights


class StorablePrompt(Protocol):
    """A voice made of recordings, as one model takes it. Equal content has an equal ``id``."""

    @property
    def id(self) -> str:
        """32 hexadecimal digits of the content's SHA-256."""

    @property
    def model_version(self) -> int:
        """The model that the prompt was made with: 2 or 3 for CosyVoice, a number of the weights for XTTS."""

    @property
    def transcript(self) -> str:
        """The words of the recordings; may be empty."""

    @property
    def nbytes(self) -> int:
        """Size in memory."""

    def to_bytes(self) -> bytes:
        """The content of a saved prompt."""

    def save(self, path: Path) -> None:
        """Write to a file, complete or not at all. Raises OSError."""


def model_name(version: int) -> str:
    """The name of a ``StorablePrompt.model_version`` for people: "CosyVoice 2", "XTTS 9f02c61ab3de"."""
    return f"XTTS {version:012x}" if version & _XTTS_BIT else f"CosyVoice {version}"
