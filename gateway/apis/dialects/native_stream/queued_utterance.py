"""One utterance of a native-stream connection, from its first text to its end."""

import asyncio

from .....tts_engine.errors import VivavoceError
from ....access.access_control import Grant
from ....web.request_log import RequestRecord
from ...shell.speech import EncodedStream
from .connection import InputFlush
from .models import SessionConfig


class QueuedUtterance:
    """An utterance that waits for its turn or is being spoken.

    Text is buffered until the engine's stream is open, and pushed into it from then on. An utterance without
    text has no configuration; only its end is reported.
    """

    def __init__(self, index: int, configuration: SessionConfig | None) -> None:
        self.index = index
        self.configuration = configuration
        self.buffered: list[str | InputFlush] = []  # until the stream is open
        self.input_ended = False
        self.cancelled = False
        self.failure: Exception | None = None  # reported by the speaking task
        self.has_audio = False  # whether audio.start has been sent
        self.total_bytes = 0  # of audio sent
        self.abandoned: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # done on cancel
        self.grant: Grant  # set, like record, when the utterance's turn has come
        self.record: RequestRecord
        self.stream: EncodedStream | None = None

    @property
    def queued_characters(self) -> int:
        """Characters that wait for the stream."""
        return sum(len(piece) for piece in self.buffered if isinstance(piece, str))

    @property
    def unread_characters(self) -> int:
        """Letters so far that the voice cannot read."""
        return 0 if self.stream is None else self.stream.unread_characters

    @property
    def is_over(self) -> bool:
        """Whether nothing more of it is spoken."""
        return self.cancelled or self.failure is not None

    def push(self, piece: str | InputFlush) -> None:
        """Push text or a flush into the stream, or buffer it; an error becomes ``failure``."""
        if self.is_over:
            return
        if self.stream is None:
            if isinstance(piece, str) or piece not in self.buffered[-1:]:  # a second flush has no effect
                self.buffered.append(piece)
            return
        try:
            self._apply(self.stream, piece)
        except VivavoceError as error:
            self.failure = error
            self.stream.cancel()

    def open(self, stream: EncodedStream) -> None:
        """Push what is buffered into the stream; raises RateLimited, BadText."""
        self.stream = stream
        buffered, self.buffered = self.buffered, []
        for piece in buffered:
            self._apply(stream, piece)
        if self.input_ended:
            stream.end_input()

    def end_input(self) -> None:
        """Complete the text."""
        self.input_ended = True
        if self.stream is not None and not self.is_over:
            self.stream.end_input()

    def cancel(self) -> None:
        """Drop everything that has not been sent."""
        self.cancelled = self.input_ended = True
        self.buffered.clear()
        if not self.abandoned.done():
            self.abandoned.set_result(None)
        if self.stream is not None:
            self.stream.cancel()

    def _apply(self, stream: EncodedStream, piece: str | InputFlush) -> None:
        if isinstance(piece, InputFlush):
            stream.flush()
            return
        self.grant.charge_characters(len(piece))
        self.record.count_text(len(piece))
        stream.push_text(piece)
