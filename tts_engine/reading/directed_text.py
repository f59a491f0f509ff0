"""Text of which a markup says what is not spoken, and where a pause is."""

from dataclasses import dataclass


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
