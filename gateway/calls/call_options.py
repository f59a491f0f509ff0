"""Options of a call: how it speaks, and what it does when its caller speaks."""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class CallSpeechOptions:
    """Voice and speed of an utterance."""

    voice: str | None = None  # id; None: the engine's default voice
    speed: float = 1.0  # factor
    seed: int = 0


class CallerSpeechAction(Enum):
    """What a call does when its caller begins to speak."""

    TELL = "tell"  # emit CallerSpeaking
    DISCARD = "discard"  # emit CallerSpeaking and discard what is playing
