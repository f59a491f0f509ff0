"""Rate, pitch, volume and range attributes of SSML, and its emphasis, as factors.

    rate    "1.2", "120%", "+20%", "fast"        pitch   "1.1", "+10%", "+2st", "high"
    volume  "75" (50 is the voice's own), "+6dB", "loud"   range "1.2", "+20%", "high"

Other values, such as a pitch in Hz, have no effect, as SSML demands of a processor without support for them.

Source: W3C Speech Synthesis Markup Language 1.1, section 3.2.4; Alibaba Cloud Model Studio's SSML page for
plain numbers of rate and pitch, which SSML allows for the volume only.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from .....tts_engine.reading.prosody import NEUTRAL_PROSODY, Prosody

_NUMBER: Final = re.compile(r"(?P<sign>[+-]?)(?P<number>\d{1,4}(?:\.\d{1,6})?)(?P<unit>%|st|dB|)", re.ASCII)
_RATES: Final = {"x-slow": 0.5, "slow": 0.75, "medium": 1.0, "fast": 1.25, "x-fast": 1.75}
_PITCHES: Final = {"x-low": 0.75, "low": 0.87, "medium": 1.0, "high": 1.15, "x-high": 1.33}
_VOLUMES: Final = {"silent": 0.0, "x-soft": 0.25, "soft": 0.5, "medium": 1.0, "loud": 1.5, "x-loud": 2.0}
_RANGES: Final = {"x-low": 0.4, "low": 0.7, "medium": 1.0, "high": 1.3, "x-high": 1.6}
# A stressed word is longer, higher and louder: by about a seventh, two semitones and 3 dB where it is strong.
_EMPHASES: Final = {
    "strong": Prosody(speed=0.86, pitch=1.12, volume=1.4, range=1.3),
    "moderate": Prosody(speed=0.92, pitch=1.07, volume=1.22, range=1.15),
    "none": NEUTRAL_PROSODY,
    "reduced": Prosody(speed=1.08, pitch=0.95, volume=0.75, range=0.8),
}
_NEUTRAL_VOLUME: Final = 50  # in the range 0 to 100
_MAX_VOLUME_DB: Final = 200.0  # beyond any volume; the factor of 6,200 dB is no float


def parse_prosody(attributes: Mapping[str, str]) -> Prosody:
    """Return the factors of the attributes of ``prosody``, or of ``speak`` in Alibaba's dialect."""
    return Prosody(
        speed=_factor(attributes.get("rate", ""), _RATES, {"": float}),
        pitch=_factor(
            attributes.get("pitch", ""), _PITCHES, {"": float, "st": lambda value: 2 ** (value / 12)}
        ),
        volume=_factor(
            attributes.get("volume", ""),
            _VOLUMES,
            {
                "": lambda value: value / _NEUTRAL_VOLUME,
                "dB": lambda value: 10 ** (min(value, _MAX_VOLUME_DB) / 20),
            },
        ),
        range=_factor(attributes.get("range", ""), _RANGES, {"": float}),
    )


def emphasis(level: str) -> Prosody:
    """Return how ``emphasis`` of a level is said; one without a known level is moderate, as SSML demands."""
    return _EMPHASES.get(level, _EMPHASES["moderate"])


def _factor(value: str, names: Mapping[str, float], units: Mapping[str, Callable[[float], float]]) -> float:
    """Return the factor of a name or number; a sign before a percentage makes it relative to 1."""
    value = value.strip()
    parts = _NUMBER.fullmatch(value)
    if parts is None:
        return names.get(value, 1.0)
    number = float(f"{parts['sign']}{parts['number']}")
    match parts["unit"], bool(parts["sign"]):
        case "%", is_relative:
            return max(0.0, number / 100 + is_relative)
        case "", True:
            return 1.0
        case unit, _:
            return units[unit](number) if unit in units else 1.0
