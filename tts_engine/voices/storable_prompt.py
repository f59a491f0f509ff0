"""Prompts of voices, as a store keeps them: the interface that the prompts of all families share."""

from pathlib import Path
from typing import Protocol

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
