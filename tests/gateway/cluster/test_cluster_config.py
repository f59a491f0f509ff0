"""Configuration files of a cluster: what is refused, and with which sentence."""

from pathlib import Path

import pytest

pytest.importorskip("ray", reason="the extra ray is not installed")

import yaml

from vivavoce.gateway.cluster.ray.cluster_config import (
    ReplicaDemand,
    check_resources,
    demands,
    read_cluster_config,
)
from vivavoce.gateway.cluster.ray.replica_settings import ReplicaSettings
from vivavoce.tts_engine.errors import BadRequest

APPLICATION = """
proxy_location: Disabled
applications:
  - name: vivavoce
    import_path: vivavoce.gateway.cluster.ray.application:build
    route_prefix: null
    args: {args}
    deployments:
      - name: voice
        {deployment}
"""


def read(tmp_path: Path, args: str = "{bundle: default}", deployment: str = "num_replicas: 2") -> object:
    file = tmp_path / "cluster.yaml"
    file.write_text(APPLICATION.format(args=args, deployment=deployment))
    return read_cluster_config(file)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[1", "not YAML"),
        ("- 1", "got list; allowed is a table"),
        ("applications: 3", "applications: "),
    ],
)
def test_a_file_that_serve_would_refuse_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(text)
    with pytest.raises(BadRequest) as error:
        read_cluster_config(file)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="cannot read it"):
        read_cluster_config(tmp_path / "none.yaml")


@pytest.mark.parametrize("args", ["{bundel: default}", "{max_streams: 0}", "{precision: fp8}"])
def test_wrong_settings_of_a_replica_are_found_before_they_are_deployed(tmp_path: Path, args: str) -> None:
    with pytest.raises(BadRequest, match=args[1:].partition(":")[0]):
        read(tmp_path, args)


def test_stages_that_are_apart_have_deployments_of_their_own(tmp_path: Path) -> None:
    file = Path(__file__).parents[3] / "examples/deploy/cosyvoice_stages.yaml"
    config = read_cluster_config(file)
    assert [(each.deployment, each.replicas) for each in demands(config)] == [("decode", 1), ("render", 2)]
    with pytest.raises(BadRequest, match=r"deployment 'voice'; .* apart there is decode and render"):
        read(tmp_path, "{bundle: /voices, stages: apart}")
    with pytest.raises(BadRequest, match="stages apart need a CosyVoice bundle"):
        read(tmp_path, "{stages: apart}")
    with pytest.raises(BadRequest, match="decode and render and enrolment"):
        read(tmp_path, "{bundle: /voices, stages: apart, enrolment: apart}")
    with pytest.raises(BadRequest, match="the packaged voice clones no voices"):
        read(tmp_path, "{enrolment: apart}")


@pytest.mark.parametrize(
    ("deployment", "replicas", "resources"),
    [
        ("num_replicas: 2", 2, {"CPU": 1.0}),
        ("ray_actor_options: {num_cpus: 0.5, num_gpus: 0.25}", 1, {"CPU": 0.5, "GPU": 0.25}),
        ("ray_actor_options: {num_cpus: 0, resources: {mig-1g: 1}}", 1, {"mig-1g": 1.0}),
        ("autoscaling_config: {min_replicas: 3, max_replicas: 9}", 3, {"CPU": 1.0}),
        ("autoscaling_config: {min_replicas: 0, initial_replicas: 2, max_replicas: 9}", 2, {"CPU": 1.0}),
    ],
)
def test_demands_are_read_from_the_file(
    tmp_path: Path, deployment: str, replicas: int, resources: dict[str, float]
) -> None:
    config = read(tmp_path, deployment=deployment)
    assert list(demands(config)) == [ReplicaDemand("voice", replicas, resources)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("demand", "sentence"),
    [
        (ReplicaDemand("voice", 1, {"CPU": 64}), "needs 64 CPU; the largest of 2 nodes has 8"),
        (ReplicaDemand("voice", 1, {"GPU": 1}), "needs 1 GPU; the largest of 2 nodes has 0"),
        (ReplicaDemand("voice", 4, {"CPU": 5}), "4 replicas are wanted; 2 nodes have room for 2"),
        (ReplicaDemand("voice", 25, {"CPU": 0.5}), "25 replicas are wanted; 2 nodes have room for 24"),
    ],
)
def test_replicas_that_never_fit_are_refused(demand: ReplicaDemand, sentence: str) -> None:
    with pytest.raises(BadRequest) as error:
        check_resources(
            [demand], [{"CPU": 4.0}, {"CPU": 8.0}] if demand.replicas != 4 else [{"CPU": 5.0}] * 2
        )
    assert sentence in str(error.value)


def test_replicas_that_fit_are_accepted() -> None:
    wanted = [ReplicaDemand("a", 2, {"CPU": 4.0, "GPU": 0.5}), ReplicaDemand("b", 4, {"CPU": 1.0})]
    check_resources(wanted, [{"CPU": 4.0}, {"CPU": 8.0, "GPU": 1.0}])


def test_the_digest_tells_bundles_and_settings_apart(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(b"x" * 3_000_000)
    settings = ReplicaSettings(bundle=str(tmp_path))
    first = settings.digest()
    assert settings.digest() == first == ReplicaSettings(bundle=str(tmp_path), max_streams=7).digest()
    assert ReplicaSettings(bundle=str(tmp_path), locale="en-GB").digest() != first
    assert ReplicaSettings().digest() != first
    (tmp_path / "a.onnx").write_bytes(b"x" * 2_999_999 + b"y")
    assert settings.digest() != first


def test_the_files_to_copy_are_accepted(tmp_path: Path) -> None:
    examples = Path(__file__).parents[3] / "examples" / "deploy"
    wanted = ReplicaDemand("voice", 2, {"CPU": 1.0})
    assert list(demands(read_cluster_config(examples / "cluster.yaml"))) == [wanted]
    first = next(yaml.safe_load_all((examples / "kuberay.yaml").read_text()))
    (tmp_path / "serve.yaml").write_text(first["data"]["cluster.yaml"])
    assert list(demands(read_cluster_config(tmp_path / "serve.yaml"))) == [wanted]
