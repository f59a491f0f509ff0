"""Run-time settings of the Pipecat text-to-speech services."""

from dataclasses import dataclass, field

from pipecat.services.settings import TTSSettings
from pipecat.utils.types import NOT_GIVEN, NotGiven

MIN_SPEED, MAX_SPEED = 0.5, 2.0


@dataclass
class VivavoceTTSSettings(TTSSettings):
    """Settings that may change while a pipeline runs; a change takes effect with the next utterance.

    Parameters:
        speed: Speed factor, 0.5 to 2.0; 1.0 is the voice's own speed.
    """

    speed: float | NotGiven = field(default_factory=lambda: NOT_GIVEN)


def complete_settings(settings: VivavoceTTSSettings | None) -> VivavoceTTSSettings:
    """Return ``settings`` with the defaults of the fields that are not given."""
    complete = VivavoceTTSSettings(model="default", voice=None, language=None, speed=1.0)
    if settings is not None:
        complete.apply_update(settings)
    return complete


def speed_error(settings: VivavoceTTSSettings) -> str | None:
    """Return the error of an invalid speed, or None."""
    speed = settings.speed
    if not isinstance(speed, int | float) or not MIN_SPEED <= speed <= MAX_SPEED:
        return f"got speed {speed!r}; it must be {MIN_SPEED} to {MAX_SPEED}"
    return None
