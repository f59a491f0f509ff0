"""TODO."""

import asyncio

from ....adapters.native_stream.events import InputFlush, NativeStreamConfig
from ....tts_engine.errors import VivavoceError
from ...access.access_control import Grant
from ...web.request_log import RequestRecord
from ..speech import EncodedStream


class QueuedUtterance:
    # An utterance on its way: text that came before its stream was open, and the stream once it is.
    # Without text it has no configuration, and is only told to be over when its time comes.

    def __init__(self, index: int, configuration: NativeStreamConfig | None) -> None:
        self.index = index
        self.configuration = configuration
        self.pending: list[str | InputFlush] = []
        self.input_ended = False
        self.cancelled = False
        self.failure: Exception | None = None
        self.has_begun = False
        self.total_bytes = 0
        self.abandoned: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.grant: Grant
        self.record: RequestRecord
        self.stream: EncodedStream | None = None

    @property
    def queued_characters(self) -> int:
        return sum(len(piece) for piece in self.pending if isinstance(piece, str))

    @property
    def is_over(self) -> bool:
        return self.cancelled or self.failure is not None

    def push(self, piece: str | InputFlush) -> None:
        """Say it now, or when the stream is open; a failure is told by who speaks the turn."""
        if self.is_over:
            return
        if self.stream is None:
            self.pending.append(piece)
            return
        try:
            self._apply(self.stream, piece)
        except VivavoceError as error:
            self.failure = error
            self.stream.cancel()

    def open(self, utterance: EncodedStream) -> None:
        """Say what has waited; raises RateLimited, BadText."""
        self.stream = utterance
        waiting, self.pending = self.pending, []
        for piece in waiting:
            self._apply(utterance, piece)
        if self.input_ended:
            utterance.end_input()

    def end_input(self) -> None:
        """No more text."""
        self.input_ended = True
        if self.stream is not None and not self.is_over:
            self.stream.end_input()

    def cancel(self) -> None:
        """Say no more of it."""
        self.cancelled = self.input_ended = True
        self.pending.clear()
        if not self.abandoned.done():
            self.abandoned.set_result(None)
        if self.stream is not None:
            self.stream.cancel()

    def _apply(self, utterance: EncodedStream, piece: str | InputFlush) -> None:
        if isinstance(piece, InputFlush):
            utterance.flush()
            return
        self.grant.charge_characters(len(piece))
        self.record.count_text(len(piece))
        utterance.push_text(piece)
