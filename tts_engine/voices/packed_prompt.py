"""A prompt of any model as its file's content, for a process that has neither the model nor its libraries."""

from dataclasses import dataclass
from pathlib import Path

from ...models.cosyvoice.front_end.prompt_file import (
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
