"""A Ray cluster of this process with replicas of the stand-in voice, or with stages that are apart."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import ray
from ray import serve

from shared.cluster.ray_replicas import CostlySettings
from shared.voices.cosyvoice_bundles import write_random_bundle
from vivavoce.gateway.cluster.ray.application import APPLICATION
from vivavoce.gateway.cluster.ray.operations import bring_up
from vivavoce.gateway.cluster.ray.ray_connection import LOOPBACK

Deployments = Mapping[str, Mapping[str, object]]  # by name, what the configuration file says of each


@contextmanager
def voice_replicas(settings: CostlySettings, deployments: Deployments) -> Iterator[None]:
    """Replicas of the stand-in voice: the deployment "voice"."""
    with _deployed("shared.cluster.ray_replicas:build", settings.model_dump(mode="json"), deployments):
        yield


@contextmanager
def stages_apart(
    deployments: Deployments, *, render_step_s: float, closings: Path | None = None
) -> Iterator[None]:
    """Replicas of a small CosyVoice bundle: "decode", and "render"; the rest as of ``StagesApart``."""
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "bundle"
        write_random_bundle(bundle, 2, "tiny", 1)
        settings = {"bundle": str(bundle), "stages": "apart", "render_step_s": render_step_s}
        noted = {"closings": str(closings)} if closings else {}
        with _deployed("shared.cluster.ray_stages:build", settings | noted, deployments):
            yield


@contextmanager
def _deployed(builder: str, args: Mapping[str, object], deployments: Deployments) -> Iterator[None]:
    """Deploy as ``cluster up`` does."""
    application = {
        **{"name": APPLICATION, "import_path": builder, "route_prefix": None, "args": args},
        "deployments": [
            {"name": name, "ray_actor_options": {"num_cpus": 0.1}, **given}
            for name, given in deployments.items()
        ],
    }
    ray.init(address="local", include_dashboard=True, dashboard_port=0, log_to_driver=False)
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "cluster.yaml"  # JSON is YAML
            file.write_text(json.dumps({"proxy_location": "Disabled", "applications": [application]}))
            bring_up(file, "auto", LOOPBACK)
        yield
    finally:
        serve.shutdown()
        ray.shutdown()
