"""The streams of one gateway at a replica: commands in, events out.

Belongs to the event loop of its ``ReplicaHost``.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from ....tts_engine.chunk import AudioChunk
from ....tts_engine.errors import VivavoceError
from ....tts_engine.speech_engine import SpeechEngine, SpeechStream
from ...background_tasks import wait_at_most
from .hosted_voices import HostedVoices
from .listener_stats import FirstAudioWait
from .messages import (
    CancelStream,
    EndInput,
    Flush,
    OpenStream,
    PushText,
    ReplicaEvent,
    ReportPlayout,
    SetLanguage,
    SetProsody,
    StreamChunk,
    StreamCommand,
    StreamFailed,
    StreamInput,
    portable_error,
)
from .sent_lexicons import LexiconUnpacker

logger = logging.getLogger(__name__)

MAX_SILENCE_S = 10.0  # gateways send something every second; a stall of the network may last 5 s
_MAX_UNTAKEN_S = 1.0  # of audio sent and not taken by a listener; the engine renders another second ahead
_MAX_GAP_S = 0.06  # of nothing inside speech; more is an underrun


class GatewayLink:
    """The streams of one gateway, and the events that it has not fetched yet."""

    def __init__(
        self,
        engine: SpeechEngine,
        voices: HostedVoices,
        lexicons: LexiconUnpacker,
        first_audio: FirstAudioWait,
    ) -> None:
        self._engine, self._lexicons = engine, lexicons
        self.first_audio = first_audio
        self.metrics = engine.metrics
        self._voices = voices
        self._streams: dict[int, HostedStream] = {}
        self._events: deque[ReplicaEvent] = deque()  # bounded: each stream has _MAX_UNTAKEN_S of audio in it
        self._changed = asyncio.Event()
        self.heard()

    def heard(self) -> None:
        """Note that the gateway lives."""
        self._silent_at = asyncio.get_running_loop().time() + MAX_SILENCE_S

    @property
    def is_silent(self) -> bool:
        """Whether the gateway sent nothing for ``MAX_SILENCE_S``."""
        return asyncio.get_running_loop().time() >= self._silent_at

    @property
    def open_streams(self) -> int:
        """Streams that have not ended."""
        return len(self._streams)

    def wake(self) -> None:
        """Have the events looked at."""
        self._changed.set()

    async def wait_for_events(self, within_s: float) -> None:
        """Wait for an event, at most ``within_s``."""
        await wait_at_most(self._changed, within_s)
        self._changed.clear()

    def take_events(self) -> tuple[ReplicaEvent, ...]:
        """All events since the last call."""
        events = tuple(self._events)
        self._events.clear()
        return events

    def post(self, event: ReplicaEvent) -> None:
        """Add an event."""
        self._events.append(event)
        self._changed.set()

    def run(self, command: StreamCommand) -> None:
        """Carry out one command; commands of streams that ended do nothing."""
        if isinstance(command.action, OpenStream):
            self._open(command.stream, command.action)
        elif (hosted := self._streams.get(command.stream)) is not None:
            hosted.run(command.action)

    def _open(self, number: int, opening: OpenStream) -> None:
        """Open a stream. Boundary: an error is the stream's."""
        try:
            stream = self._open_stream(opening)
        except Exception as error:
            if not isinstance(error, VivavoceError):
                logger.exception("a stream was not opened")
            self.post(StreamFailed(number, portable_error(error)))
            return
        self._streams[number] = HostedStream(number, stream, self, opening.request.trace_id)

    def _open_stream(self, opening: OpenStream) -> SpeechStream:
        """Raises as ``SpeechEngine.open_stream`` and ``HostedVoices.registered``."""
        lexicons = tuple(map(self._lexicons.unpack, opening.lexicons))
        request = replace(opening.request, lexicons=lexicons)
        if opening.prompt is None:
            return self._engine.open_stream(request)
        delivery = request.delivery
        delivery = replace(delivery, language=self._voices.readable(delivery.language))
        with self._voices.registered(opening.prompt) as voice:
            return self._engine.open_stream(replace(request, voice=voice, delivery=delivery))

    @property
    def waiting_streams(self) -> int:
        """Streams with text whose first audio has not come."""
        return sum(hosted.is_waiting for hosted in self._streams.values())

    def leads_s(self, now: float) -> Iterator[float]:
        """Seconds that listeners of streams with all their text have to play. now: monotonic s."""
        for hosted in self._streams.values():
            if hosted.input_ended and hosted.runs_dry_at is not None:
                yield hosted.runs_dry_at - now

    def forget(self, number: int) -> None:
        """Drop a stream that ended."""
        self._streams.pop(number, None)
        self._changed.set()  # the load changed

    async def aclose(self) -> None:
        """Cancel all streams."""
        hosted = list(self._streams.values())
        for each in hosted:
            each.cancel()
        await asyncio.gather(*(each.task for each in hosted), return_exceptions=True)


