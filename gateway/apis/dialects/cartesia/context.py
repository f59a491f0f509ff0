"""One context of a Cartesia socket: its text, flushes and buffer delay."""

from fastapi import WebSocket

from ....access.access_control import Grant
from ...kits.speech_socket import SpeechContext
from ...shell.speech import SynthesisOptions
from .errors import CartesiaContextClosed
from .models import GenerationRequest
from .request_mapping import CartesiaEncoding


class CartesiaContext(SpeechContext):
    """A context from its first message to its last.

    Args:
        request: the first message, which fixes the voice and the format.
    """

    id: str

    def __init__(
        self,
        request: GenerationRequest,
        socket: WebSocket,
        grant: Grant,
        options: SynthesisOptions,
        encoding: CartesiaEncoding,
    ) -> None:
        super().__init__(request.context_id, socket, grant, options)
        self.encoding = encoding
        self.has_timestamps = bool(request.add_timestamps)
        self.spoken_samples = 0  # at 24 kHz, of the transcripts that were spoken
        self.samples = 0  # with those of the one under way
        self.sent_at = self.now  # of the last audio
        self._flushes = 0

    def receive(self, request: GenerationRequest) -> None:
        """Take a message; raises CartesiaContextClosed, TranscriptQueueFull, RateLimited, BadText."""
        if self.input_ended:
            raise CartesiaContextClosed(f"the text of context {self.id!r} has ended")
        self.push(request.transcript)
        if request.flush or request.buffer_delay_s == 0:
            self._flushes += 1
            self.complete(self._flushes)
        if not request.continue_:
            self.end_input()
        elif self.open_transcript is not None:
            self.complete_at(self.now + request.buffer_delay_s)
