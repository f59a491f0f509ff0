"""WebSockets of one text after another, answered by binary audio: Deepgram's and jambonz's.

    on_message  ->  push, complete  ->  a task speaks the transcripts in turn  ->  on_spoken(transcript)
                ->  discard                      what has not been sent is dropped

Messages, formats and errors of the dialects are in the derived classes.
"""

import asyncio
from abc import abstractmethod
from functools import partial
from typing import Final

from fastapi import WebSocket

from ....tts_engine.errors import VivavoceError
from ...access.access_control import Grant
from ...access.errors import GrantEnded
from ...web.backpressure import BackpressureSender
from ...web.websocket import CLOSE_NORMAL, WebSocketConnection
from .speech import EncodedChunk, SynthesisOptions
from .speech_server import SpeechServer
from .transcripts import Transcript, TranscriptQueue, speak_transcript

IDLE_S: Final = (
    3_600.0  # without a message, after which a connection is closed; pools keep theirs for an hour
)
MAX_TEXT_WAIT_S: Final = 60.0  # without a message, after which a text that was not flushed is completed


class TranscriptConnection(WebSocketConnection):
    """One accepted WebSocket with a queue of transcripts.

    Args:
        request: the API's name and the request's id, for the log.
        grant: of the handshake; each transcript is a request of its own.
    """

    def __init__(
        self,
        socket: WebSocket,
        *,
        server: SpeechServer,
        request: tuple[str, str],
        options: SynthesisOptions,
        grant: Grant,
    ) -> None:
        super().__init__(socket)
        self.options = options
        self._server = server
        self._request = request
        self._grant = grant
        self._loop = asyncio.get_running_loop()
        self._received_at = self._loop.time()
        self.queue = self.make_queue(grant)

    # Overridden by a dialect

    @abstractmethod
    async def receive(self, data: str | bytes) -> None:
        """Handle a message; raises VivavoceError."""

    @abstractmethod
    async def on_error(self, error: Exception) -> None:
        """Report an error of a message or of a transcript."""

    async def on_open(self) -> None:
        """Send the first message."""

    async def on_spoken(self, transcript: Transcript) -> None:
        """Follow the last audio of a transcript, or its failure."""

    async def on_audio(self, transcript: Transcript, chunk: EncodedChunk, text: str) -> None:
        """Take note of a piece of speech before it is sent."""

    async def on_end(self) -> None:
        """Follow the last transcript after the end of the input."""
        await self.close(CLOSE_NORMAL)

    def make_queue(self, grant: Grant) -> TranscriptQueue:
        """Return an empty queue."""
        return TranscriptQueue(grant, self.options)

    # Called by a dialect

    def push(self, text: str) -> None:
        """Add text; the first of a transcript is charged as a request. Raises VivavoceError."""
        if self.queue.open_transcript is None:
            self.queue.grant = self._server.authorize_request(self.socket.headers)
        self.queue.push(text)
        self._speak_if_due()

    def complete(self, flush_id: int | None = None) -> None:
        """Complete the text so far."""
        self.queue.complete(flush_id)
        self._speak_if_due()

    def end_input(self) -> None:
        """Complete the text so far; ``on_end`` follows the last audio."""
        self.queue.end_input()
        self._speak_if_due()

    def discard(self) -> None:
        """Drop everything that has not been sent; nothing of it is sent after this."""
        self.queue.cancel()
        self.queue = self.make_queue(self._grant)

    # Called by the base class

    async def receive_messages(self) -> None:
        await self.on_open()
        await super().receive_messages()

    def idle_deadline(self) -> float | None:
        if self.queue.open_transcript is not None:
            return self._received_at + MAX_TEXT_WAIT_S
        return None if self.queue.is_speaking else self._received_at + IDLE_S

    async def on_idle(self) -> None:
        if self.queue.open_transcript is not None:
            self.complete()
        else:
            await self.close(CLOSE_NORMAL)

    async def on_grant_ended(self, error: GrantEnded) -> None:
        await self.on_error(error)

    async def on_closed(self) -> None:
        self.queue.cancel()

    async def on_message(self, data: str | bytes) -> None:
        self._received_at = self._loop.time()
        try:
            await self.receive(data)
        except VivavoceError as error:
            await self.on_error(error)

    def _speak_if_due(self) -> None:
        if self.queue.is_due:
            self.queue.is_speaking = True
            self.start_speaking(partial(self._speak, self.queue))

    async def _speak(self, queue: TranscriptQueue) -> None:
        sender = BackpressureSender.from_scope(self.socket.scope)
        while (transcript := queue.next_transcript) is not None:
            if not transcript.is_blank:
                send = partial(self._send_chunk, queue, sender, transcript)
                work = speak_transcript(self._server, self._request, queue, transcript, send)
                error = await self.error_of(work, f"text of {self._request[1]}")
                if error is not None and not queue.cancelled:
                    transcript.complete()
                    await self.on_error(error)
                if queue.cancelled:
                    return
            queue.transcripts.popleft()
            await self.on_spoken(transcript)
        queue.is_speaking = False
        self._received_at = self._loop.time()
        self.reschedule_idle()
        if queue.input_ended and not queue.cancelled:
            await self.on_end()

    async def _send_chunk(
        self,
        queue: TranscriptQueue,
        sender: BackpressureSender,
        transcript: Transcript,
        chunk: EncodedChunk,
        text: str,
    ) -> None:
        async def write(audio: bytes) -> None:
            if not queue.cancelled:
                await self.send_bytes(audio)

        await self.on_audio(transcript, chunk, text)
        if chunk.audio:
            await sender.send(chunk.audio, queue.options.audio.bytes_per_second, write)
