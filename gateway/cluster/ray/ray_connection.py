"""Joins a Ray cluster: one that runs, or one of this process alone. Imported only where ray is installed."""

import asyncio
from pathlib import Path

import ray
from ray import serve
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from ....tts_engine.engine import EngineConfig
from ....tts_engine.errors import BadRequest, BundleError
from ..replicas.cluster_engine import ClusterEngine
from .application import APPLICATION, build
from .replica_directory import RayReplicas
from .replica_settings import ReplicaSettings

LOCAL = "local"
LOOPBACK = "127.0.0.1"
_FIND_TRIES = 30  # once a second


async def open_ray_engine(
    address: str, local: ReplicaSettings, config: EngineConfig, voice_store: Path | None = None
) -> ClusterEngine:
    """The replicas of a cluster as an engine.

    address: "auto" for the cluster that this machine belongs to, "HOST:PORT" for its head, or "local" for a
    cluster of this process with one replica of ``local``. voice_store: of the gateway's enrolled voices.
    Raises BundleError and BadRequest.
    """
    # In a thread, where Ray leaves the signals of the server alone.
    await asyncio.to_thread(join_cluster, address)
    if address == LOCAL:
        await asyncio.to_thread(_deploy_here, local)
    handle = await _find_application()
    replicas = RayReplicas(handle, await asyncio.to_thread(_other_stages, handle))
    return await ClusterEngine.connect(replicas, config, voice_store=voice_store)


async def _find_application() -> "DeploymentHandle[object]":
    """The handle of the application, which may be starting."""
    error: RayServeException | None = None
    for _ in range(_FIND_TRIES):
        try:
            return await asyncio.to_thread(serve.get_app_handle, APPLICATION)
        except RayServeException as missing:
            error = missing
            await asyncio.sleep(1.0)
    raise BundleError(f"no application {APPLICATION!r} runs in the cluster") from error


def _other_stages(handle: "DeploymentHandle[object]") -> list["DeploymentHandle[object]"]:
    """The handles of the application's deployments that gateways do not call."""
    deployments = serve.status().applications[APPLICATION].deployments
    return [
        serve.get_deployment_handle(name, APPLICATION)
        for name in deployments
        if name != handle.deployment_name
    ]


def join_cluster(address: str) -> str:
    """Connect this process to a running cluster, or begin one for "local"; the HOST:PORT of its dashboard.

    "" without a dashboard. Raises BundleError and BadRequest.
    """
    if address.startswith("ray://"):
        raise BadRequest(
            f"engine.executor is 'ray:{address}'; Ray Client streams no audio: join this machine to the "
            "cluster (ray start --address=HOST:6379) and use 'ray'"
        )
    options = {"include_dashboard": False, "_node_ip_address": LOOPBACK} if address == LOCAL else {}
    try:
        context = ray.init(
            address=address,
            configure_logging=False,
            log_to_driver=False,
            ignore_reinit_error=True,
            **options,
        )
    except ConnectionError as error:
        raise BundleError(
            f"engine.executor is 'ray:{address}', and no cluster answers there; start one: "
            "vivavoce cluster up CONFIG"
        ) from error
    return str(context.dashboard_url or "")


def _deploy_here(settings: ReplicaSettings) -> None:
    serve.start(proxy_location="Disabled")
    serve.run(build(settings), name=APPLICATION, route_prefix=None)
