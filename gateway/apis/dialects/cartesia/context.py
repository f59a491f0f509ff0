"""One context of a Cartesia socket: its text, flushes and buffer delay."""

import asyncio
from collections.abc import Callable

from ....access.access_control import Grant
from ....web.backpressure import BackpressureSender
from ...shell.speech import SynthesisOptions
from ...shell.transcripts import TranscriptQueue
from .errors import CartesiaContextClosed
from .models import GenerationRequest
from .output_format import CartesiaEncoding


class CartesiaContext(TranscriptQueue):
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
        super().__init__(grant, options)
        self.id = request.context_id
        self.encoding = encoding
        self.sender = sender
        self.has_timestamps = bool(request.add_timestamps)
        self.samples = 0  # at 24 kHz, of the transcripts that were spoken
        self.sent_at = asyncio.get_running_loop().time()  # of the last audio
        self._on_ready = on_ready
        self._flushes = 0
        self._delay_timer: asyncio.TimerHandle | None = None

    def receive(self, request: GenerationRequest) -> None:
        """Take a message; raises CartesiaContextClosed, TranscriptQueueFull, RateLimited, BadText."""
        if self.input_ended:
            raise CartesiaContextClosed(f"the text of context {self.id!r} has ended")
        self.push(request.transcript)
        self._stop_timer()
        if request.flush or request.buffer_delay_s == 0:
            self._flushes += 1
            self.complete(self._flushes)
        if not request.continue_:
            self.end_input()
        elif self.transcripts and not self.transcripts[-1].is_complete:
            self._delay_timer = asyncio.get_running_loop().call_later(request.buffer_delay_s, self.complete)
        if self.is_due:
            self._on_ready(self)

    def cancel(self) -> None:
        """Drop everything that has not been sent."""
        self._stop_timer()
        super().cancel()

    def _stop_timer(self) -> None:
        if self._delay_timer is not None:
            self._delay_timer.cancel()
