"""Ray Serve's configuration file of a cluster: read and checked before it is deployed.

Source: the schema of Ray Serve 2.60, ``ray.serve.schema.ServeDeploySchema``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from pydantic import ValidationError
from ray.serve.schema import ServeApplicationSchema, ServeDeploySchema

from ....tts_engine.errors import BadRequest
from .replica_settings import ReplicaSettings

BUILDER = "vivavoce.gateway.cluster.ray.application:build"
_RAY_NAMES = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}

Resources = Mapping[str, float]  # by Ray's name, such as CPU, GPU or a name of one's own


@dataclass(frozen=True, slots=True)
class ReplicaDemand:
    """The replicas of a deployment, and what each of them needs."""

    deployment: str
    replicas: int  # to begin with
    resources: Resources


def read_cluster_config(file: Path) -> ServeDeploySchema:
    """Read a file. Raises BadRequest for one that Serve or a replica would refuse."""
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadRequest(f"{file}: cannot read it: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"{file}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise BadRequest(f"{file}: got {type(content).__name__}; allowed is a table with applications")
    try:
        config = ServeDeploySchema.model_validate(content)
        for application in config.applications:
            if application.import_path == BUILDER:
                _check_deployments(file, application, ReplicaSettings.model_validate(application.args))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise BadRequest(f"{file}: {place or 'the file'}: {first['msg']}") from None
    return config


def _check_deployments(file: Path, application: ServeApplicationSchema, settings: ReplicaSettings) -> None:
    """Raise BadRequest for a deployment that the application does not have."""
    for deployment in application.deployments:
        if deployment.name not in settings.deployments:
            raise BadRequest(
                f"{file}: deployment {deployment.name!r}; with the stages {settings.stages} "
                f"there is {' and '.join(settings.deployments)}"
            )


def demands(config: ServeDeploySchema) -> Iterator[ReplicaDemand]:
    """What the deployments that the file lists need."""
    for application in config.applications:
        for deployment in application.deployments:
            given: dict[str, Any] = deployment.model_dump(exclude_unset=True)
            options = {"num_cpus": 1, **(given.get("ray_actor_options") or {})}
            resources = {name: float(options[key]) for key, name in _RAY_NAMES.items() if options.get(key)}
            resources |= {name: float(count) for name, count in (options.get("resources") or {}).items()}
            yield ReplicaDemand(deployment.name, _initial_replicas(given), resources)


def _initial_replicas(given: Mapping[str, Any]) -> int:
    scaling = given.get("autoscaling_config") or {}
    if scaling:
        return int(scaling.get("initial_replicas") or scaling.get("min_replicas") or 0)
    count = given.get("num_replicas")
    return count if isinstance(count, int) else 1


def check_resources(wanted: Sequence[ReplicaDemand], nodes: Sequence[Resources]) -> None:
    """Raise BadRequest if the nodes can never hold the replicas, which Ray would wait for without an end."""
    free = [dict(node) for node in nodes]
    for demand in wanted:
        for name, count in demand.resources.items():
            most = max((node.get(name, 0.0) for node in nodes), default=0.0)
            if count > most:
                raise BadRequest(
                    f"deployment {demand.deployment}: a replica needs {count:g} {name}; "
                    f"the largest of {len(nodes)} nodes has {most:g}"
                )
        for placed in range(demand.replicas):
            if not _take(free, demand.resources):
                raise BadRequest(
                    f"deployment {demand.deployment}: {demand.replicas} replicas are wanted; "
                    f"{len(nodes)} nodes have room for {placed}"
                )


def _take(free: list[dict[str, float]], resources: Resources) -> bool:
    """Place one replica on the first node that has room."""
    for node in free:
        if all(node.get(name, 0.0) >= count - 1e-9 for name, count in resources.items()):
            for name, count in resources.items():
                node[name] = node.get(name, 0.0) - count
            return True
    return False
