"""The manifests for KubeRay: schemas of Kubernetes, and the probes that KubeRay adds to Ray's containers.

Source: KubeRay 1.3, ray-operator/controllers/ray/common/pod.go: ``initLivenessAndReadinessProbe``.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

helm = pytest.importorskip("helm_python")
kubernetes = pytest.importorskip("kubernetes_validate")

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"
KUBERNETES = "1.33"
RAYLET_PROBE = "wget -T 2 -q -O- http://localhost:52365/api/local_raylet_healthz | grep success"
SERVE_PROBE = "wget -T 2 -q -O- http://localhost:8000/-/healthz | grep success"


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kuberay.yaml").read_text()))


def charts_documents() -> list[dict[str, Any]]:
    rendered = helm.Chart.load(str(DEPLOY / "chart")).render(
        {"ray": {"enabled": True}, "keysSecret": "keys"}, name="test"
    )
    texts = [text for name, text in rendered.items() if name.endswith(".yaml")]
    return [one for text in texts for one in yaml.safe_load_all(text) if one is not None]


def ray_pods(documents: list[dict[str, Any]]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The kind of the owner, the group and the pod template of each group of Ray's pods."""
    for document in documents:
        if document["kind"] in ("RayCluster", "RayService"):
            spec = document["spec"].get("rayClusterConfig", document["spec"])
            yield document["kind"], "head", spec["headGroupSpec"]["template"]
            for group in spec["workerGroupSpecs"]:
                yield document["kind"], "worker", group["template"]


def readiness_of(owner: str, group: str, container: dict[str, Any]) -> list[str]:
    """What must answer before the pod is ready; the operator adds it to a container without a probe."""
    if "readinessProbe" in container:
        return [str(container["readinessProbe"])]
    serves = owner == "RayService" and group == "worker"
    return [RAYLET_PROBE, SERVE_PROBE] if serves else [RAYLET_PROBE]


def test_every_object_is_one_that_kubernetes_knows() -> None:
    kinds = [each["kind"] for each in documents()]
    assert sorted(kinds) == sorted(
        [
            *("ConfigMap", "RayCluster", "Job", "Deployment", "Service"),
            *("PodDisruptionBudget", "PodDisruptionBudget"),
        ]
    )
    for each in documents():
        if each["kind"] != "RayCluster":
            kubernetes.validate(each, KUBERNETES, strict=True)


@pytest.mark.parametrize("given", [documents, charts_documents])
def test_ray_s_pods_are_pods_and_wait_for_no_proxy(given: Any) -> None:
    pods = list(ray_pods(given()))
    assert {group for _, group, _ in pods} == {"head", "worker"}
    for owner, group, template in pods:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": group}, "spec": template["spec"]}
        kubernetes.validate(pod, KUBERNETES, strict=True)
        probes = readiness_of(owner, group, template["spec"]["containers"][0])
        assert not any("8000" in probe for probe in probes)  # proxy_location is Disabled
        assert any("52365" in probe for probe in probes)


@pytest.mark.parametrize("given", [documents, charts_documents])
def test_a_worker_drains_its_streams_before_it_gets_sigterm(given: Any) -> None:
    for _, group, template in ray_pods(given()):
        if group == "worker":
            container = template["spec"]["containers"][0]
            command = container["lifecycle"]["preStop"]["exec"]["command"]
            assert command[:3] == ["vivavoce", "cluster", "drain"]
            assert float(command[-1]) < template["spec"]["terminationGracePeriodSeconds"]


def test_the_operator_without_our_probe_would_ask_the_proxy() -> None:
    assert SERVE_PROBE in readiness_of("RayService", "worker", {})
