"""One context of a Cartesia socket: its text, cut into the transcripts that are spoken one after another.

    text  ->  Transcript (open) --flush, buffer delay, end of input-->  Transcript (complete)

A transcript has a stream of the engine from its first speakable text to its last audio. Between transcripts a
context holds nothing of the engine, so a client may keep it open while its language model thinks.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from ...access.access_control import Grant
from ...web.backpressure import BackpressureSender
from ...web.request_log import RequestRecord
from ..speech import EncodedStream, SynthesisOptions
from .errors import CartesiaContextClosed, CartesiaLimitReached
from .models import GenerationRequest
from .output_format import CartesiaEncoding

MAX_WAITING_CHARACTERS: Final = 64 * 1024  # in the transcripts behind the one that is spoken
MAX_WAITING_TRANSCRIPTS: Final = 256


class Transcript:
    """Text that is spoken as one utterance."""

    def __init__(self) -> None:
        self.flush_id: int | None = None  # of the flush that completed it
        self.is_complete = False
        self.record: RequestRecord  # set, as the stream is, when its turn has come
        self._pieces: list[str] = []  # until the stream is open
        self._stream: EncodedStream | None = None

    @property
    def waiting_characters(self) -> int:
        """Characters that wait for the stream."""
        return sum(map(len, self._pieces))

    @property
    def is_blank(self) -> bool:
        """Whether it has no text so far but blanks."""
        return self._stream is None and not any(piece.strip() for piece in self._pieces)

    def push(self, text: str) -> None:
        """Add text; raises BadText if there is too much."""
        if self._stream is None:
            self._pieces.append(text)
        else:
            self._push(self._stream, text)

    def complete(self) -> None:
        """End the text."""
        self.is_complete = True
        if self._stream is not None:
            self._stream.end_input()

    def open(self, stream: EncodedStream, record: RequestRecord) -> None:
        """Speak on a stream; raises BadText."""
        self._stream, self.record = stream, record
        for piece in self._pieces:
            self._push(stream, piece)
        self._pieces.clear()
        if self.is_complete:
            stream.end_input()

    def cancel(self) -> None:
        """Speak no more."""
        self._pieces.clear()
        if self._stream is not None:
            self._stream.cancel()

    def _push(self, stream: EncodedStream, text: str) -> None:
        self.record.count_text(len(text))
        stream.push_text(text)


class CartesiaContext:
    """A context from its first message to its last.

    Args:
        request: the first message, which fixes the voice and the format.
        on_ready: called when there is something to speak or to report, and nothing of it is under way.
    """

    def __init__(
        self,
        request: GenerationRequest,
        *,
        options: SynthesisOptions,
        encoding: CartesiaEncoding,
        grant: Grant,
        sender: BackpressureSender,
        on_ready: Callable[["CartesiaContext"], None],
    ) -> None:
        self.id = request.context_id
        self.options = options
        self.encoding = encoding
        self.grant = grant
        self.sender = sender
        self.has_timestamps = bool(request.add_timestamps)
        self.transcripts: deque[Transcript] = deque()  # the first is being spoken
        self.input_ended = False
        self.cancelled = False
        self.is_speaking = False  # whether a task takes the transcripts
        self.samples = 0  # at 24 kHz, of the transcripts that were spoken
        self.sent_at = asyncio.get_running_loop().time()  # of the last audio
        self._on_ready = on_ready
        self._flushes = 0
        self._delay_timer: asyncio.TimerHandle | None = None

    @property
    def next_transcript(self) -> Transcript | None:
        """The transcript to speak or to report now; None while there is no text but blanks."""
        first = self.transcripts[0] if self.transcripts and not self.cancelled else None
        return first if first is not None and (first.is_complete or not first.is_blank) else None

    def receive(self, request: GenerationRequest) -> None:
        """Take a message; raises CartesiaContextClosed, CartesiaLimitReached, RateLimited, BadText."""
        if self.input_ended:
            raise CartesiaContextClosed(f"the text of context {self.id!r} has ended")
        self._check_room(len(request.transcript))
        self.grant.charge_characters(len(request.transcript))
        if request.transcript:
            self._open_transcript().push(request.transcript)
        self._stop_timer()
        if request.flush or request.buffer_delay_s == 0:
            self._flushes += 1
            self._complete(self._flushes)
        if not request.continue_:
            self.input_ended = True
            self._complete()
        elif self.transcripts and not self.transcripts[-1].is_complete:
            self._delay_timer = asyncio.get_running_loop().call_later(request.buffer_delay_s, self._complete)
        if not self.is_speaking and (self.next_transcript is not None or self.input_ended):
            self._on_ready(self)

    def cancel(self) -> None:
        """Drop everything that has not been sent."""
        self.cancelled = self.input_ended = True
        self._stop_timer()
        for transcript in self.transcripts:
            transcript.cancel()

    def _check_room(self, characters: int) -> None:
        waiting = sum(transcript.waiting_characters for transcript in self.transcripts) + characters
        if waiting > MAX_WAITING_CHARACTERS or len(self.transcripts) >= MAX_WAITING_TRANSCRIPTS:
            raise CartesiaLimitReached(
                f"{waiting} characters in {len(self.transcripts)} transcripts of context {self.id!r} wait; "
                f"at most {MAX_WAITING_CHARACTERS} in {MAX_WAITING_TRANSCRIPTS} may"
            )

    def _open_transcript(self) -> Transcript:
        if not self.transcripts or self.transcripts[-1].is_complete:
            self.transcripts.append(Transcript())
        return self.transcripts[-1]

    def _complete(self, flush_id: int | None = None) -> None:
        if flush_id is not None:
            self._open_transcript().flush_id = flush_id  # reported also if it has no text
        if self.transcripts and not self.transcripts[-1].is_complete:
            self.transcripts[-1].complete()

    def _stop_timer(self) -> None:
        if self._delay_timer is not None:
            self._delay_timer.cancel()
