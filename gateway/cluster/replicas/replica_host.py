"""The replica's end: an engine that speaks the streams of several gateways.

Each gateway attaches once and then has a link: batches of commands come in (``run_commands``), batches of
events go out (``events``). A gateway that stays silent for ``MAX_SILENCE_S`` is taken for dead, and its
streams are cancelled. Belongs to one event loop.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Iterator, Sequence

from ....tts_engine.errors import VivavoceError
from ....tts_engine.speech_engine import SpeechEngine
from ....tts_engine.voices.recording import Recording
from .cluster_metrics import REPORT_INTERVAL_S as METRICS_INTERVAL_S
from .cluster_metrics import queue_families, replica_families
from .gateway_link import MAX_SILENCE_S, GatewayLink
from .hosted_voices import HostedVoices, RecordingEncoders
from .listener_stats import SHORT_LEAD_S, FirstAudioWait, ListenerStats
from .messages import (
    CloningOffer,
    ReplicaDescription,
    ReplicaEvent,
    ReplicaLoad,
    ReplicaLost,
    ReplicaMetrics,
    StreamCommand,
    WarmVoices,
    portable_error,
)
from .sent_lexicons import LexiconUnpacker

logger = logging.getLogger(__name__)

_HEARTBEAT_S = 1.0  # to each gateway, if nothing else is sent
_REPORT_INTERVAL_S = 0.05  # of the load of a busy replica, if it changes
_CLOCK_STEP_S = 1e-6  # by which a timer may be early
_WAIT_CHANGE_S, _SHARE_CHANGE = 0.005, 0.02  # what a gateway should know of
_FINISHING_S = 0.5
_MAX_COMMANDS = 10_000  # in a batch


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
        self._links: dict[str, GatewayLink] = {}  # the oldest first
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
        link = GatewayLink(self._engine, self._voices, self._lexicons, self._first_audio)
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

    def _metrics_for(self, link: GatewayLink, reports: "_Reports") -> Iterator[ReplicaMetrics]:
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
