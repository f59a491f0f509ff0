"""The replica's end: an engine that speaks the streams of several gateways.

Each gateway attaches once and then has a link: batches of commands come in (``run_commands``), batches of
events go out (``events``). A gateway that stays silent for ``MAX_SILENCE_S`` is taken for dead, and its
streams are cancelled. Belongs to one event loop.
"""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import replace

from ....tts_engine.chunk import AudioChunk
from ....tts_engine.errors import VivavoceError
from ....tts_engine.speech_engine import SpeechEngine, SpeechStream
from ....tts_engine.voices.recording import Recording
from ...background_tasks import wait_at_most
from .cluster_metrics import REPORT_INTERVAL_S as METRICS_INTERVAL_S
from .cluster_metrics import queue_families, replica_families
from .hosted_voices import HostedVoices, RecordingEncoders
from .listener_stats import SHORT_LEAD_S, FirstAudioWait, ListenerStats
from .messages import (
    CancelStream,
    CloningOffer,
    EndInput,
    Flush,
    OpenStream,
    PushText,
    ReplicaDescription,
    ReplicaEvent,
    ReplicaLoad,
    ReplicaLost,
    ReplicaMetrics,
    ReportPlayout,
    SetLanguage,
    SetProsody,
    StreamChunk,
    StreamCommand,
    StreamFailed,
    StreamInput,
    WarmVoices,
    portable_error,
)
from .sent_lexicons import LexiconUnpacker

logger = logging.getLogger(__name__)

MAX_SILENCE_S = 10.0  # gateways send something every second; a stall of the network may last 5 s
_MAX_UNTAKEN_S = 1.0  # of audio sent and not taken by a listener; the engine renders another second ahead
_HEARTBEAT_S = 1.0  # to each gateway, if nothing else is sent
_REPORT_INTERVAL_S = 0.05  # of the load of a busy replica, if it changes
_CLOCK_STEP_S = 1e-6  # by which a timer may be early
_WAIT_CHANGE_S, _SHARE_CHANGE = 0.005, 0.02  # what a gateway should know of
_FINISHING_S = 0.5
_MAX_COMMANDS = 10_000  # in a batch
_MAX_GAP_S = 0.06  # of nothing inside speech; more is an underrun


class ReplicaHost:
    """Speaks the streams of gateways with one engine.

    bundle_digest: of the engine's voices. encoders: as of ``HostedVoices``.

    Attributes:
        cloning: what becomes of recordings here, set by ``prepare_cloning``.
    """

    def __init__(
        self,
        engine: SpeechEngine,
        replica: str,
        bundle_digest: str,
        encoders: RecordingEncoders | None = None,
        deployment: str = "voice",
    ) -> None:
        self._engine, self._deployment = engine, deployment
        self._replica = replica
        self._bundle_digest = bundle_digest
        self._stats = ListenerStats(engine)
        self._first_audio = FirstAudioWait()
        self._voices = HostedVoices(engine.voices, encoders)
        self._lexicons = LexiconUnpacker()
        self.cloning: CloningOffer | None = None
        self._links: dict[str, _GatewayLink] = {}  # the oldest first
        self._is_finishing = False

    async def prepare_cloning(self) -> None:
        """Find out what becomes of recordings; without it, gateways enrol no voices. Takes up to a second."""
        self.cloning = await self._voices.offer()

    def describe(self) -> ReplicaDescription:
        """The replica as it is now."""
        voices = tuple(self._engine.voices)
        return ReplicaDescription(self._replica, self._bundle_digest, voices, self._load(), self.cloning)

    async def encode(self, recordings: Sequence[Recording], transcript: str) -> bytes | VivavoceError:
        """The file of the prompt of a voice's recordings. Boundary: an error is the answer."""
        try:
            return await self._voices.encode(recordings, transcript)
        except Exception as error:
            if not isinstance(error, VivavoceError):
                logger.exception("recordings were not encoded")
            return portable_error(error)

    async def events(self, link_id: str) -> AsyncGenerator[tuple[ReplicaEvent, ...], None]:
        """Attach a gateway: yield what happens to its streams until it is silent; closing it cancels them.

        The first batch has the load and says that commands may come. While the replica is busy, changes of
        its load come 50 ms after the last ones; those of admission and open streams at once. When nothing
        happens, a batch with the load comes every second, so that the gateway notices a connection that is
        dead in one direction.
        """
        link = _GatewayLink(self._engine, self._voices, self._lexicons, self._first_audio)
        self._links[link_id] = link
        reports = _Reports()
        try:
            while not link.is_silent:
                news = reports.news(self._load(), self._voices.warm)
                batch = (*link.take_events(), *news, *self._metrics_for(link, reports))
                if batch:
                    yield batch
                await link.wait_for_events(reports.due_in_s(self._engine.active_streams > 0))
            logger.warning("gateway %s was silent for %.0f s; its streams end", link_id, MAX_SILENCE_S)
        finally:
            await link.aclose()
            if self._links.get(link_id) is link:
                del self._links[link_id]

    def run_commands(self, link_id: str, commands: Sequence[StreamCommand]) -> None:
        """Carry out a batch. Raises ReplicaLost if the gateway is not attached."""
        link = self._links.get(link_id)
        if link is None:
            raise ReplicaLost(f"replica {self._replica} does not know the gateway {link_id[:40]!r}")
        link.heard()
        for command in commands[:_MAX_COMMANDS]:
            link.run(command)

    def listener_stats(self) -> dict[str, float]:
        """As ``ListenerStats.take``, since the last call."""
        now = time.monotonic()
        return self._stats.take(lead for link in self._links.values() for lead in link.leads_s(now))

    async def finish(self) -> None:
        """Take no further streams, and wait until those that are open have ended."""
        self._is_finishing = True
        for link in self._links.values():
            link.wake()
        while True:
            await asyncio.sleep(_FINISHING_S)  # streams that were on their way have come
            if not any(link.open_streams for link in self._links.values()):
                return

    def _metrics_for(self, link: "_GatewayLink", reports: "_Reports") -> Iterator[ReplicaMetrics]:
        """The metrics, for the oldest gateway only: so a replica's series are exported once."""
        if next(iter(self._links.values()), None) is link and reports.metrics_are_due():
            load = self._load()
            families = replica_families(self._engine.metrics, *queue_families(self._waiting, load.wait_s))
            yield ReplicaMetrics(self._replica, self._deployment, families)

    async def aclose(self) -> None:
        """End all links. The engine stays open."""
        for link in list(self._links.values()):
            await link.aclose()
        self._links.clear()

    @property
    def _waiting(self) -> int:
        """Streams with text whose first audio has not come."""
        return sum(link.waiting_streams for link in self._links.values())

    def _load(self) -> ReplicaLoad:
        engine, now = self._engine, time.monotonic()
        leads = [lead for link in self._links.values() for lead in link.leads_s(now)]
        return ReplicaLoad(
            engine.active_streams,
            engine.max_streams,
            engine.compute_s_per_audio_s,
            engine.refusal(),
            self._first_audio.wait_s(self._waiting, engine),
            sum(lead < SHORT_LEAD_S for lead in leads) / max(1, len(leads)),
            len(self._links),
            self._is_finishing,
        )


