"""Joins a Ray cluster, one that runs or one of this process alone, and opens its replicas as an engine.

Imported only where ray is used.
"""

import importlib.util
from pathlib import Path

import ray
from ray import serve
from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available

from ....tts_engine.engine import EngineConfig
from ....tts_engine.errors import BundleError, MissingExtra
from ..replicas.cluster_engine import ClusterEngine, StreamRouter
from .application import APPLICATION, build
from .finding.head_address import check_head
from .finding.messages import DiscoverySettings
from .finding.replica_directory import RayReplicas, check_address
from .replica_settings import ReplicaSettings

__all__ = ["APPLICATION", "LOCAL", "LOOPBACK", "deploy_here", "join_cluster"]

LOCAL = "local"
LOOPBACK = "127.0.0.1"


def join_cluster(address: str) -> str:
    """Connect this process to a running cluster, or begin one for "local"; the HOST:PORT of its dashboard.

    "" without a dashboard. Raises BundleError and BadRequest.
    """
    check_address(address)
    check_head(address)
    if address != LOCAL:
        # Ray does it for "auto" only; a cluster with an address of its own has the token of its machines too.
        maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
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


def deploy_here(settings: ReplicaSettings) -> None:
    """Deploy the application with one replica in the cluster that this process has joined."""
    serve.start(proxy_location="Disabled")
    serve.run(build(settings), name=APPLICATION, route_prefix=None)


async def open_ray_engine(
    address: str,
    local: ReplicaSettings,
    config: EngineConfig,
    voice_store: Path | None = None,
    routing: StreamRouter | None = None,
) -> ClusterEngine:
    """The replicas of a cluster as an engine.

    address: "auto" for the cluster that this machine belongs to, "HOST:PORT" for its head, or "local" for a
    cluster of this gateway with one replica of ``local``. voice_store: of the gateway's enrolled voices.
    Raises MissingExtra, BundleError and BadRequest.
    """
    if importlib.util.find_spec("ray") is None:
        raise MissingExtra("the executor ray", "ray")
    check_address(address)
    replicas = RayReplicas(DiscoverySettings(address, local))
    return await ClusterEngine.connect(
        replicas, config, voice_store=voice_store, within_s=60.0, routing=routing
    )
