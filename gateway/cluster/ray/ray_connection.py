"""Joins a Ray cluster: one that runs, or one of this process alone. Imported only where ray is used."""

import ray
from ray import serve
from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available

from ....tts_engine.errors import BundleError
from .application import APPLICATION, build
from .finding.head_address import check_head
from .finding.replica_directory import check_address
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
