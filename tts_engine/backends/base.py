"""The interface between the engine and a speech backend: slots, and a step that renders a batch of them.

The engine owns sessions, scheduling and threads; a backend owns weights and the state of each slot. The
engine opens a slot, steps it while there is text, and closes it; steps of one slot never overlap. The
packaged voice steps one slot on each worker; CosyVoice steps many slots at once and, on a GPU, has a worker
for each stage.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..chunk import SAMPLE_RATE, Word
from ..errors import Overloaded
from ..reading.language import DEFAULT_READING_STYLE, ReadingStyle, style_of
from ..segmenter import Segment, Segmenter
from ..stream_request import StreamRequest
from ..voices.voices import Voices


@dataclass(frozen=True, slots=True)
class SlotRequest(StreamRequest):
    """What a slot is opened with. It has no lexicons: a stream's text is read before its slot renders it."""

    voice: str  # id
    reading: ReadingStyle = DEFAULT_READING_STYLE  # of a voice that takes English words
    source_speech_ids: tuple[int, ...] | None = None  # ``Voices.tokenize_speech``, to convert instead of text
    speaker_profile: object = None  # ``Voices.speaker_profile``, read before the engine's lock is taken


@dataclass(frozen=True, slots=True)
class ProcessPolicy:
    """How the child process runs."""

    niceness: int = 0  # added to the parent's; above 0, the threads that send audio run first on a busy core
    max_starts: int = 3  # restarts within ``start_window_s``; beyond that, new slots are refused
    start_window_s: float = 60.0
    max_restart_wait_s: float = 2.0  # of the first step of a slot that was opened before the child died


@dataclass(frozen=True, slots=True)
class SlotTurn:
    """One slot's part in a step.

    segment: begun with this step; None continues the one begun before. pause_s: seconds of silence after the
    segment; set only on the turn with the segment, so the backend keeps it. runs_dry_at: when the listener
    will have heard all audio rendered so far, monotonic seconds; None before the first audio.
    """

    slot: int
    segment: Segment | None
    pause_s: float = 0.0
    runs_dry_at: float | None = None


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step rendered for one slot."""

    # (N,) float32 at ``sample_rate``, |x| <= 1; N may be 0.
    samples: NDArray[np.float32]
    # Words that begin in these samples, in seconds from the slot's first sample. ``Word.text`` stays empty;
    # the stream fills it in.
    words: tuple[Word, ...]
    # The segment is rendered to its end, pause included, or as far as possible before more text comes.
    segment_done: bool
    speech_ids: tuple[int, int] | None = None  # (start, stop) in the stream, as provenance
    mel_frames: tuple[int, int] | None = None
    text: tuple[int, int] | None = None  # characters that the samples speak; None: the segment's
    device_s: float = 0.0  # compute time that the worker's thread did not spend itself
    sample_rate: int = SAMPLE_RATE  # Hz; a divisor of 24 kHz, one for all samples of a slot
    repeated: bool = False  # rendered before, for the same or another slot
    from_file: bool = False  # of what is repeated: rendered by a process that had the same files
    speech_ids_needed: int | None = None  # as of ``Provenance``

    @property
    def seconds(self) -> float:
        """Duration of the samples."""
        return len(self.samples) / self.sample_rate


def request_in(request: SlotRequest, language: str | None) -> SlotRequest:
    """The request for a part of its text in another language, BCP 47; None: in the request's."""
    if language is None:
        return request
    delivery = replace(request.delivery, language=language)
    return replace(request, delivery=delivery, reading=style_of(language, request.reading))


class Stage(Enum):
    """The kind of a step. All slots of a step are in the same stage."""

    DECODE = "decode"  # a few speech ids; one more slot costs little
    RENDER = "render"  # samples; the only stage of a backend with one kind of step


Stages = frozenset[Stage]
ALL_STAGES: Stages = frozenset(Stage)


class SlotRenderer(Protocol):
    """The part of a ``Backend`` that needs tensors: it renders the slots that are open.

    ``step`` runs on a worker thread. The other methods return at once; the engine calls them under its lock.
    """

    @property
    def workers(self) -> Sequence[Stages]:
        """The stages that each worker runs. Workers run at the same time, each on a thread of its own."""

    def max_batch_size(self, stage: Stage) -> int:
        """Most slots in one step of that stage."""

    def stage(self, slot: int) -> Stage:
        """The stage of a slot's next step. Not called while the slot is being stepped."""

    @property
    def slots(self) -> int:
        """Most slots open at once."""

    @property
    def memory_slots(self) -> int:
        """Slots that memory has room for now, open ones included, at most ``slots``.

        At least one, but none while nothing can compute the voice, such as after its device failed.
        """

    def close_slot(self, slot: int) -> None:
        """Close a slot in any state. Not called while the slot is being stepped."""

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        """Render one step of each turn's slot, results in the order of turns.

        An exception in the place of a result ends that session only; an exception raised ends all of them.
        """


class VoiceFrontEnd(Protocol):
    """The part of a ``Backend`` that needs no tensors: its voices, and how their text is read.

    The methods return at once, apart from ``close``; the engine calls them under its lock.
    """

    @property
    def voices(self) -> Voices:
        """The loaded voices."""

    @property
    def warm_up_text(self) -> str:
        """Text that each worker renders once before the engine opens."""

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """A new segmenter for the request. Raises BadRequest, for example for the language."""

    def close(self) -> None:
        """Free everything. Called once no step is running."""


class Backend(VoiceFrontEnd, SlotRenderer, Protocol):
    """A speech model behind ``Engine``."""

    def open_slot(self, request: SlotRequest) -> int:
        """Open a slot. Raises BadRequest or Overloaded.

        Returns at once. The engine calls it under its lock, and opens at most ``slots``, not counting slots
        that were cancelled in a running step and close when it ends.
        """


@runtime_checkable
class SeparateProcess(Protocol):
    """A backend that renders in a process of its own."""

    @property
    def pid(self) -> int:
        """Process id."""

    def refusal(self) -> Overloaded | None:
        """The error with which a slot would be refused now because of the process."""


@runtime_checkable
class VaryingBackend(Protocol):
    """A backend whose segmenter varies the pauses, by the seed of the stream."""

    @property
    def varies_pauses(self) -> bool:
        """Whether it does."""


@runtime_checkable
class ChunkedBackend(Protocol):
    """A backend that cuts speech into chunks by a policy of its own."""

    @property
    def chunk_policy(self) -> Mapping[str, int]:
        """The lengths of its chunks, in units of its model."""


@runtime_checkable
class PreparingBackend(Protocol):
    """A backend that prepares further kinds of steps while it serves; unprepared ones take longer."""

    @property
    def next_preparation(self) -> Stage | None:
        """The stage whose worker prepares next; None if nothing is left. Returns at once, on any thread."""

    def prepare(self, worker: int, stage: Stage) -> None:
        """Prepare one kind of step of that stage, on a worker that runs it. Takes up to seconds."""


@runtime_checkable
class InterruptibleBackend(Protocol):
    """A backend whose steps may wait for another process."""

    def interrupt(self, slot: int) -> None:
        """End the step of a slot early, if it can be; its result is not used. Returns at once."""
