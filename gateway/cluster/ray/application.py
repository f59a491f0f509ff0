"""The Ray Serve application of the replicas: ``import_path`` of a Serve configuration file is its ``build``.

    applications:
      - name: vivavoce
        import_path: vivavoce.gateway.cluster.ray.application:build
        route_prefix: null
        args: {bundle: default}         # ReplicaSettings
        deployments:
          - name: voice
            num_replicas: 2
            ray_actor_options: {num_cpus: 1}

A replica is a whole engine: it has a scheduler, batches and admission of its own. Gateways call it over
handles, see ``replica_directory``; it has no HTTP route. With ``stages: apart`` there are two deployments:
``decode``, which gateways call in the same way, and ``render``, see ``render_replica``. With
``enrolment: apart`` there is one more, which encodes recordings, see ``enrolment_replica``.
"""

import functools
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from ray import serve
from ray.serve.config import RequestRouterConfig
from ray.serve.handle import DeploymentHandle

from ....tts_engine.engine import Engine
from ....tts_engine.errors import VivavoceError
from ....tts_engine.process_limits import raise_descriptor_limit
from ....tts_engine.voices.recording import Recording
from ...operation.traces import export_traces
from ...process_tuning import tune_process
from ..replicas.cluster_metrics import replica_families
from ..replicas.messages import (
    ReplicaDescription,
    ReplicaEvent,
    ReplicaLost,
    ReplicaMetrics,
    StreamCommand,
)
from ..replicas.replica_host import ReplicaHost
from .enrolment_replica import RayEncoders, bind_enrolment_replicas
from .render_connection import open_decode_engine
from .render_replica import bind_render_replicas
from .replica_logging import log_with_serve
from .replica_settings import ReplicaSettings
from .request_router import NamedReplicaRouter

logger = logging.getLogger(__name__)

APPLICATION = "vivavoce"
_MAX_GATEWAY_CALLS = 10_000  # each gateway has two under way; streams are limited by ``max_streams``
_DRAIN_S = 600.0  # a long text that is being spoken when its replica is stopped


class VoiceReplica:
    """One replica. open_engine: loads the engine and gives it with the digest of its bundle.

    stages: handles of the deployments of other stages, for ``open_engine``. enrolment: handle of the
    deployment that encodes recordings; None encodes them here.
    """

    async def __init__(  # type: ignore[misc]  # Ray Serve awaits it
        self,
        open_engine: Callable[..., Awaitable[tuple[Engine, str]]],
        *stages: object,
        enrolment: "DeploymentHandle[object] | None" = None,
    ) -> None:
        log_with_serve()
        raise_descriptor_limit()
        context = serve.get_replica_context()
        self._replica, self._deployment = context.replica_id.unique_id, context.deployment
        engine, digest = await open_engine(*stages)
        self._metrics = engine.metrics
        export_traces(engine.metrics)
        encoders = None if enrolment is None else RayEncoders(enrolment)
        self._host = ReplicaHost(engine, self._replica, digest, encoders)
        await self._host.prepare_cloning()
        tune_process()
        logger.info("replica %s speaks with the bundle %s", self._replica, digest)

    async def describe(self) -> ReplicaDescription:
        """As ``ReplicaHost.describe``."""
        return self._host.describe()

    async def events(self, replica: str, link_id: str) -> AsyncGenerator[tuple[ReplicaEvent, ...], None]:
        """As ``ReplicaHost.events``. Raises ReplicaLost if another replica is meant."""
        self._check_is(replica)
        async for events in self._host.events(link_id):
            yield events

    async def run_commands(self, replica: str, link_id: str, commands: tuple[StreamCommand, ...]) -> None:
        """As ``ReplicaHost.run_commands``. Raises ReplicaLost if another replica is meant."""
        self._check_is(replica)
        self._host.run_commands(link_id, commands)

    async def encode(
        self, replica: str, recordings: Sequence[Recording], transcript: str
    ) -> bytes | VivavoceError:
        """As ``ReplicaHost.encode``. Raises ReplicaLost if another replica is meant."""
        self._check_is(replica)
        return await self._host.encode(recordings, transcript)

    async def report_metrics(self) -> ReplicaMetrics:
        """The metrics of the engine; for a broadcast."""
        return ReplicaMetrics(self._replica, self._deployment, replica_families(self._metrics))

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """As ``ReplicaHost.listener_stats``; Ray Serve calls it, and ``autoscaling`` reads it."""
        return self._host.listener_stats()

    def _check_is(self, replica: str) -> None:
        if replica != self._replica:
            raise ReplicaLost(f"replica {replica} is gone; this is {self._replica}")


def build(args: ReplicaSettings) -> serve.Application:
    """The application of ``args``."""
    enrolment = bind_enrolment_replicas(args, "enrolment") if args.enrolment == "apart" else None
    if args.stages == "together":
        return _voice_deployment("voice").bind(args.open_engine, enrolment=enrolment)
    open_engine = functools.partial(open_decode_engine, args)
    render = bind_render_replicas(args, "render")
    return _voice_deployment("decode").bind(open_engine, render, enrolment=enrolment)


def bind_replicas(open_engine: Callable[[], Awaitable[tuple[Engine, str]]]) -> serve.Application:
    """An application whose replicas load an engine in their own way. open_engine: picklable."""
    return _voice_deployment("voice").bind(open_engine)


def _voice_deployment(name: str) -> serve.Deployment:
    return serve.deployment(
        name=name,
        max_ongoing_requests=_MAX_GATEWAY_CALLS,
        graceful_shutdown_timeout_s=_DRAIN_S,
        graceful_shutdown_wait_loop_s=0.5,
        health_check_period_s=2.0,
        health_check_timeout_s=5.0,
        request_router_config=RequestRouterConfig(request_router_class=NamedReplicaRouter),
    )(VoiceReplica)
