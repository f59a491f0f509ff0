"""The image and the compose file: their packages, settings, variables and files exist."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from vivavoce.adapters.ice_server import IceServer
from vivavoce.gateway.cli.configuration.settings_loader import load_settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples" / "deploy"
DOCKERFILE = (DEPLOY / "image" / "Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "docker-compose.yml").read_text(encoding="utf-8"))
EXTRAS = {"cpu": ("onnx", "grpc", "redis", "otel"), "cuda": ("cosyvoice", "ray", "grpc", "redis", "otel")}
VALUES = {
    "DOMAIN": "voice.example.org",
    "PUBLIC_IP": "192.0.2.10",
    "TURN_SECRET": "0123456789abcdef",
    "GRAFANA_PASSWORD": "a password",
}


def expanded(text: str) -> str:
    """As compose replaces variables."""
    return re.sub(r"\$\{(\w+)(?::-([^}]*))?\}", lambda found: VALUES.get(found[1], found[2] or ""), text)


@pytest.mark.parametrize("target", EXTRAS)
def test_the_lock_file_has_every_dependency_in_a_version_that_is_allowed(target: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in EXTRAS[target])]
    text = (DEPLOY / "image" / f"requirements-{target}.txt").read_text(encoding="utf-8")
    pinned = {
        name: Version(version) for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)
    }
    environment = {"python_version": "3.13", "python_full_version": "3.13.5", "extra": ""}
    for requirement in map(Requirement, (one for group in groups for one in group)):
        if requirement.marker is None or requirement.marker.evaluate(environment):
            assert pinned[requirement.name.lower()] in requirement.specifier, requirement
    assert text.count("--hash=sha256:") >= len(pinned)
    assert "torch" in pinned or target == "cpu"


def test_both_targets_serve_as_a_user_that_is_not_root() -> None:
    serving = DOCKERFILE[DOCKERFILE.index("AS serving") :]
    for stage in serving.split("FROM serving AS")[1:]:
        assert re.findall(r"^USER (.*)$", stage, re.MULTILINE) == ["10001"]
        assert "RUN" not in stage[stage.index("USER") :]
    assert "STOPSIGNAL SIGTERM" in serving and "HEALTHCHECK" in serving
    assert re.findall(r"^FROM serving AS (\w+)$", DOCKERFILE, re.MULTILINE) == ["cuda", "cpu"]


def test_the_image_for_cards_has_cuda_and_a_compiler_for_its_kernels() -> None:
    text = (DEPLOY / "image" / "requirements-cuda.txt").read_text(encoding="utf-8")
    pinned = set(re.findall(r"^([\w-]+)==", text, re.MULTILINE))
    assert {"nvidia-cublas", "nvidia-cudnn-cu13", "triton"} <= pinned
    cuda = DOCKERFILE[DOCKERFILE.index("FROM serving AS cuda") : DOCKERFILE.index("FROM serving AS cpu")]
    assert re.search(r"install .* gcc libc6-dev libpython3-dev", cuda)


def test_the_variables_of_the_image_and_of_compose_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in re.findall(r"(VIVAVOCE_\w+)=(\S+)", DOCKERFILE):
        monkeypatch.setenv(name, value)
    gateway = COMPOSE["services"]["gateway"]
    for name, value in gateway["environment"].items():
        monkeypatch.setenv(name, expanded(value))
    settings = load_settings()
    assert settings.http.public_url == "https://voice.example.org"
    assert settings.http.trusted_proxies == (
        COMPOSE["services"]["caddy"]["networks"]["inside"]["ipv4_address"],
    )
    (server,) = settings.browser.ice_servers
    urls = ("turn:voice.example.org:3478", "turn:voice.example.org:3478?transport=tcp")
    assert server.server() == IceServer(urls, secret=VALUES["TURN_SECRET"])
    assert gateway["read_only"] is True
    assert float(gateway["stop_grace_period"].removesuffix("s")) > settings.server.drain_s


def test_compose_asks_for_the_variables_of_the_example_and_for_files_that_exist() -> None:
    text = (DEPLOY / "docker-compose.yml").read_text(encoding="utf-8")
    example = (DEPLOY / "example.env").read_text(encoding="utf-8")
    named = set(re.findall(r"^(\w+)=", example, re.MULTILINE))
    assert set(re.findall(r"\$\{(\w+)", text)) == named
    sources = [
        volume.partition(":")[0]
        for service in COMPOSE["services"].values()
        for volume in service.get("volumes", ())
    ]
    assert [one for one in sources if one.startswith(".") and not (DEPLOY / one).exists()] == []
    assert {one for one in sources if not one.startswith(".")} == COMPOSE["volumes"].keys()


def test_coturn_relays_to_the_gateway_and_nowhere_else() -> None:
    command = COMPOSE["services"]["coturn"]["command"]
    address = COMPOSE["services"]["gateway"]["networks"]["inside"]["ipv4_address"]
    assert f"--allowed-peer-ip={address}" in command
    assert "--denied-peer-ip=0.0.0.0-255.255.255.255" in command


def test_prometheus_reads_the_gateway_with_a_key_and_grafana_has_the_dashboard() -> None:
    scrape = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text(encoding="utf-8"))
    (job,) = scrape["scrape_configs"]
    assert job["job_name"] == "vivavoce"
    assert job["static_configs"][0]["targets"] == ["gateway:8080"]
    assert COMPOSE["services"]["prometheus"]["secrets"] == [
        Path(job["authorization"]["credentials_file"]).name
    ]
    provider = yaml.safe_load(
        (DEPLOY / "grafana" / "dashboards" / "vivavoce.yaml").read_text(encoding="utf-8")
    )
    folder = provider["providers"][0]["options"]["path"]
    assert f"../grafana:{folder}:ro" in COMPOSE["services"]["grafana"]["volumes"]
