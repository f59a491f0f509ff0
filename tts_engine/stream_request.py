"""The request of a stream: its voice and pace, and how its text is spoken."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from .errors import BadRequest
from .reading.pronunciation.lexicon import Lexicon
from .records.spans import current_span

_MIN_SPEED: Final = 0.5
_MAX_SPEED: Final = 2.0
MIN_LIVELINESS: Final = 0.8
MAX_LIVELINESS: Final = 1.6
LIVELINESS: Final = 1.4  # the usual one


class DeliveryMode(StrEnum):
    """How CosyVoice uses the recording of a voice."""

    ZERO_SHOT = "zero-shot"  # continue from its text and speech
    CROSS_LINGUAL = "cross-lingual"  # take its sound only
    INSTRUCT = "instruct"  # take its sound, and follow an instruction in words


@dataclass(frozen=True, slots=True)
class Delivery:
    """How a text is spoken; None and "" leave the choice to the voice.

    CosyVoice supports all fields but the penalty; XTTS supports the language, the sampling but for repetition
    window and threshold, and the first hop; the packaged voice supports liveliness, other voices the language
    at most. The listener's rate is
    no wish, and no voice refuses it.
    """

    mode: DeliveryMode | None = None  # None: by instruction and recording
    instruction: str = ""  # in words, such as a dialect or an emotion
    language: str | None = None  # of the text, BCP 47; None: the voice's
    # Sampling of speech ids
    temperature: float | None = None  # above 0; below 1 is steadier
    top_p: float | None = None  # in (0, 1]
    top_k: int | None = None  # at least 1
    repetition_window: int | None = None  # ids looked back at; 0 switches the repetition rule off
    repetition_threshold: float | None = None  # an id with this share of the window is drawn again
    repetition_penalty: float | None = None  # of XTTS, above 0: divides the scores of ids decoded before
    # Speech ids of the first chunk of audio, at least 1: whole blocks of 25, at most the backend's longest
    # chunk. More of them delay the first sound, and cost less.
    first_hop: int | None = None
    # How far the pitch moves, as a factor of the model's own, 0.8 to 1.6; the packaged voice only. None: as
    # the engine is configured.
    liveliness: float | None = None
    # Sample rate at which the listener hears it, Hz. A voice may leave out frequencies above its half, and
    # give samples at this rate; the packaged voice does, at 8 and 12 kHz.
    listener_rate: int | None = None


def speed_in_range(speed: float) -> float:
    """The nearest speed that a stream may have, 0.5 to 2.0."""
    return min(_MAX_SPEED, max(_MIN_SPEED, speed))


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """What a stream is opened with; raises BadRequest for a speed, seed or liveliness out of range."""

    voice: str | None = None  # id; None: the engine's default
    speed: float = 1.0  # 0.5 to 2.0; 1.0 is the voice's own pace
    seed: int = 0  # of the stream's random generators, at least 0; equal seeds give equal samples
    delivery: Delivery = Delivery()
    lexicons: tuple[Lexicon, ...] = ()  # ahead of the engine's own, the first one first
    trace_id: str = "-"  # names the stream in logs, of this process and of others that speak it
    parent_span: str = field(default_factory=current_span, compare=False)  # what its spans belong to
    keeps_speech: bool = True  # its lines may be kept for streams that say the same

    def __post_init__(self) -> None:
        if not _MIN_SPEED <= self.speed <= _MAX_SPEED:
            raise BadRequest(f"speed {self.speed} is outside {_MIN_SPEED} to {_MAX_SPEED}")
        if self.seed < 0:
            raise BadRequest(f"seed {self.seed} is below 0")
        liveliness = self.delivery.liveliness
        if liveliness is not None and not MIN_LIVELINESS <= liveliness <= MAX_LIVELINESS:
            raise BadRequest(f"liveliness {liveliness} is outside {MIN_LIVELINESS} to {MAX_LIVELINESS}")
