"""Text that a client sends in pieces, cut into transcripts that are spoken one after another.

    text  ->  Transcript  --a flush, a delay, silence or the end of the input-->  complete  ->  spoken

Every protocol with streamed text is this queue; contexts side by side on a socket are a dictionary of it. A
transcript has a stream of the engine from its first speakable text to its last audio. Between transcripts a
client holds nothing of the engine, so it may stay connected while its language model thinks.

No I/O and no clock: time comes in as a number, ``deadline`` says when to call ``receive_time``. Messages and
formats of the protocols are not in this module.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, Generic, Protocol, TypeVar

from ..tts_engine.errors import VivavoceError

MAX_WAITING_CHARACTERS: Final = 64 * 1024  # in the transcripts behind the one that is spoken
MAX_WAITING_TRANSCRIPTS: Final = 256

OptionsT = TypeVar("OptionsT")  # of an utterance; only passed on


class TranscriptQueueFull(VivavoceError):
    """A client has sent more text than it has been spoken."""


class TranscriptSink(Protocol):
    """The stream that speaks a transcript."""

    @property
    def text(self) -> str:
        """All text pushed so far."""

    def push_text(self, text: str) -> None:
        """Add text; raises BadText if there is too much."""

    def flush(self) -> None:
        """Speak the buffered text without waiting for more."""

    def end_input(self) -> None:
        """Complete the text."""

    def cancel(self) -> None:
        """Speak no more."""


class TranscriptState(Enum):
    """What has come of a transcript's text, and where it is."""

    WRITTEN = "takes text, which waits for a stream"
    WAITING = "has all its text, which waits for a stream"
    STREAMED = "takes text, which is spoken"
    FINISHING = "has all its text, which is spoken"
    DROPPED = "is spoken no more"


class TranscriptVerb(Enum):
    """What is done to a transcript."""

    PUSH = "text"
    COMPLETE = "the end of the text"
    OPEN = "a stream"
    DROP = "a drop"


_WRITTEN, _WAITING, _STREAMED, _FINISHING, _DROPPED = TranscriptState
_PUSH, _COMPLETE, _OPEN, _DROP = TranscriptVerb
TRANSITIONS: Final[Mapping[TranscriptState, Mapping[TranscriptVerb, TranscriptState]]] = MappingProxyType(
    {
        _WRITTEN: {_PUSH: _WRITTEN, _COMPLETE: _WAITING, _OPEN: _STREAMED, _DROP: _DROPPED},
        _WAITING: {_COMPLETE: _WAITING, _OPEN: _FINISHING, _DROP: _DROPPED},
        _STREAMED: {_PUSH: _STREAMED, _COMPLETE: _FINISHING, _DROP: _DROPPED},
        _FINISHING: {_COMPLETE: _FINISHING, _DROP: _DROPPED},
        _DROPPED: dict.fromkeys(TranscriptVerb, _DROPPED),  # what was under way has no effect
    }
)


class Transcript(Generic[OptionsT]):
    """Text that is spoken as one utterance, with the options of its beginning."""

    def __init__(self, options: OptionsT) -> None:
        self.options = options
        self.state = _WRITTEN
        self.flush_id: int | None = None  # of the flush that completed it
        self.characters = 0
        self._pieces: list[str | None] = []  # until the stream is open; None is a flush
        self._sink: TranscriptSink | None = None
        self._before_push: Callable[[int], None]

    @property
    def is_complete(self) -> bool:
        """Whether it takes no more text."""
        return self.state not in (_WRITTEN, _STREAMED)

    @property
    def is_dropped(self) -> bool:
        """Whether nothing more of it is spoken."""
        return self.state is _DROPPED

    @property
    def waiting_characters(self) -> int:
        """Characters that wait for the stream."""
        return self.characters if self.state in (_WRITTEN, _WAITING) else 0

    @property
    def is_blank(self) -> bool:
        """Whether it has no text so far but blanks."""
        return self._sink is None and not any(piece and piece.strip() for piece in self._pieces)

    @property
    def text(self) -> str:
        """The text so far; once its stream is open without markup, as places of words count it."""
        if self._sink is not None:
            return self._sink.text
        return "".join(piece for piece in self._pieces if piece is not None)

    def push(self, text: str) -> None:
        """Add text; raises ValueError if it is complete, and what its stream raises."""
        self._apply(_PUSH)
        self.characters += len(text)
        self._add(text)

    def flush(self) -> None:
        """Speak the text so far as a sentence, without waiting for more."""
        if self._sink is not None or self._pieces[-1:] != [None]:  # a second flush in a row has no effect
            self._add(None)

    def complete(self) -> None:
        """End the text."""
        self._apply(_COMPLETE)
        if self._sink is not None:
            self._sink.end_input()

    def open(self, sink: TranscriptSink, before_push: Callable[[int], None]) -> None:
        """Speak on a stream; raises what the stream and ``before_push`` raise.

        before_push: gets the number of characters of each piece before the stream does.
        """
        self._apply(_OPEN)
        self._sink, self._before_push = sink, before_push
        pieces, self._pieces = self._pieces, []
        for piece in pieces:
            self._add(piece)
        if self.is_complete:
            sink.end_input()

    def drop(self) -> None:
        """Speak no more."""
        self._apply(_DROP)
        self._pieces.clear()
        if self._sink is not None:
            self._sink.cancel()

    def _apply(self, verb: TranscriptVerb) -> None:
        state = TRANSITIONS[self.state].get(verb)
        if state is None:
            raise ValueError(f"got {verb.value} for a transcript that {self.state.value}")
        self.state = state

    def _add(self, piece: str | None) -> None:
        if self.is_dropped:
            return
        if self._sink is None:
            self._pieces.append(piece)
        elif piece is None:
            self._sink.flush()
        else:
            self._before_push(len(piece))
            self._sink.push_text(piece)


