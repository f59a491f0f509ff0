"""WebSockets of streamed text: contexts, each with a queue of transcripts, spoken side by side.

    on_message  ->  receive  ->  context.push, complete, ...  ->  speak_if_due
                                 a task speaks the context's transcripts in turn  ->  send_chunk, on_spoken
                                 the input has ended and is spoken                ->  on_ended

Here is the life of a connection: keys, limits, idle time, errors, vanished clients and their contexts. A
dialect has its messages, what they mean for a context, and the form of its errors.
"""

import asyncio
import math
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeVar

from fastapi import WebSocket

from ....adapters.transcript_queue import Transcript, TranscriptQueue
from ....tts_engine.chunk import SAMPLE_RATE
from ....tts_engine.errors import VivavoceError
from ...access.access_control import Grant
from ...access.errors import GrantEnded
from ...background_tasks import wait_at_most
from ...web.websocket import CLOSE_NORMAL
from ..shell.speech import EncodedChunk, SynthesisOptions
from ..shell.speech_server import SpeechServer
from .backpressure import BackpressureSender
from .websocket_connection import WebSocketConnection

MAX_CONTEXTS: Final = 100  # of a connection
MAX_LEAD_S: Final = 5.0  # of a conversation's speech ahead of its playout; more than a network stalls


class PlayoutPace:
    """Keeps speech at most ``max_lead_s`` ahead of a listener who plays it as it comes."""

    def __init__(self, max_lead_s: float = MAX_LEAD_S) -> None:
        self._max_lead_s = max_lead_s
        self._played_at = 0.0  # loop time at which the listener has played what was sent
        self._ended = asyncio.Event()

    async def follow(self, seconds: float) -> None:
        """Wait, after speech of that length was sent, until more may be sent."""
        now = asyncio.get_running_loop().time()
        self._played_at = max(self._played_at, now) + seconds
        await wait_at_most(self._ended, self._played_at - self._max_lead_s - now)

    def end(self) -> None:
        """Wait no more."""
        self._ended.set()


class SpeechContext(TranscriptQueue[SynthesisOptions]):
    """A context of a connection. Belongs to an event loop.

    Args:
        context_id: None on a socket without contexts.
        pace: of protocols for conversations, where a client that has been interrupted may say nothing and
            drop the audio; None to send as fast as the client reads.
    """

    def __init__(
        self,
        context_id: str | None,
        socket: WebSocket,
        grant: Grant,
        options: SynthesisOptions,
        *,
        max_silence_s: float = math.inf,
        pace: PlayoutPace | None = None,
    ) -> None:
        super().__init__(options, self._charge_characters, max_silence_s)
        self.id = context_id
        self.grant = grant
        self.sender = BackpressureSender.from_scope(socket.scope)
        self._pace = pace
        self.mark_received()

    @property
    def now(self) -> float:
        """Loop time."""
        return asyncio.get_running_loop().time()

    def mark_received(self) -> None:
        """Take note of a message."""
        self.received_at = self.now

    def drop(self) -> None:
        super().drop()
        if self._pace is not None:
            self._pace.end()

    async def follow_playout(self, seconds: float) -> None:
        """Wait, after speech of that length was sent, until its listener needs more."""
        if self._pace is not None:
            await self._pace.follow(seconds)

    def _charge_characters(self, characters: int) -> None:
        self.grant.charge_characters(characters)


ContextT = TypeVar("ContextT", bound=SpeechContext)


