"""An engine whose streams are spoken by replicas in other processes, as a ``SpeechEngine``.

    directory: the replicas that run now --poll--> ReplicaLink, one for each
    open_stream() -> first clause known -> a replica, chosen by cost -> speaks the ClusterStream
    replica lost -> its streams go on at another replica, or end with an error

A replica whose bundle differs from the first one's is refused, because a stream that moves there would change
its voice. Belongs to the event loop that opened it.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ....tts_engine.engine import EngineConfig
from ....tts_engine.errors import BadRequest, BundleError, Overloaded, VivavoceError
from ....tts_engine.metrics import Metrics
from ....tts_engine.reading.pronunciation.lexicon_files import LexiconFile
from ....tts_engine.scheduler import Admission
from ....tts_engine.speech_engine import SpeechEngine, SpeechStream
from ....tts_engine.stream_request import StreamRequest
from ....tts_engine.voices.languages import language_read
from ....tts_engine.voices.packed_prompt import PackedPrompt
from ...background_tasks import cancel_and_wait
from ..routing import ReplicaState, RoutingPolicy, RoutingTable, StreamWork, estimate_work, work_at
from .cluster_metrics import REPORT_INTERVAL_S, ClusterMetrics
from .cluster_stream import ClusterStream
from .cluster_voices import ClusterVoices, EnrollableClusterVoices, voices_of
from .messages import (
    CancelStream,
    OpenStream,
    PromptForgotten,
    ReplicaDescription,
    ReplicaLost,
    ReplicaMetrics,
    ReportPlayout,
    SentPrompt,
    StreamCommand,
    StreamInput,
)
from .replica_link import ReplicaChannel, ReplicaLink
from .sent_lexicons import LexiconPacker
from .waiting_streams import WaitingStreams

logger = logging.getLogger(__name__)

_POLL_INTERVAL_S = 1.0  # a new replica takes streams, and a leaving one takes none, after as long
_MAX_MOVES = 2  # of a stream: a text that ends one replica must not end all of them
_RETRY_AFTER_S = 2.0
# A replica that has not measured its cost admits up to ``max_streams``; the routing must not refuse first.
CLUSTER_ROUTING = RoutingPolicy(unmeasured_compute_s=0.001, reference_cost=0.005)
_REFERENCE_BYTES_PER_S = 17_000.0  # of a prompt, for a second of its recording


class ReplicaDirectory(Protocol):
    """Finds replicas."""

    fault: str  # why it cannot be asked; "" if it can

    @property
    def may_grow(self) -> bool:
        """Whether more replicas are starting, or may be started."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Replicas that are "desired" and "starting"."""

    async def discover(self) -> Sequence[ReplicaDescription]:
        """The replicas that take streams now. Raises ReplicaLost if none can be asked."""

    def connect(self, description: ReplicaDescription) -> ReplicaChannel:
        """A transport to a replica."""

    async def report_metrics(self) -> Sequence[ReplicaMetrics]:
        """The metrics of the replicas that gateways have no link to: those of other stages."""

    async def aclose(self) -> None:
        """Leave the cluster."""


class StreamRouter(Protocol):
    """Chooses replicas, as ``RoutingTable``."""

    def report(self, state: ReplicaState, now: float) -> None: ...

    def remove(self, replica_id: str) -> None: ...

    def age_s(self, replica_id: str, now: float) -> float: ...

    def route(self, work: StreamWork, now: float, among: Iterable[str] | None = None) -> ReplicaState: ...


