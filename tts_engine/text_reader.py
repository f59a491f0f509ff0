"""Reads the text of one stream: inputs wait in their order until their segments are soon to be rendered.

Reading takes up to some milliseconds a clause. So the event loop reads what is short and soon rendered, such
as a token of a language model; the engine's reader thread reads the rest in slices. Both read a few segments
ahead of the rendering: of a document with 20,000 breaks, segments would be more objects than a garbage
collection passes in 10 ms.
The segments do not depend on which thread reads.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from .reading.clause_boundaries import BoundaryKind
from .reading.pronunciation.lexicon import Pronunciation
from .reading.prosody import DirectedText, PlainText, Prosody
from .segmenter import Segment, Segmenter
from .session import Session, TextInput

# Read by the event loop at once, with the unfinished clause before it; at most 3 ms of the worst text
_MAX_SHORT_CHARACTERS = 64
_MAX_CHARACTERS_A_TURN = 128  # so read in one turn of the loop, in which a document may give many short texts
_INPUT_CHARACTERS = 4  # that cost as much as an input without text
_SLICE_CHARACTERS = 64  # read between two looks at what is more urgent
_MAX_SEGMENTS_AHEAD = 2  # that wait to be rendered


class TextReaderHost(Protocol):
    """What a reader of text needs of its engine."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Guards every session."""

    def wake(self) -> None:
        """Tell a worker that a session may have work; the lock is held."""

    def wake_reader(self) -> None:
        """Tell the reader thread that a session has text to read; the lock is held."""


class TextReader:
    """The inputs of one stream and its segmenter.

    ``read_on`` runs on the reader thread, all else on the loop.

    Attributes:
        segmenter: of the text that is read next.
    """

    def __init__(
        self,
        host: TextReaderHost,
        session: Session,
        segmenter: Segmenter,
        loop: asyncio.AbstractEventLoop,
        directions: PlainText,
    ) -> None:
        """directions: finds those in the text."""
        self.segmenter = segmenter
        self._loop = loop
        self._characters_left = _MAX_CHARACTERS_A_TURN
        self._host = host
        self._session = session
        self._directions = directions

    def push(self, text: str, pronunciation: Pronunciation | None, pause_s: float | None) -> None:
        """Read more text; see ``Stream.push_text``."""
        self._add((text, pronunciation, pause_s, time.monotonic()), len(text))

    def flush(self) -> None:
        """Read the buffered text as a sentence."""
        self._add(self._read_buffered(BoundaryKind.SENTENCE, time.monotonic()))

    def set_prosody(self, prosody: Prosody) -> None:
        """Speak the text from here on in another way."""
        self._add(self._change_prosody(prosody, time.monotonic()))

    def change_segmenter(self, segmenter: Segmenter) -> None:
        """Read the text from here on with another segmenter."""
        self._add(self._follow(segmenter, time.monotonic()))

    def end(self, finish: Callable[[], None]) -> None:
        """Read the buffered text as the last one, then call ``finish`` with the lock held."""
        self._add(self._read_last(finish, time.monotonic()))

    def read_on(self) -> None:
        """Read a slice of the first input that waits."""
        with self._host.lock:
            if not self._session.inputs:  # cancelled meanwhile
                return
            reading = self._session.inputs[0] = self._reading(self._session.inputs[0])
        try:
            next(reading)
        except StopIteration:
            with self._host.lock:
                if self._session.inputs:
                    self._session.inputs.popleft()

    def _add(self, added: Iterator[None] | TextInput, characters: int = 0) -> None:
        """Read an input at once if it is short and needed soon, else leave it to the reader thread."""
        characters += self.segmenter.held_characters
        is_short = characters <= min(_MAX_SHORT_CHARACTERS, self._characters_left)
        session = self._session
        if is_short and not session.inputs and len(session.pending) < _MAX_SEGMENTS_AHEAD:
            self._count_read_at_once(characters + _INPUT_CHARACTERS)
            for _ in self._reading(added):
                pass
            return
        with self._host.lock:
            session.inputs.append(added)
            if wants_text(session):
                self._host.wake_reader()

    def _reading(self, added: Iterator[None] | TextInput) -> Iterator[None]:
        return self._read_text(*added) if isinstance(added, tuple) else added

    def _count_read_at_once(self, characters: int) -> None:
        if self._characters_left == _MAX_CHARACTERS_A_TURN:
            self._loop.call_soon(self._begin_turn)
        self._characters_left -= characters

    def _begin_turn(self) -> None:
        self._characters_left = _MAX_CHARACTERS_A_TURN

    def _read_text(
        self, text: str, pronunciation: Pronunciation | None, pause_s: float | None, now: float
    ) -> Iterator[None]:
        if pronunciation is None:
            for part in _slices(text):
                self._read_directed(self._directions.push(part), now)
                yield
        else:
            self._read_directed(self._directions.flush(), now)
            self._queue(self.segmenter.push(text, pronunciation), now)
            yield
        if pause_s is not None:
            self._read_directed(self._directions.flush(), now)
            self._pause(pause_s, now)

    def _read_directed(self, stretches: Sequence[DirectedText], now: float) -> None:
        for stretch in stretches:
            if stretch.is_spoken:
                self._queue(self.segmenter.push(stretch.text), now)
            else:
                self.segmenter.skip(len(stretch.text))
            if stretch.pause_s is not None:
                self._pause(stretch.pause_s, now)

    def _pause(self, pause_s: float, now: float) -> None:
        """Put a pause after the text so far; the sentence may go on after it."""
        self._queue(self.segmenter.flush(BoundaryKind.FORCED), now, pause_s)

    def _read_buffered(self, ending: BoundaryKind, now: float) -> Iterator[None]:
        self._read_directed(self._directions.flush(), now)
        self._queue(self.segmenter.flush(ending), now)
        yield

    def _change_prosody(self, prosody: Prosody, now: float) -> Iterator[None]:
        yield from self._read_buffered(BoundaryKind.FORCED, now)
        self.segmenter.prosody = prosody

    def _follow(self, segmenter: Segmenter, now: float) -> Iterator[None]:
        yield from self._read_buffered(BoundaryKind.FORCED, now)
        segmenter.follow(self.segmenter)
        self.segmenter = segmenter

    def _read_last(self, finish: Callable[[], None], now: float) -> Iterator[None]:
        self._read_directed(self._directions.flush(), now)
        segments = self.segmenter.flush()
        with self._host.lock:
            self._session.add_last(segments, now=now)
            self._session.input_ended = True
            finish()
            self._host.wake()
        yield

    def _queue(self, segments: Sequence[Segment], now: float, pause_s: float | None = None) -> None:
        """Queue segments to be rendered. now: when their text came, monotonic s. pause_s: after them."""
        if not segments and pause_s is None:
            return
        with self._host.lock:
            for segment in segments:
                self._session.add(segment, now=now)
            if pause_s is not None:
                self._session.pause(pause_s)
            self._host.wake()


def wants_text(session: Session) -> bool:
    """Whether a session has text to read and few segments that are read; the lock is held."""
    return bool(session.inputs) and len(session.pending) < _MAX_SEGMENTS_AHEAD


def _slices(text: str) -> Iterator[str]:
    return (text[begin : begin + _SLICE_CHARACTERS] for begin in range(0, len(text), _SLICE_CHARACTERS))