class HostedStream:
    """One stream of the engine, whose chunks become events."""

    def __init__(self, number: int, stream: SpeechStream, link: GatewayLink, trace_id: str) -> None:
        self._number, self._stream, self._link, self._trace_id = number, stream, link, trace_id
        self._opened_at = time.monotonic()
        self._first_audio_s: float | None = None  # from then
        self._chunks, self._sent_s = 0, 0.0  # sent so far
        self._untaken_s = 0.0  # sent, and not taken by the listener
        self._taken = asyncio.Event()
        self._cancelled = False
        self.input_ended = self._has_text = False
        self.runs_dry_at: float | None = None  # monotonic s, as the listener reported
        self.task = asyncio.create_task(self._send_chunks(), name=f"stream {number}")

    @property
    def is_waiting(self) -> bool:
        """Whether it has text and no audio."""
        return self._has_text and self._first_audio_s is None

    def run(self, action: StreamInput | CancelStream | ReportPlayout) -> None:
        """Carry out a step. Boundary: an error ends the stream."""
        try:
            self._run(action)
        except Exception as error:
            if not isinstance(error, VivavoceError):
                logger.exception("a stream failed")
            self._link.post(StreamFailed(self._number, portable_error(error)))
            self.cancel()

    def _run(self, action: StreamInput | CancelStream | ReportPlayout) -> None:
        stream = self._stream
        match action:
            case PushText(text, pronunciation, pause_s):
                stream.push_text(text, pronunciation, pause_s)
                self._has_text = True
            case SetProsody(prosody):
                stream.set_prosody(prosody)
            case SetLanguage(language):
                stream.set_language(language)
            case Flush():
                stream.flush()
            case EndInput():
                stream.end_input()
                self.input_ended = True
            case CancelStream():
                self.cancel()
            case ReportPlayout(taken_s, lead_s):
                self._untaken_s -= taken_s
                self._taken.set()
                if lead_s is not None:
                    self.runs_dry_at = time.monotonic() + lead_s + max(0.0, self._untaken_s)
                    stream.set_deadline(self.runs_dry_at)

    def cancel(self) -> None:
        """End the stream at once; no event follows."""
        self._cancelled = True
        self._stream.cancel()
        self._taken.set()
        self._link.forget(self._number)

    async def _send_chunks(self) -> None:
        """Boundary: an error ends the stream."""
        outcome = "spoken"
        try:
            async with self._stream as stream:
                async for chunk in stream:
                    self._link.post(StreamChunk(self._number, chunk, stream.unread_characters))
                    self._count(chunk)
                    await self._wait_for_listener()
        except Exception as error:
            outcome = "failed"
            self._link.post(StreamFailed(self._number, portable_error(error)))
        self._link.forget(self._number)
        self._log_end("cancelled" if self._cancelled else outcome)

    def _count(self, chunk: AudioChunk) -> None:
        """Count a chunk that was sent, and what its listener had left to play."""
        now = time.monotonic()
        self._link.first_audio.observe(chunk)
        if self.runs_dry_at is not None:
            if self.input_ended and not chunk.final:  # else the text may be what was late
                lead_s = self.runs_dry_at - now
                self._link.metrics.playout_lead.observe(max(0.0, lead_s))
                self._link.metrics.underruns.inc(lead_s < -_MAX_GAP_S)
            self.runs_dry_at = max(now, self.runs_dry_at) + chunk.seconds
        if self._first_audio_s is None:
            self._first_audio_s = now - self._opened_at
        self._chunks, self._sent_s = self._chunks + 1, self._sent_s + chunk.seconds
        self._untaken_s += chunk.seconds
        logger.debug(
            "trace %s: stream %d: chunk %d, %.2f s of speech, sent after %.0f ms, rendered in %.0f ms",
            *(self._trace_id, self._number, chunk.index, chunk.seconds),
            *(1000 * (now - self._opened_at), 1000 * chunk.provenance.wall_s),
        )

    def _log_end(self, outcome: str) -> None:
        first_audio_ms = "-" if self._first_audio_s is None else f"{1000 * self._first_audio_s:.0f}"
        logger.info(
            "trace %s: stream %d is %s: %d chunks, %.2f s of speech, first audio %s ms, took %.2f s",
            *(self._trace_id, self._number, outcome, self._chunks, self._sent_s),
            *(first_audio_ms, time.monotonic() - self._opened_at),
        )

    async def _wait_for_listener(self) -> None:
        while self._untaken_s >= _MAX_UNTAKEN_S and not self._cancelled:
            self._taken.clear()
            await self._taken.wait()