class TranscriptQueue(Generic[OptionsT]):
    """The transcripts of one client, or of one context of a client.

    Args:
        options: of the transcripts that begin from now on.
        charge: takes the characters of each text; may raise.
        max_silence_s: seconds without a message after which the input ends, or only the open transcript
            unless ``ends_in_silence``.
    """

    ends_in_silence = True

    def __init__(
        self, options: OptionsT, charge: Callable[[int], None], max_silence_s: float = math.inf
    ) -> None:
        self.options = options
        self.transcripts: deque[Transcript[OptionsT]] = deque()  # the first is being spoken
        self.input_ended = False
        self.is_dropped = False
        self.is_speaking = False  # whether a task takes the transcripts
        self.received_at = 0.0  # time of the last message
        self._charge = charge
        self._max_silence_s = max_silence_s
        self._complete_at = math.inf  # time at which the open transcript is complete

    @property
    def next_transcript(self) -> Transcript[OptionsT] | None:
        """The transcript to speak or to report now; None while there is no text but blanks."""
        first = self.transcripts[0] if self.transcripts and not self.is_dropped else None
        return first if first is not None and (first.is_complete or not first.is_blank) else None

    @property
    def open_transcript(self) -> Transcript[OptionsT] | None:
        """The transcript that takes text, None if the next text begins one."""
        last = self.transcripts[-1] if self.transcripts else None
        return last if last is not None and not last.is_complete else None

    @property
    def is_due(self) -> bool:
        """Whether a task is needed, which speaks what there is or reports the end."""
        is_idle = not self.is_speaking and not self.is_dropped
        return is_idle and (self.next_transcript is not None or self.input_ended)

    @property
    def waiting_characters(self) -> int:
        """Characters that wait for a stream."""
        return sum(transcript.waiting_characters for transcript in self.transcripts)

    @property
    def deadline(self) -> float:
        """Time at which ``receive_time`` is due; infinite for never."""
        awaits_text = not self.input_ended if self.ends_in_silence else self.open_transcript is not None
        return min(self._complete_at, self.received_at + self._max_silence_s if awaits_text else math.inf)

    def receive_time(self, now: float) -> None:
        """Complete what has waited long enough."""
        if now >= self._complete_at:
            self.complete()
        if now >= self.deadline and self.ends_in_silence:
            self.end_input()
        elif now >= self.deadline:
            self.complete()

    def push(self, text: str) -> None:
        """Add text to the open transcript; raises TranscriptQueueFull, BadText and what ``charge`` does."""
        waiting = self.waiting_characters + len(text)
        if waiting > MAX_WAITING_CHARACTERS or len(self.transcripts) >= MAX_WAITING_TRANSCRIPTS:
            raise TranscriptQueueFull(
                f"{waiting} characters wait in {len(self.transcripts)} flushed texts; "
                f"at most {MAX_WAITING_CHARACTERS} in {MAX_WAITING_TRANSCRIPTS} may"
            )
        self._charge(len(text))
        if text:
            self._open().push(text)

    def flush(self) -> None:
        """Speak the text so far without completing its transcript."""
        if self.open_transcript is not None:
            self.open_transcript.flush()

    def complete(self, flush_id: int | None = None) -> None:
        """Complete the open transcript; one with a flush's id is reported also if it has no text.

        Raises TranscriptQueueFull if the id needs a transcript more than may wait.
        """
        self._complete_at = math.inf
        if flush_id is not None:
            self._open().flush_id = flush_id
        if self.open_transcript is not None:
            self.open_transcript.complete()

    def complete_at(self, time: float) -> None:
        """Complete the open transcript at that time, unless it is completed or the time is changed before."""
        self._complete_at = time

    def end_input(self) -> None:
        """Complete the open transcript; no text follows."""
        self.input_ended = True
        self.complete()

    def drop(self) -> None:
        """Drop everything that has not been sent."""
        self.is_dropped = self.input_ended = True
        self._complete_at = math.inf
        for transcript in self.transcripts:
            transcript.drop()

    def make_transcript(self) -> Transcript[OptionsT]:
        """Return an empty transcript."""
        return Transcript(self.options)

    def _open(self) -> Transcript[OptionsT]:
        """Return the open transcript, a new one if there is none; raises TranscriptQueueFull."""
        if self.open_transcript is None:
            if len(self.transcripts) >= MAX_WAITING_TRANSCRIPTS:
                raise TranscriptQueueFull(f"{len(self.transcripts)} flushed texts wait, which is the limit")
            self.transcripts.append(self.make_transcript())
        return self.transcripts[-1]
