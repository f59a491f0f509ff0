"""The deployment ``render``: replicas that render the speech ids of decode replicas.

Every call of a decode replica has the id of its render replica as the first argument, by which Ray Serve
routes it. A replica that Serve is stopping stays reachable until it has ended, so that its streams still get
their text. Its metrics are Ray's: ``ray_vivavoce_render_*`` where Ray's metrics are scraped.
"""

import asyncio
import logging
import time
from collections.abc import Mapping

from ray import serve
from ray.serve import metrics
from ray.serve.config import RequestRouterConfig
from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from ....tts_engine.backends.divided_stages import RenderReplicaDescription
from ....tts_engine.process_limits import raise_descriptor_limit
from ...process_tuning import tune_process
from ..replicas.cluster_metrics import replica_families
from ..replicas.messages import ReplicaLost, ReplicaMetrics
from .replica_settings import ReplicaSettings, log_with_serve


class NamedReplicaRouter(RequestRouter):  # type: ignore[misc]  # Serve has no types here
    """Sends a call to the replica that it names. A broadcast reaches the replicas that take streams."""

    def initialize_state(self, **_: object) -> None:
        """Begin without replicas."""
        self._running: set[ReplicaID] = set()

    @property
    def curr_replicas(self) -> dict[ReplicaID, RunningReplica]:
        """The replicas that Serve is not stopping; broadcasts go there."""
        return {key: replica for key, replica in self._replicas.items() if key in self._running}

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Take Serve's list of running replicas, and keep the others until they are known to be dead."""
        self._running = {replica.replica_id for replica in replicas}
        stopping = [replica for key, replica in self._replicas.items() if key not in self._running]
        super().update_replicas([*replicas, *stopping])

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """The named replica. If it is gone, any other one, which then raises ``ReplicaLost`` at once."""
        name = pending_request.args[0] if pending_request and pending_request.args else None
        named = [each for each in candidate_replicas if each.replica_id.unique_id == name]
        return [named or candidate_replicas]


logger = logging.getLogger(__name__)

_MAX_CALLS = 10_000  # each decode replica has a few under way
_DRAIN_S = 120.0  # after which the sentences of a stopped replica move to others, chunk by chunk
_HEARING_INTERVAL_S = 0.5
_ANSWER_BUCKETS_S = [0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0, 2.0, 5.0, 10.0]


class RenderReplica:
    """One replica. Its methods are those of ``StageHost``, and raise ReplicaLost if another one is meant."""

    async def __init__(self, settings: ReplicaSettings) -> None:  # type: ignore[misc]  # Ray Serve awaits it
        log_with_serve()
        raise_descriptor_limit()
        context = serve.get_replica_context()
        self._replica, self._deployment = context.replica_id.unique_id, context.deployment
        self._host = await asyncio.to_thread(settings.load_render_host, self._replica)
        tune_process()
        self._answer_s = metrics.Histogram(
            "vivavoce_render_answer_seconds",
            "From the request for a chunk to its samples.",
            boundaries=_ANSWER_BUCKETS_S,
        )
        self._sentences = metrics.Gauge("vivavoce_render_sentences", "Sentences of decode replicas open now.")
        logger.info("replica %s renders", self._replica)

    async def describe(self, decoder: str) -> RenderReplicaDescription:
        """As ``StageHost.describe``; for a broadcast."""
        description = self._host.describe(decoder)
        self._sentences.set(description.sentences)
        return description

    async def answer_for(self, replica: str, decoder: str) -> RenderReplicaDescription:
        """As ``describe``, of one replica."""
        self._check_is(replica)
        return await self.describe(decoder)

    async def render(self, replica: str, request: object) -> object:
        """As ``StageHost.render``."""
        self._check_is(replica)
        started_at = time.monotonic()
        reply: object = await asyncio.wrap_future(self._host.render(request))
        self._answer_s.observe(time.monotonic() - started_at)
        return reply

    async def keep_voice(self, replica: str, voice: object) -> None:
        """As ``StageHost.keep_voice``."""
        self._check_is(replica)
        self._host.keep_voice(voice)

    async def release(self, replica: str, decoder: str, sentence: int) -> None:
        """As ``StageHost.release``."""
        self._check_is(replica)
        self._host.release(decoder, sentence)

    async def keep_running(self, replica: str, decoder: str) -> None:
        """Wait until the decode replica cancels the call or is silent.

        While it waits, Ray Serve does not end a replica that it stops. A sentence has no call between chunks.
        """
        self._check_is(replica)
        while self._host.hears(decoder):  # noqa: ASYNC110  # silence is not an event
            await asyncio.sleep(_HEARING_INTERVAL_S)

    async def report_metrics(self) -> ReplicaMetrics:
        """The metrics of the render stage; for a broadcast."""
        return ReplicaMetrics(self._replica, self._deployment, replica_families(self._host.metrics))

    async def record_autoscaling_stats(self) -> Mapping[str, float]:
        """As ``StageHost.listener_stats``; Ray Serve calls it, and ``autoscaling`` reads it."""
        return self._host.listener_stats()

    async def check_health(self) -> None:
        """Have Ray Serve replace a replica whose device failed, by raising RuntimeError."""
        if not self._host.is_healthy:
            raise RuntimeError("the render stage cannot go on")

    def _check_is(self, replica: str) -> None:
        if replica != self._replica:
            raise ReplicaLost(f"render replica {replica} is gone; this is {self._replica}")


def bind_render_replicas(settings: ReplicaSettings, name: str) -> serve.Application:
    """The deployment with that name, as an argument of the decode deployment."""
    deployment = serve.deployment(
        name=name,
        max_ongoing_requests=_MAX_CALLS,
        graceful_shutdown_timeout_s=_DRAIN_S,
        graceful_shutdown_wait_loop_s=0.5,
        health_check_period_s=2.0,
        health_check_timeout_s=5.0,
        request_router_config=RequestRouterConfig(request_router_class=NamedReplicaRouter),
    )(RenderReplica)
    return deployment.bind(settings)
