"""What a speech backend is to the engine: slots, and one call that renders a step for a batch of them.

The engine owns sessions, order and threads; a backend owns weights and the memory of each slot. The packaged
voice steps one slot a worker; CosyVoice steps many slots at once, on a graphics card with a worker for each
kind of step. Either way: open a slot, step it while there is text, close it. Steps of one slot never overlap.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..chunk import Word
from ..segmenter import Segment, Segmenter
from ..voices.voices import Voices


class DeliveryMode(StrEnum):
    """What a voice that was enrolled is used for: going on where its recording ends, or its sound alone."""

    ZERO_SHOT = "zero-shot"
    CROSS_LINGUAL = "cross-lingual"
    INSTRUCT = "instruct"


@dataclass(frozen=True, slots=True)
class Delivery:
    """How a text is to be delivered; None and "" leave it to the voice.

    CosyVoice can do all of it; the packaged voice passes over what it cannot.

    mode: how the voice is used. instruction: in words, e.g. a dialect or a feeling. language: of the text,
    BCP 47. The others choose among what the model finds likely: temperature above 0 and below 1 is steadier;
    top_p in (0, 1] and top_k bound the choice; a sound is drawn again if its share of the last
    repetition_window ones reaches repetition_threshold.
    """

    mode: DeliveryMode | None = None
    instruction: str = ""
    language: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    repetition_window: int | None = None
    repetition_threshold: float | None = None


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """How a session wants to sound. speed: 0.5 to 2.0, 1.0 as the voice is. seed: of its own generator.

    speech_ids: what ``Voices.hear`` made of speech that is to be said again in this voice, instead of text.
    speaker: what ``Voices.speaker`` says of the voice, asked before the engine's lock is taken.
    """

    voice: str
    speed: float
    seed: int
    delivery: Delivery = Delivery()
    source_speech_ids: tuple[int, ...] | None = None
    speaker_profile: object = None


@dataclass(frozen=True, slots=True)
class SlotTurn:
    """One slot's part of a step: begin ``segment`` and pause after it, or go on with the one begun (None)."""

    slot: int
    segment: Segment | None
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step made for one slot.

    samples: (N,) float32 at 24 kHz, |x| <= 1; N may be 0. words: those that begin in these samples, with
    times in seconds from the slot's first sample; their ``text`` is left empty, the session knows it.
    segment_done: the segment is rendered whole, pause included; or as far as it can be before more text
    comes. text: characters of the text that this is part of; None is the segment's.
    """

    samples: NDArray[np.float32]
    words: tuple[Word, ...]
    segment_done: bool
    speech_ids: tuple[int, int] | None = None
    mel_frames: tuple[int, int] | None = None
    text: tuple[int, int] | None = None
    device_s: float = 0.0


class Stage(Enum):
    """What a step is, where a voice has two kinds: they take turns, and each is shared by the slots in it.

    DECODE: speech ids, few a step, cheap for one more slot. RENDER: a piece of sound; backends with one kind
    of step have only this.
    """

    DECODE = "decode"
    RENDER = "render"


Stages = frozenset[Stage]
ALL_STAGES: Stages = frozenset(Stage)


class Backend(Protocol):
    """A voice engine behind ``Engine``. Methods but ``step`` are quick; ``step`` runs on a worker thread."""

    @property
    def voices(self) -> Voices:
        """The voices loaded."""

    @property
    def warm_up_text(self) -> str:
        """What is said to nobody at the start, so that the first listener does not pay for it."""

    @property
    def workers(self) -> Sequence[Stages]:
        """Steps that may run at once, each on a thread of its own; of which stages each may be."""

    def max_batch_size(self, stage: Stage) -> int:
        """Slots that one step takes at most; a step is of one stage."""

    def stage(self, slot: int) -> Stage:
        """What the next step of a slot would be; not while it is being stepped."""

    @property
    def slots(self) -> int:
        """Sessions that may be open at once."""

    @property
    def memory_slots(self) -> int:
        """Of them, as many as memory has room for now; at least one."""

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """A new segmenter, of the policy that suits this voice and language."""

    def open_slot(self, request: SlotRequest) -> int:
        """Take a slot. Raises BadRequest, and Overloaded.

        No more than ``slots`` are open, but for those that were cancelled in a step which is running: their
        places may be taken already.
        """

    def close_slot(self, slot: int) -> None:
        """Give a slot back, whatever state it is in; not while it is being stepped."""

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        """Render one step of each turn's slot; an exception in its place ends that session alone."""

    def close(self) -> None:
        """Free everything; no step is running."""
