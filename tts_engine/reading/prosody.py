"""Prosody, which voices follow as far as they can, breaks, and text that is not spoken, as markup says it."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

MAX_BREAK_S: Final = 20.0  # a longer one is shortened
# Of ``strength`` of SSML's ``break``.
BREAK_STRENGTHS_S: Final[Mapping[str, float]] = MappingProxyType(
    {"none": 0.0, "x-weak": 0.1, "weak": 0.2, "medium": 0.5, "strong": 1.0, "x-strong": 1.5}
)


@dataclass(frozen=True, slots=True)
class Prosody:
    """Factors relative to the voice's own speed, pitch, volume and range of pitch."""

    speed: float = 1.0
    pitch: float = 1.0
    volume: float = 1.0  # of the amplitude
    range: float = 1.0  # of the pitch's deviations from its mean

    def combined_with(self, other: "Prosody") -> "Prosody":
        """Return the product with ``other``, for nested elements."""
        return Prosody(
            self.speed * other.speed,
            self.pitch * other.pitch,
            self.volume * other.volume,
            self.range * other.range,
        )


NEUTRAL_PROSODY: Final = Prosody()


@dataclass(frozen=True, slots=True)
class DirectedText:
    """A stretch of the text; in their order the stretches are the whole text."""

    text: str
    is_spoken: bool = True
    pause_s: float | None = None  # after it


class PlainText:
    """A text without directions, and the base class of the markups that have some: all of it is spoken."""

    def push(self, text: str) -> list[DirectedText]:
        """Add text; the stretches that are decided now."""
        return [DirectedText(text)] if text else []

    def flush(self) -> list[DirectedText]:
        """Return what is held."""
        return []
