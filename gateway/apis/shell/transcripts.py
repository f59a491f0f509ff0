"""The text of one client, cut into transcripts that are spoken one after another.

    text  ->  Transcript (open)  --a flush or the end of input-->  Transcript (complete)

A transcript has a stream of the engine from its first speakable text to its last audio. Between transcripts a
client holds nothing of the engine, so it may stay connected while its language model thinks. Messages,
formats and errors of the dialects are not in this module.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from ....tts_engine.chunk import SAMPLE_RATE
from ....tts_engine.errors import VivavoceError
from ...access.access_control import Grant
from ...web.request_log import RequestRecord
from .speech import EncodedChunk, EncodedStream, SynthesisOptions
from .speech_server import SpeechServer

MAX_WAITING_CHARACTERS: Final = 64 * 1024  # in the transcripts behind the one that is spoken
MAX_WAITING_TRANSCRIPTS: Final = 256
MAX_LEAD_S: Final = 5.0  # of a conversation's speech ahead of its playout; more than a network stalls


class TranscriptQueueFull(VivavoceError):
    """A client has sent more text than it has been spoken."""


class Transcript:
    """Text that is spoken as one utterance, with the options of its beginning."""

    def __init__(self, options: SynthesisOptions) -> None:
        self.options = options
        self.flush_id: int | None = None  # of the flush that completed it
        self.is_complete = False
        self.characters = 0
        self.record: RequestRecord  # set, as the stream is, when its turn has come
        self._pieces: list[str | None] = []  # until the stream is open; None is a flush
        self._stream: EncodedStream | None = None

    @property
    def waiting_characters(self) -> int:
        """Characters that wait for the stream."""
        return 0 if self._stream is not None else self.characters

    @property
    def is_blank(self) -> bool:
        """Whether it has no text so far but blanks."""
        return self._stream is None and not any(piece and piece.strip() for piece in self._pieces)

    @property
    def text(self) -> str:
        """The text so far; once its stream is open without markup, as places of words count it."""
        if self._stream is not None:
            return self._stream.text
        return "".join(piece for piece in self._pieces if piece is not None)

    def push(self, text: str) -> None:
        """Add text; raises BadText if there is too much."""
        self.characters += len(text)
        if self._stream is None:
            self._pieces.append(text)
        else:
            self._push(self._stream, text)

    def flush(self) -> None:
        """Speak the text so far as a sentence, without waiting for more."""
        if self._stream is not None:
            self._push(self._stream, None)
        elif self._pieces and self._pieces[-1] is not None:  # a second flush in a row has no effect
            self._pieces.append(None)

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

    def _push(self, stream: EncodedStream, piece: str | None) -> None:
        if piece is None:
            stream.flush()
        else:
            self.record.count_text(len(piece))
            stream.push_text(piece)


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
        wait_s = self._played_at - self._max_lead_s - now
        if wait_s > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), wait_s)

    def end(self) -> None:
        """Wait no more."""
        self._ended.set()


class TranscriptQueue:
    """The transcripts of one client, or of one context of a client. Belongs to an event loop.

    pace: of protocols for conversations, where a client that has been interrupted may say nothing and drop
    the audio; None to send as fast as the client reads.
    """

    def __init__(self, grant: Grant, options: SynthesisOptions, pace: PlayoutPace | None = None) -> None:
        self.grant = grant
        self.options = options  # of the transcripts that begin from now on
        self.transcripts: deque[Transcript] = deque()  # the first is being spoken
        self.input_ended = False
        self.cancelled = False
        self.is_speaking = False  # whether a task takes the transcripts
        self._pace = pace

    @property
    def next_transcript(self) -> Transcript | None:
        """The transcript to speak or to report now; None while there is no text but blanks."""
        first = self.transcripts[0] if self.transcripts and not self.cancelled else None
        return first if first is not None and (first.is_complete or not first.is_blank) else None

    @property
    def open_transcript(self) -> Transcript | None:
        """The transcript that takes text, None if the next text begins one."""
        last = self.transcripts[-1] if self.transcripts else None
        return last if last is not None and not last.is_complete else None

    @property
    def is_due(self) -> bool:
        """Whether a task is needed, which speaks what there is or reports the end."""
        return not self.is_speaking and (self.next_transcript is not None or self.input_ended)

    def push(self, text: str) -> None:
        """Add text to the open transcript; raises TranscriptQueueFull, RateLimited, BadText."""
        waiting = sum(transcript.waiting_characters for transcript in self.transcripts) + len(text)
        if waiting > MAX_WAITING_CHARACTERS or len(self.transcripts) >= MAX_WAITING_TRANSCRIPTS:
            raise TranscriptQueueFull(
                f"{waiting} characters wait in {len(self.transcripts)} flushed texts; "
                f"at most {MAX_WAITING_CHARACTERS} in {MAX_WAITING_TRANSCRIPTS} may"
            )
        self.grant.charge_characters(len(text))
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
        if flush_id is not None:
            self._open().flush_id = flush_id
        if self.open_transcript is not None:
            self.open_transcript.complete()

    def end_input(self) -> None:
        """Complete the open transcript; no text follows."""
        self.input_ended = True
        self.complete()

    def cancel(self) -> None:
        """Drop everything that has not been sent."""
        self.cancelled = self.input_ended = True
        for transcript in self.transcripts:
            transcript.cancel()
        if self._pace is not None:
            self._pace.end()

    async def follow_playout(self, seconds: float) -> None:
        """Wait, after speech of that length was sent, until its listener needs more."""
        if self._pace is not None:
            await self._pace.follow(seconds)

    def make_transcript(self) -> Transcript:
        """Return an empty transcript."""
        return Transcript(self.options)

    def _open(self) -> Transcript:
        """Return the open transcript, a new one if there is none; raises TranscriptQueueFull."""
        if self.open_transcript is None:
            if len(self.transcripts) >= MAX_WAITING_TRANSCRIPTS:
                raise TranscriptQueueFull(f"{len(self.transcripts)} flushed texts wait, which is the limit")
            self.transcripts.append(self.make_transcript())
        return self.transcripts[-1]


async def speak_transcript(
    server: SpeechServer,
    request: tuple[str, str],
    queue: TranscriptQueue,
    transcript: Transcript,
    send: Callable[[EncodedChunk, str], Awaitable[None]],
) -> None:
    """Send all audio of a transcript; the engine's slot is free when this returns.

    request: the API's name and the request's id, for the log. send: takes a piece of speech and the text of
    the transcript so far. Raises RateLimited, Overloaded, BadRequest and SynthesisFailed.
    """
    api, request_id = request
    with server.log.track(api, queue.grant, request_id) as record, queue.grant.stream():
        record.voice = transcript.options.voice or "-"
        record.count_text(0)  # starts the time to first byte
        async with server.open_stream(transcript.options, queue.grant) as stream:
            transcript.open(stream, record)
            async for chunk in stream:
                await send(chunk, stream.text)
                seconds = (chunk.samples[1] - chunk.samples[0]) / SAMPLE_RATE
                record.count_audio(seconds)
                await queue.follow_playout(seconds)