class _Reports:
    """What one gateway was told of the replica's load, and when it is told again."""

    def __init__(self) -> None:
        self._load: ReplicaLoad | None = None
        self._warm: frozenset[str] = frozenset()
        self._told_at = self._metrics_at = -math.inf

    def news(self, load: ReplicaLoad, warm: frozenset[str]) -> Iterator[ReplicaEvent]:
        """What the gateway should be told now."""
        now = asyncio.get_running_loop().time()
        if warm != self._warm:
            yield WarmVoices(warm - self._warm, self._warm - warm)
            self._warm = warm
        age_s = now - self._told_at + _CLOCK_STEP_S
        before = self._load
        if (
            before is None
            or age_s >= _HEARTBEAT_S
            or _differs_in_streams(load, before)
            or (age_s >= _REPORT_INTERVAL_S and _differs_in_waits(load, before))
        ):
            self._load, self._told_at = load, now
            yield load

    def metrics_are_due(self) -> bool:
        """Whether metrics should be sent now; then they are."""
        now = asyncio.get_running_loop().time()
        if now - self._metrics_at < METRICS_INTERVAL_S:
            return False
        self._metrics_at = now
        return True

    def due_in_s(self, is_busy: bool) -> float:
        """Seconds until there may be news that no event announces."""
        interval_s = _REPORT_INTERVAL_S if is_busy else _HEARTBEAT_S
        return max(0.001, self._told_at + interval_s - asyncio.get_running_loop().time())


def _differs_in_streams(one: ReplicaLoad, other: ReplicaLoad) -> bool:
    return (
        one.open_streams != other.open_streams
        or (one.refusal is None) is not (other.refusal is None)
        or one.is_draining is not other.is_draining
    )


def _differs_in_waits(one: ReplicaLoad, other: ReplicaLoad) -> bool:
    return (
        abs(one.wait_s - other.wait_s) > _WAIT_CHANGE_S
        or abs(one.short_lead_share - other.short_lead_share) > _SHARE_CHANGE
        or abs(one.compute_s_per_audio_s - other.compute_s_per_audio_s) > 0.1 * other.compute_s_per_audio_s
        or one.gateways != other.gateways
    )


class _GatewayLink:
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
        self._streams: dict[int, _HostedStream] = {}
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
        self._streams[number] = _HostedStream(number, stream, self, opening.request.trace_id)

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


class _HostedStream:
    """One stream of the engine, whose chunks become events."""

    def __init__(self, number: int, stream: SpeechStream, link: _GatewayLink, trace_id: str) -> None:
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
