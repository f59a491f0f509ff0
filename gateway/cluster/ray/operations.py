"""Operations on a cluster: start it, deploy a configuration, report its state, end the applications."""

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import ray
from ray import serve
from ray._private.authentication.authentication_token_setup import (
    enable_token_auth_by_default,
    ensure_token_if_auth_enabled,
)
from ray._private.services import resolve_ip_for_localhost
from ray.dashboard.modules.serve.sdk import ServeSubmissionClient
from ray.util.state import list_actors

from ....tts_engine.errors import BadRequest, BundleError
from .cluster_config import check_resources, demands, read_cluster_config
from .finding.head_address import DEFAULT_PORT, check_port_is_free
from .ray_connection import join_cluster

_START_TIMEOUT_S = 120
_RAY = Path(sys.executable).with_name("ray")
_REPLICA = "SERVE_REPLICA"  # in the names of Serve's actors
_POLL_S = 1.0
NODE_ENVIRONMENT = {
    # Ray ends nodes, and with them replicas, that cannot reach the head for a minute, which is a short fault.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "3600",
    # A head that is started again begins Serve's controller anew when it finds that the head before it is
    # gone, which took 20 s. A node that refuses connections now is gone after 3 s; one that is slow to
    # answer has 10 s, five times, as before.
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
}


@dataclass(frozen=True, slots=True)
class DeploymentState:
    """A deployment as Serve reports it."""

    application: str
    deployment: str
    status: str
    replicas: dict[str, int]  # by state, such as RUNNING
    message: str


def bring_up(file: Path, address: str, host: str, port: int = DEFAULT_PORT, redis: str | None = None) -> None:
    """Deploy a configuration; with the address "auto", start Ray on this machine first if it does not run.

    host, port: of this machine, where Ray's head listens then. redis: URL of the Redis in which it keeps its
    state. Raises BadRequest and BundleError.
    """
    config = read_cluster_config(file)
    try:
        dashboard = join_cluster(address)
    except BundleError:
        if address != "auto":
            raise
        dashboard = join_cluster(start_head(host, port, redis))
    if not dashboard:
        raise BundleError("the cluster has no dashboard, over which Ray Serve takes a configuration")
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    check_resources(list(demands(config)), nodes)
    ServeSubmissionClient(f"http://{dashboard}").deploy_applications(config.model_dump(exclude_unset=True))


def start_head(host: str, port: int, redis: str | None) -> str:
    """Start Ray on this machine; its address. Raises BundleError and BadRequest.

    Ray's ports are open at all addresses of the machine. So it takes commands with a token only, which is
    made if the user has none, unless RAY_AUTH_MODE says otherwise.
    """
    check_port_is_free(host, port)
    enable_token_auth_by_default()
    ensure_token_if_auth_enabled()
    address = f"{resolve_ip_for_localhost(host)}:{port}"
    command = [str(_RAY), "start", "--head", "--disable-usage-stats", f"--node-ip-address={host}"]
    command.append(f"--port={port}")
    command.append("--dashboard-host=127.0.0.1")  # it starts programs for everyone who reaches it
    environment = os.environ | NODE_ENVIRONMENT | head_environment(redis, address)
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=_START_TIMEOUT_S, env=environment
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        lines = str(error.stderr or error).strip().splitlines()
        raise BundleError(f"Ray did not start: {lines[-1] if lines else error}") from None
    return address


def head_environment(redis: str | None, name: str) -> dict[str, str]:
    """Variables by which a head keeps its state in Redis, and finds it when it is started again.

    name: of the cluster, so that several may share one Redis. Raises BadRequest for the URL.
    """
    if redis is None:
        return {}
    url = urlsplit(redis)
    try:
        port = url.port or DEFAULT_PORT
    except ValueError:
        port = 0
    if url.scheme not in ("redis", "rediss") or not url.hostname or not port:
        raise BadRequest(f"--redis is {redis!r}; allowed is redis://[[USER]:PASSWORD@]HOST[:PORT]")
    scheme = "rediss://" if url.scheme == "rediss" else ""
    variables = {
        "RAY_REDIS_ADDRESS": f"{scheme}{url.hostname}:{port}",
        "RAY_external_storage_namespace": name,
    }
    if url.username:
        variables["RAY_REDIS_USERNAME"] = unquote(url.username)
    if url.password:
        variables["RAY_REDIS_PASSWORD"] = unquote(url.password)
    return variables


def deployment_states(address: str) -> Iterator[DeploymentState]:
    """The deployments of all applications. Raises BundleError and BadRequest."""
    join_cluster(address)
    for name, application in serve.status().applications.items():
        if not application.deployments:
            yield DeploymentState(name, "", str(application.status.value), {}, application.message)
        for deployment, state in application.deployments.items():
            replicas = {str(getattr(key, "value", key)): count for key, count in state.replica_states.items()}
            yield DeploymentState(name, deployment, str(state.status.value), replicas, state.message)


def drain_node(within_s: float, node: str | None = None) -> bool:
    """Have other nodes start replicas in the place of a node's, which end after their streams.

    node: its id; None: this machine's. Returns whether they have ended ``within_s``. Raises BundleError.
    """
    join_cluster("auto")
    node = node or ray.get_runtime_context().get_node_id()
    command = [str(_RAY), "drain-node", "--address", ray.get_runtime_context().gcs_address, "--node-id", node]
    reason = ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "the node is stopped"]
    deadline = ["--deadline-remaining-seconds", str(math.ceil(within_s))]
    done = subprocess.run([*command, *reason, *deadline], capture_output=True, text=True)
    if done.returncode:
        raise BundleError(f"the node is not drained: {done.stderr.strip().splitlines()[-1:]}")
    ends_at = time.monotonic() + within_s
    ours = [("node_id", "=", node), ("state", "=", "ALIVE")]
    while any(_REPLICA in actor.name for actor in list_actors(filters=ours) if actor.name):
        if time.monotonic() > ends_at:
            return False
        time.sleep(_POLL_S)
    return True


def bring_down(file: Path, address: str) -> list[str]:
    """End the applications of a configuration when their streams have ended; their names."""
    config = read_cluster_config(file)
    join_cluster(address)
    running = serve.status().applications
    names = [application.name for application in config.applications if application.name in running]
    for name in names:
        serve.delete(name)
    return names