class ClusterEngine(SpeechEngine):
    """The replicas of one deployment as an engine. ``connect`` makes one."""

    def __init__(
        self,
        directory: ReplicaDirectory,
        config: EngineConfig,
        metrics: Metrics,
        routing: StreamRouter | None = None,
    ) -> None:
        self.metrics = metrics
        self._cluster_metrics = ClusterMetrics(metrics.registry)
        self.voices: ClusterVoices | EnrollableClusterVoices = ClusterVoices(())
        self._config = config
        self._directory = directory
        self._links: dict[str, ReplicaLink] = {}
        self._speaking: dict[ClusterStream, ReplicaLink | None] = {}  # None until a replica is chosen
        self._waiting = WaitingStreams(self._place, self._refuse, lambda: directory.may_grow)
        self._numbers = itertools.count(1)
        self._routing = routing or RoutingTable(CLUSTER_ROUTING)
        self._lexicons = LexiconPacker()
        self._digest: str | None = None
        self._refused: set[str] = set()
        self._closing = False
        self._polling: list[asyncio.Task[None]] = []

    @classmethod
    async def connect(
        cls,
        directory: ReplicaDirectory,
        config: EngineConfig,
        *,
        voice_store: Path | None = None,
        within_s: float = 30.0,
        routing: StreamRouter | None = None,
    ) -> "ClusterEngine":
        """Wait for a first replica and take it. Raises BundleError if none is ready ``within_s``.

        voice_store: folder of the gateway's enrolled voices, for replicas that clone. routing: None routes by
        cost.
        """
        engine = cls(directory, config, Metrics(), routing)
        try:
            async with asyncio.timeout(within_s):
                while not engine._links:
                    await engine._update_links()
                    if not engine._links:
                        await asyncio.sleep(_POLL_INTERVAL_S / 4)
        except TimeoutError:
            await directory.aclose()
            fault = directory.fault or "see vivavoce cluster status"
            raise BundleError(f"no replica was ready within {within_s:g} s: {fault}") from None
        first = next(iter(engine._links.values()))
        engine.voices = voices_of(first.description, engine._open_links, voice_store)
        engine._polling = [
            asyncio.create_task(engine._poll(), name="replicas"),
            asyncio.create_task(engine._poll_metrics(), name="metrics of replicas"),
        ]
        return engine

    @property
    def lexicon(self) -> LexiconFile | None:
        """None: the replicas have their own."""
        return None

    @property
    def active_streams(self) -> int:
        """Number of open streams of this gateway."""
        return len(self._speaking)

    @property
    def process_ids(self) -> tuple[int, ...]:
        """None: the replicas are no processes of this server."""
        return ()

    @property
    def max_streams(self) -> int:
        """Most streams that this gateway opens at once."""
        return self._config.scheduler.max_streams

    @property
    def compute_s_per_audio_s(self) -> float:
        """As ``SpeechEngine.compute_s_per_audio_s``, of the replica where it is most."""
        return max((link.load.compute_s_per_audio_s for link in self._links.values()), default=0.0)

    @property
    def replicas(self) -> tuple[str, ...]:
        """Ids of the replicas that take streams."""
        return tuple(link.replica for link in self._open_links())

    @property
    def replica_streams(self) -> int:
        """Streams of the replicas, of all gateways, as they reported last."""
        return sum(link.load.open_streams for link in self._links.values())

    def refusal(self, admission: Admission = Admission.NEW) -> Overloaded | None:
        """The error with which one more stream would be refused now, as far as known.

        The replicas admit every stream as a new one.
        """
        max_streams = self._config.scheduler.max_streams
        if len(self._speaking) >= max_streams:
            message = f"{len(self._speaking)} streams are open, at most {max_streams} are allowed"
            return Overloaded(message, reason="streams", retry_after_s=1.0)
        refusals = [link.load.refusal for link in self._usable_links()]
        if None in refusals or self._waiting.has_room:
            return None
        if not refusals:
            message = ": ".join(filter(None, ("no replicas", self._directory.fault)))
            return Overloaded(message, reason="replicas", retry_after_s=_RETRY_AFTER_S)
        return refusals[0]

    async def open_conversion(
        self, samples: NDArray[np.float32], sample_rate: int, request: StreamRequest
    ) -> SpeechStream:
        """Not supported: raises BadRequest."""
        raise BadRequest("a gateway of a cluster converts no recordings; its replicas speak text only")

    def language_spoken(self, voice: str | None, language: str) -> str | None:
        """As ``SpeechEngine.language_spoken``."""
        return language_read(self.voices.get(voice), language, self._config.other_language)

    def open_stream(self, request: StreamRequest, admission: Admission = Admission.NEW) -> ClusterStream:
        """As ``SpeechEngine.open_stream``; the replicas admit every stream as a new one.

        A replica is chosen when the first clause is known. If none has room then, the stream fails with
        Overloaded, or waits for a replica that may be started.
        """
        if self._closing:
            raise BadRequest("the engine is closed")
        refusal = self.refusal()
        if refusal is not None:
            self.metrics.refusals.labels(refusal.reason).inc()
            raise refusal
        voice = self.voices.get(request.voice)
        prompt = self.voices.speaker_profile(voice.id)
        assert prompt is None or isinstance(prompt, PackedPrompt)
        sent = None if prompt is None else SentPrompt(prompt.id)
        delivery = replace(request.delivery, language=request.delivery.language or voice.language)
        opening = OpenStream(
            replace(request, voice=voice.id, delivery=delivery, lexicons=()),
            tuple(map(self._lexicons.pack, request.lexicons)),
            sent,
        )
        stream = ClusterStream(self, next(self._numbers), opening, self._config.max_characters, prompt)
        self._speaking[stream] = None
        self.metrics.active_streams.inc()
        return stream

    async def aclose(self) -> None:
        """Cancel every stream and leave the replicas. May be called twice."""
        self._closing = True
        for stream in list(self._speaking):
            stream.cancel()
        await cancel_and_wait(*self._polling)
        links, self._links = list(self._links.values()), {}
        await asyncio.gather(*(link.aclose() for link in links))
        await self._directory.aclose()
        if isinstance(self.voices, EnrollableClusterVoices):
            self.voices.close()

    # Placing streams

    def _place(self, stream: ClusterStream) -> None:
        """Have a replica speak a stream, or what is left of it. Raises Overloaded if none takes it."""
        fit = [
            link.replica
            for link in self._usable_links()
            if link.replica not in stream.tried and link.load.refusal is None
        ]
        work, now = _work_of(stream), time.monotonic()
        chosen = self._routing.route(work, now, fit)
        link = self._links[chosen.id]
        stream.tried.add(link.replica)
        self._note_choice(stream, chosen, work_at(chosen, work), self._routing.age_s(chosen.id, now))
        self._speaking[stream] = link
        link.open(stream)
        for action in (_opening(stream, link), *stream.remainder()):
            link.send(StreamCommand(stream.number, action))

    def _note_choice(
        self, stream: ClusterStream, chosen: ReplicaState, work: StreamWork, age_s: float
    ) -> None:
        self._cluster_metrics.routed_audio.observe(work.audio_s)
        self._cluster_metrics.report_age.observe(age_s)
        logger.debug(
            "%s, %.2f s of %.1f s of speech first, %.1f s of a cold reference, is placed; it waits %.0f ms "
            "there beside %d streams of cost %.3f, as reported %.0f ms ago by replica %s",
            *(stream, work.first_audio_s, work.audio_s, work.reference_s, 1000 * chosen.wait_s),
            *(chosen.open_streams, chosen.compute_s_per_audio_s, 1000 * age_s, chosen.id),
        )

    def _refuse(self, stream: ClusterStream, refusal: Overloaded) -> None:
        self.metrics.refusals.labels(refusal.reason).inc()
        stream.fail(refusal)

    # Called by streams

    def send(self, stream: ClusterStream, action: StreamInput | CancelStream | ReportPlayout) -> None:
        """Send an action to the replica that speaks the stream, if it still does; or choose that replica."""
        link = self._speaking.get(stream)
        if link is not None:
            link.send(StreamCommand(stream.number, action))
        elif stream in self._speaking and not isinstance(action, CancelStream | ReportPlayout):
            self._waiting.consider(stream)

    def move(self, stream: ClusterStream, error: VivavoceError) -> None:
        """Have another replica speak what is left, if the error is the replica's; else end the stream."""
        link = self._speaking.get(stream)
        if link is None:  # it was cancelled
            return
        link.forget(stream)
        if isinstance(error, PromptForgotten) and stream.prompt is not None:
            link.prompts -= {stream.prompt.id}
            stream.tried.discard(link.replica)
        if isinstance(error, ReplicaLost | Overloaded | PromptForgotten) and len(stream.tried) <= _MAX_MOVES:
            try:
                self._place(stream)
                self._note_move(stream, link, error)
                return
            except Overloaded as refusal:
                if self._wait_for_room(stream, link, error, refusal):
                    return
        self.metrics.failures.inc()
        logger.error("%s failed: %s", stream, error)
        stream.fail(error)

    def _wait_for_room(
        self, stream: ClusterStream, link: ReplicaLink, error: VivavoceError, refusal: Overloaded
    ) -> bool:
        """Have a stream wait that no replica takes now; whether it may."""
        was_full = isinstance(error, Overloaded)  # by the time; it had room before
        if was_full:
            stream.tried.discard(link.replica)
        elif not self._waiting.has_room:
            return False
        self._speaking[stream] = None
        self._waiting.wait_or_refuse(stream, refusal)
        return True

    def _note_move(self, stream: ClusterStream, before: ReplicaLink, error: VivavoceError) -> None:
        now = self._speaking[stream]
        if now is None or now is before:
            return
        self._cluster_metrics.moved_streams.inc()
        logger.info("%s moves from replica %s to %s: %s", stream, before.replica, now.replica, error)

    def forget(self, stream: ClusterStream) -> None:
        """Forget a stream that ended."""
        if stream not in self._speaking:
            return
        self._waiting.forget(stream)
        if (link := self._speaking.pop(stream)) is not None:
            link.forget(stream)
        self.metrics.active_streams.dec()

    # Replicas

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(_POLL_INTERVAL_S)
            await self._update_links()

    async def _poll_metrics(self) -> None:
        while True:
            # Of all gateways, only the one that shows the first replica shows the other stages.
            if self._links and self._cluster_metrics.has(min(self._links)):
                self._cluster_metrics.take(await self._directory.report_metrics())
            await asyncio.sleep(REPORT_INTERVAL_S)

    async def _update_links(self) -> None:
        """Take new replicas, and leave those that no longer take streams once they have none."""
        await self._leave_finished()
        for state, count in {"running": len(self._open_links()), **self._directory.counts}.items():
            self._cluster_metrics.replicas.labels(state).set(count)
        try:
            found = {each.replica: each for each in await self._directory.discover()}
        except ReplicaLost as error:
            logger.debug("replicas unknown: %s", error)
            return
        for description in found.values():
            if description.replica not in self._links and self._accepts(description):
                channel = self._directory.connect(description)
                link = ReplicaLink(description, channel, self._report, self._take_metrics, self._lose)
                self._links[description.replica] = link
                self._report(link)
                logger.info("replica %s joined", description.replica)
        for link in self._links.values():
            link.is_leaving = link.load.is_draining or link.replica not in found
        self._digest = next((each.description.bundle_digest for each in self._links.values()), None)
        if self._links:
            replica, link = next(iter(self._links.items()))
            newest = found.get(replica, link.description)
            self.voices.become(newest.voices, newest.cloning)

    async def _leave_finished(self) -> None:
        """Close the links of leaving replicas that have no stream."""
        for link in list(self._links.values()):
            if link.is_leaving and not link.streams:
                del self._links[link.replica]
                self._routing.remove(link.replica)
                await link.aclose()
                logger.info("replica %s left", link.replica)

    def _take_metrics(self, reported: ReplicaMetrics) -> None:
        self._cluster_metrics.take([reported])

    def _open_links(self) -> list[ReplicaLink]:
        """The replicas that take streams."""
        return [link for link in self._links.values() if not link.is_leaving]

    def _usable_links(self) -> list[ReplicaLink]:
        """The replicas that take streams; without any, those that end after their streams."""
        return self._open_links() or list(self._links.values())

    def _report(self, link: ReplicaLink) -> None:
        self._routing.report(link.load.state(link.replica, link.prompts), time.monotonic())
        self._waiting.retry()

    def _accepts(self, description: ReplicaDescription) -> bool:
        """Whether a replica speaks as the others do; the first one decides how."""
        if self._digest is None:
            self._digest = description.bundle_digest
        if description.bundle_digest == self._digest:
            return True
        if description.replica not in self._refused:
            self._refused.add(description.replica)
            logger.error(
                "replica %s is refused: its bundle has the digest %s, the others have %s",
                description.replica,
                description.bundle_digest,
                self._digest,
            )
        return False

    def _lose(self, link: ReplicaLink, error: ReplicaLost) -> None:
        """Go on without a replica: its streams move."""
        if link.is_leaving and not link.streams:
            self._routing.remove(link.replica)
            self._links.pop(link.replica, None)
            logger.info("replica %s ended", link.replica)
            return
        self._cluster_metrics.lost_replicas.inc()
        self._routing.remove(link.replica)
        if self._links.get(link.replica) is link:
            del self._links[link.replica]
        streams = [stream for stream, speaking in self._speaking.items() if speaking is link]
        logger.error("replica %s is lost with %d streams: %s", link.replica, len(streams), error)
        for stream in streams:
            self.move(stream, error)


def _work_of(stream: ClusterStream) -> StreamWork:
    prompt = stream.prompt
    return estimate_work(
        stream.text,
        text_ended=stream.input_ended,
        reference_s=prompt.nbytes / _REFERENCE_BYTES_PER_S if prompt else 0.0,
        voice=prompt.id if prompt else "",
    )


def _opening(stream: ClusterStream, link: ReplicaLink) -> OpenStream:
    """What opens a stream at a replica; with the prompt of its voice if the replica was not sent it."""
    prompt = stream.prompt
    if prompt is None or prompt.id in link.prompts:
        return stream.opening
    link.prompts |= {prompt.id}
    return replace(stream.opening, prompt=SentPrompt(prompt.id, prompt.to_bytes()))
