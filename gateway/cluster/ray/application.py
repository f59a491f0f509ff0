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

A replica is a whole engine: it has a scheduler, batches and admission of its own. Gateways connect to it, see
``replica_socket``; it has no HTTP route. With ``stages: apart`` there are two deployments:
``decode``, which gateways call in the same way, and ``render``, see ``render_replica``. With
``enrolment: apart`` there is one more, which encodes recordings, see ``enrolment_replica``.
"""

import functools
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace

import ray
from ray import serve
from ray.serve.handle import DeploymentHandle

from ....tts_engine.engine import Engine
from ....tts_engine.process_limits import raise_descriptor_limit
from ...operation.traces import export_traces
from ...process_tuning import tune_process
from ..replicas.replica_host import ReplicaHost
from ..replicas.replica_socket import ReplicaServer
from .enrolment_replica import RayEncoders, bind_enrolment_replicas
from .finding.messages import FoundReplica, link_security
from .render_connection import open_decode_engine
from .render_replica import bind_render_replicas
from .replica_settings import ReplicaSettings, log_with_serve

logger = logging.getLogger(__name__)

APPLICATION = "vivavoce"
_MAX_GATEWAY_CALLS = 10_000  # one for each gateway that has just begun; streams have no calls
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
        self._replica = context.replica_id.unique_id
        engine, digest = await open_engine(*stages)
        export_traces(engine.metrics)
        encoders = None if enrolment is None else RayEncoders(enrolment)
        self._host = ReplicaHost(engine, self._replica, digest, encoders, deployment=context.deployment)
        await self._host.prepare_cloning()
        tune_process()
        self._server = ReplicaServer(self._host, link_security(os.environ))
        self._endpoint = await self._server.open(ray.util.get_node_ip_address())
        logger.info("replica %s speaks with the bundle %s", self._replica, digest)

    async def introduce(self) -> dict[str, object]:
        """The fields of a ``FoundReplica``, which any release reads; for a broadcast."""
        found = FoundReplica.of(replace(self._host.describe(), endpoint=self._endpoint))
        return {"replica": found.replica, "release": found.release, "description": found.description}

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """As ``ReplicaHost.listener_stats``; Ray Serve calls it, and ``autoscaling`` reads it."""
        return self._host.listener_stats()

    async def __del__(self) -> None:
        """Finish the streams; Ray Serve awaits it before it ends the replica."""
        await self._host.finish()
        await self._server.aclose()


def build(args: ReplicaSettings) -> serve.Application:
    """The application of ``args``."""
    enrolment = bind_enrolment_replicas(args, "enrolment") if args.enrolment == "apart" else None
    if args.stages == "together":
        return _voice_deployment("voice").bind(args.open_engine, enrolment=enrolment)
    open_engine = functools.partial(open_decode_engine, args)
    render = bind_render_replicas(args, "render")
    return _voice_deployment("decode").bind(open_engine, render, enrolment=enrolment)


def bind_replicas(
    open_engine: Callable[[], Awaitable[tuple[Engine, str]]], name: str = "voice"
) -> serve.Application:
    """An application whose replicas load an engine in their own way. open_engine: picklable."""
    return _voice_deployment(name).bind(open_engine)


def _voice_deployment(name: str) -> serve.Deployment:
    return serve.deployment(
        name=name,
        max_ongoing_requests=_MAX_GATEWAY_CALLS,
        graceful_shutdown_timeout_s=_DRAIN_S,
        graceful_shutdown_wait_loop_s=0.5,
        health_check_period_s=2.0,
        health_check_timeout_s=5.0,
    )(VoiceReplica)
