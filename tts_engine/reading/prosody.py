"""The prosody of a part of a text: a value that markup sets and voices follow as far as they can."""

from dataclasses import dataclass
from typing import Final


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

    def besides(self, other: "Prosody") -> "Prosody":
        """Return what is left of this product once ``other`` is applied; a factor of 0 counts as 1."""
        return Prosody(
            self.speed / (other.speed or 1.0),
            self.pitch / (other.pitch or 1.0),
            self.volume / (other.volume or 1.0),
            self.range / (other.range or 1.0),
        )


NEUTRAL_PROSODY: Final = Prosody()