class SpeechSocket(WebSocketConnection, Generic[ContextT]):
    """One accepted WebSocket.

    Args:
        request: the API's name and the connection's id, for the log and the metrics.
        idle_s: without speech or a message, after which the connection is closed.
    """

    def __init__(
        self, socket: WebSocket, server: SpeechServer, request: tuple[str, str], idle_s: float
    ) -> None:
        super().__init__(socket)
        self.server = server
        self.contexts: dict[str | None, ContextT] = {}
        self._api, self.request_id = request
        self._idle_s = idle_s
        self._idle_since = self.now

    # Overridden by a dialect

    @abstractmethod
    async def receive(self, data: str | bytes) -> None:
        """Handle a message; raises VivavoceError."""

    @abstractmethod
    async def report(self, error: Exception, context_id: str | None) -> None:
        """Send an error of a context, or of the connection."""

    @abstractmethod
    async def send_chunk(
        self, context: ContextT, transcript: Transcript[SynthesisOptions], chunk: EncodedChunk, text: str
    ) -> None:
        """Send a piece of speech. text: of the transcript so far."""

    def context_of(self, data: str | bytes) -> str | None:
        """Return the context to which the error of a message is reported."""
        return None

    async def on_spoken(self, context: ContextT, transcript: Transcript[SynthesisOptions]) -> None:
        """Follow the last audio of a transcript, or its failure."""

    async def on_failed(
        self, context: ContextT, transcript: Transcript[SynthesisOptions], error: Exception
    ) -> None:
        """Report a transcript that could not be spoken; its context ends."""
        self.drop(context)
        await self.report(error, context.id)

    async def on_ended(self, context: ContextT) -> None:
        """Follow the last audio of a context."""

    # Called by a dialect

    @property
    def now(self) -> float:
        """Loop time."""
        return asyncio.get_running_loop().time()

    @property
    def is_full(self) -> bool:
        """Whether the connection may have no more contexts."""
        return len(self.contexts) >= MAX_CONTEXTS

    def drop(self, context: ContextT) -> None:
        """Drop everything of a context that has not been sent; nothing of it is sent after this."""
        context.drop()
        self.contexts.pop(context.id, None)

    def speak_if_due(self, context: ContextT) -> None:
        """Speak what there is of a context, unless that is under way."""
        if context.is_due:
            context.is_speaking = True
            self.start_speaking(partial(self.speak, context))

    async def speak(self, context: ContextT) -> None:
        """Speak the transcripts that there are; after the last of the context, report its end."""
        while (transcript := context.next_transcript) is not None:
            if not transcript.is_blank:
                work = self._render(context, transcript)
                error = await self.error_of(work, f"context {context.id!r} of {self.request_id}")
                if error is not None and not context.is_dropped:
                    await self.on_failed(context, transcript, error)
            if context.is_dropped:
                break
            context.transcripts.popleft()
            await self.on_spoken(context, transcript)
        context.is_speaking = False
        self._idle_since = self.now
        self.reschedule_idle()
        if context.input_ended and not context.is_dropped:
            self.contexts.pop(context.id, None)
            await self.on_ended(context)

    async def send_audio(
        self, context: ContextT, audio: bytes, bytes_per_s: int, encode: Callable[[bytes], str | bytes]
    ) -> None:
        """Send audio as fast as the client reads; ``encode`` makes a message of a part of it."""

        async def write(part: bytes) -> None:
            if not context.is_dropped:
                message = encode(part)
                await (self.send_text(message) if isinstance(message, str) else self.send_bytes(message))

        if audio:
            await context.sender.send(audio, bytes_per_s, write)

    # Called by the base class

    def idle_deadline(self) -> float | None:
        deadline = min((context.deadline for context in self.contexts.values()), default=math.inf)
        if deadline < math.inf:
            return deadline
        is_speaking = any(context.is_speaking for context in self.contexts.values())
        return None if is_speaking else self._idle_since + self._idle_s

    async def on_idle(self) -> None:
        if all(context.deadline == math.inf for context in self.contexts.values()):
            await self.close(CLOSE_NORMAL)
        for context in tuple(self.contexts.values()):
            context.receive_time(self.now)
            self.speak_if_due(context)

    async def on_message(self, data: str | bytes) -> None:
        self._idle_since = self.now
        try:
            await self.receive(data)
        except VivavoceError as error:
            await self.report(error, self.context_of(data))

    async def on_grant_ended(self, error: GrantEnded) -> None:
        await self.report(error, None)

    async def on_closed(self) -> None:
        for context in self.contexts.values():
            context.drop()

    async def _render(self, context: ContextT, transcript: Transcript[SynthesisOptions]) -> None:
        """Send all audio of a transcript; the engine's slot is free when this returns.

        Raises RateLimited, Overloaded, BadRequest and SynthesisFailed.
        """
        grant = context.grant
        request_id = self.request_id if context.id is None else f"{self.request_id}/{context.id}"
        with self.server.log.track(self._api, grant, request_id) as record, grant.stream():
            record.voice = transcript.options.voice or "-"
            record.count_text(0)  # starts the time to first byte
            async with self.server.open_stream(transcript.options, grant) as stream:
                transcript.open(stream, record.count_text)
                async for chunk in stream:
                    await self.send_chunk(context, transcript, chunk, stream.text)
                    seconds = (chunk.samples[1] - chunk.samples[0]) / SAMPLE_RATE
                    record.count_audio(seconds)
                    await context.follow_playout(seconds)
