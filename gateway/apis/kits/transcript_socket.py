"""WebSockets of one text after another, answered by binary audio: Deepgram's and jambonz's.

Messages, formats and errors of the dialects are in the derived classes.
"""

from collections.abc import Mapping
from typing import Final

from fastapi import WebSocket

from ....adapters.transcript_queue import Transcript
from ...access.access_control import Grant
from ...web.websocket import CLOSE_NORMAL
from ..shell.speech import EncodedChunk, SynthesisOptions
from ..shell.speech_server import SpeechServer
from .speech_socket import SpeechContext, SpeechSocket

IDLE_S: Final = (
    3_600.0  # without a message, after which a connection is closed; pools keep theirs for an hour
)
MAX_TEXT_WAIT_S: Final = 60.0  # without a message, after which a text that was not flushed is completed


class SpokenTexts(SpeechContext):
    """All texts of a connection; silence completes the open one."""

    ends_in_silence = False


class TranscriptConnection(SpeechSocket[SpokenTexts]):
    """One accepted WebSocket with a queue of transcripts; a failed one is reported, and the next is spoken.

    Args:
        request: the API's name and the request's id, for the log.
        grant: of the handshake; each transcript is a request of its own.
    """

    context_type: type[SpokenTexts] = SpokenTexts

    def __init__(
        self,
        socket: WebSocket,
        *,
        server: SpeechServer,
        request: tuple[str, str],
        options: SynthesisOptions,
        grant: Grant,
    ) -> None:
        super().__init__(socket, server, request, IDLE_S)
        self.options = options
        self.headers: Mapping[str, str] = socket.headers  # that name the key
        self._grant = grant
        self.queue = self._make_queue()

    # Overridden by a dialect

    async def on_open(self) -> None:
        """Send the first message."""

    # Called by a dialect

    def push(self, text: str) -> None:
        """Add text; the first of a transcript is charged as a request. Raises VivavoceError."""
        if self.queue.open_transcript is None:
            self.queue.grant = self.server.authorize_request(self.headers)
        self.queue.push(text)
        self.speak_if_due(self.queue)

    def complete(self, flush_id: int | None = None) -> None:
        """Complete the text so far."""
        self.queue.complete(flush_id)
        self.speak_if_due(self.queue)

    def end_input(self) -> None:
        """Complete the text so far; ``on_ended`` follows the last audio."""
        self.queue.end_input()
        self.speak_if_due(self.queue)

    def discard(self) -> None:
        """Drop everything that has not been sent; nothing of it is sent after this."""
        self.queue.drop()
        self.queue = self._make_queue()

    def _make_queue(self) -> SpokenTexts:
        queue = self.context_type(None, self.socket, self._grant, self.options, max_silence_s=MAX_TEXT_WAIT_S)
        self.contexts[None] = queue
        return queue

    # Called by the base class

    async def receive_messages(self) -> None:
        await self.on_open()
        await super().receive_messages()

    async def on_message(self, data: str | bytes) -> None:
        self.queue.mark_received()
        await super().on_message(data)

    async def on_failed(
        self, context: SpokenTexts, transcript: Transcript[SynthesisOptions], error: Exception
    ) -> None:
        transcript.complete()
        await self.report(error, None)

    async def on_ended(self, context: SpokenTexts) -> None:
        await self.close(CLOSE_NORMAL)

    async def send_chunk(
        self, context: SpokenTexts, transcript: Transcript[SynthesisOptions], chunk: EncodedChunk, text: str
    ) -> None:
        await self.send_audio(context, chunk.audio, context.options.audio.bytes_per_second, bytes)
