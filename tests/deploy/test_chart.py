"""The Helm chart, linted and rendered by Helm's own library, against the schemas of Kubernetes."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from vivavoce import __version__
from vivavoce.gateway.cli.configuration.setting_keys import SETTING_KEYS
from vivavoce.gateway.configuration.settings import Settings

helm = pytest.importorskip("helm_python")
kubernetes = pytest.importorskip("kubernetes_validate")

CHART = Path(__file__).parents[2] / "examples" / "deploy" / "chart"
KUBERNETES = "1.33"
EVERYTHING: dict[str, Any] = {
    "autoscaling": {"enabled": True},
    "ingress": {"enabled": True, "className": "nginx"},
    "podMonitor": {"enabled": True},
    "persistence": {"existingClaim": "voices"},
    "settingsSecret": "vivavoce-settings",
    "resources": {"limits": {"nvidia.com/mig-1g.10gb": 1}},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    "ray": {"enabled": True, "workers": {"resources": {"limits": {"nvidia.com/gpu": 1}}}},
}
OF_OPERATORS = {"PodMonitor", "RayService"}  # their schemas are not those of Kubernetes


def manifests(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the objects of a release by kind."""
    rendered = helm.Chart.load(str(CHART)).render(values, name="test")
    texts = [text for name, text in rendered.items() if name.endswith(".yaml")]
    found = [one for text in texts for one in yaml.safe_load_all(text) if one is not None]
    assert len({one["kind"] for one in found}) == len(found)
    return {one["kind"]: one for one in found}


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_helm_has_nothing_to_say_about_the_chart(values: dict[str, Any]) -> None:
    report = helm.lint(str(CHART), values, strict=True)
    assert report["errors"] in ([], None)
    assert [one for one in report["messages"] or [] if one["severity"] > 1] == []


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_every_object_is_one_that_kubernetes_knows(values: dict[str, Any]) -> None:
    for kind, manifest in manifests(values).items():
        if kind not in OF_OPERATORS:
            kubernetes.validate(manifest, KUBERNETES, strict=True)


def test_an_object_with_a_wrong_field_is_found() -> None:
    service = manifests({})["Service"]
    service["spec"]["port"] = 80
    with pytest.raises(kubernetes.ValidationError):
        kubernetes.validate(service, KUBERNETES, strict=True)


def test_the_defaults_are_gateways_a_service_and_a_budget() -> None:
    assert manifests({}).keys() == {"Deployment", "Service", "PodDisruptionBudget"}
    assert manifests(EVERYTHING).keys() == OF_OPERATORS | {
        *("Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler", "Ingress")
    }


def test_a_pod_gets_its_settings_and_ends_after_the_calls() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert values["settings"].keys() <= {key.name for key in SETTING_KEYS}
    pod = manifests({"settings": {"http.public_url": "https://v.example"}})["Deployment"]["spec"]["template"][
        "spec"
    ]
    (gateway,) = pod["containers"]
    variables = {one["name"]: one["value"] for one in gateway["env"]}
    assert variables["VIVAVOCE_HTTP_PUBLIC_URL"] == "https://v.example"
    drain_s = float(variables["VIVAVOCE_SERVER_DRAIN_S"])
    assert drain_s > Settings().server.drain_s
    assert pod["terminationGracePeriodSeconds"] > drain_s + values["preStopS"]
    assert gateway["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert gateway["securityContext"]["readOnlyRootFilesystem"] is True


def test_gateways_of_a_ray_cluster_join_it_and_load_no_voice() -> None:
    objects = manifests(EVERYTHING)
    (gateway,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert "ray start --address=test-head-svc:6379 --num-cpus=0" in gateway["args"][0]
    assert gateway["image"].endswith(":cuda")
    service = objects["RayService"]["spec"]
    (application,) = yaml.safe_load(service["serveConfigV2"])["applications"]
    assert application["import_path"] == "vivavoce.gateway.cluster.ray.application:build"
    (workers,) = service["rayClusterConfig"]["workerGroupSpecs"]
    (worker,) = workers["template"]["spec"]["containers"]
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == 1


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == __version__
