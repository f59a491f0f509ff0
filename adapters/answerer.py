"""The answerer of an outgoing call, as far as it is known."""

from dataclasses import dataclass
from enum import Enum


class Answerer(Enum):
    """What is known of the one who answered."""

    PERSON = "person"
    MACHINE = "machine"
    GREETED = "greeting_ended"  # of a machine: what is said now is recorded
    FAX = "fax"
    SILENCE = "silence"

    @property
    def is_final(self) -> bool:
        """Whether nothing follows."""
        return self is not Answerer.MACHINE


@dataclass(frozen=True, slots=True)
class AnswerDetected:
    """A result, ``at_s`` seconds into the audio."""

    answerer: Answerer
    at_s: float
