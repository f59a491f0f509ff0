"""Operations on a cluster: start it, deploy a configuration, report its state, end the applications."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ray
from ray import serve
from ray.dashboard.modules.serve.sdk import ServeSubmissionClient

from ....tts_engine.errors import BundleError
from .cluster_config import check_resources, demands, read_cluster_config
from .ray_connection import join_cluster

_START_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class DeploymentState:
    """A deployment as Serve reports it."""

    application: str
    deployment: str
    status: str
    replicas: dict[str, int]  # by state, such as RUNNING
    message: str


def bring_up(file: Path, address: str, host: str) -> None:
    """Deploy a configuration; with the address "auto", start Ray on this machine first if it does not run.

    host: address of this machine that Ray listens on. Raises BadRequest and BundleError.
    """
    config = read_cluster_config(file)
    try:
        dashboard = join_cluster(address)
    except BundleError:
        if address != "auto":
            raise
        start_head(host)
        dashboard = join_cluster(address)
    if not dashboard:
        raise BundleError("the cluster has no dashboard, over which Ray Serve takes a configuration")
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    check_resources(list(demands(config)), nodes)
    ServeSubmissionClient(f"http://{dashboard}").deploy_applications(config.model_dump(exclude_unset=True))


def start_head(host: str) -> None:
    """Start Ray on this machine, with all ports on one address. Raises BundleError."""
    ray_program = Path(sys.executable).with_name("ray")
    command = [str(ray_program), "start", "--head", "--disable-usage-stats", f"--node-ip-address={host}"]
    command.append("--dashboard-host=127.0.0.1")  # it starts programs for everyone who reaches it
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_START_TIMEOUT_S)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        lines = str(error.stderr or error).strip().splitlines()
        raise BundleError(f"Ray did not start: {lines[-1] if lines else error}") from None


def deployment_states(address: str) -> Iterator[DeploymentState]:
    """The deployments of all applications. Raises BundleError and BadRequest."""
    join_cluster(address)
    for name, application in serve.status().applications.items():
        if not application.deployments:
            yield DeploymentState(name, "", str(application.status.value), {}, application.message)
        for deployment, state in application.deployments.items():
            replicas = {str(getattr(key, "value", key)): count for key, count in state.replica_states.items()}
            yield DeploymentState(name, deployment, str(state.status.value), replicas, state.message)


def bring_down(file: Path, address: str) -> list[str]:
    """End the applications of a configuration when their streams have ended; their names."""
    config = read_cluster_config(file)
    join_cluster(address)
    running = serve.status().applications
    names = [application.name for application in config.applications if application.name in running]
    for name in names:
        serve.delete(name)
    return names
