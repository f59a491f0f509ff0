"""Unmodified clients of OpenAI's API with only the base URL changed, and schemathesis on documented routes.

The clients are OpenAI's SDKs for Python and Node, LiveKit's plugin and Pipecat's service. schemathesis sends
requests that the OpenAPI document allows and forbids, and checks the answers against it.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from shared.client_programs import ENVIRONMENTS, TIMEOUT_S, node_with, python_with, run_client, run_gateway

PROGRAMS = Path(__file__).with_name("openai")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with run_gateway(tmp_path_factory.mktemp("gateway")) as addresses:
        yield addresses


@pytest.fixture
def server(gateway: dict[str, str]) -> tuple[str, str, str]:
    return gateway["url"], gateway["key"], gateway["poor_key"]


@pytest.mark.parametrize(("version", "cases"), [("1.109.1", 13), ("3.54.0", 14)])
def test_openais_python_sdk_works(version: str, cases: int, server: tuple[str, str, str]) -> None:
    python = python_with(f"openai=={version}")
    result = run_client([python, str(PROGRAMS / "sdk.py")], server)
    assert result["version"] == version
    assert len(result["passed"]) == cases


def test_openais_node_sdk_works(server: tuple[str, str, str]) -> None:
    place = ENVIRONMENTS / "node-openai-7.57.0"
    node = node_with("openai@7.57.0", place)
    # Node resolves imports from the folder of the file.
    program = Path(shutil.copy(PROGRAMS / "sdk.mjs", place / "sdk.mjs"))
    result = run_client([node, str(program)], server)
    assert (result["version"], len(result["passed"])) == ("7.57.0", 10)


def test_livekits_plugin_works(server: tuple[str, str, str]) -> None:
    python = python_with("livekit-plugins-openai==1.8.9")
    result = run_client([python, str(PROGRAMS / "livekit_tts.py")], server)
    assert (result["version"], len(result["passed"])) == ("1.8.9", 4)


def test_pipecats_service_works(server: tuple[str, str, str]) -> None:
    pytest.importorskip("pipecat", reason="needs the extra: make test EXTRAS=dev,stt,pipecat")
    result = run_client([sys.executable, str(PROGRAMS / "pipecat_tts.py")], server)
    assert len(result["passed"]) == 3


def test_schemathesis_finds_no_undocumented_answer(gateway: dict[str, str], tmp_path: Path) -> None:
    url, key = gateway["url"], gateway["admin_key"]
    python = Path(python_with("schemathesis==4.32.5"))
    names = "not_a_server_error status_code content_type response_schema response_headers".split()
    checks = [name if name.startswith("not") else f"{name}_conformance" for name in names]
    command = [
        *(str(python.with_name("schemathesis")), "run", f"{url}/openapi.json"),
        *("--header", f"Authorization: Bearer {key}", "--checks", ",".join(checks)),
        *("--phases", "examples,coverage,fuzzing,stateful", "--max-examples", "6", "--no-color"),
        *("--request-timeout", "150"),  # a call answers when a text has been heard; some are a minute long
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=tmp_path)
    paths = httpx.get(f"{url}/openapi.json").json()["paths"]
    count = sum(len(methods) for methods in paths.values()) - 1
    assert done.returncode == 0, done.stdout[-4_000:]
    assert f"{count} selected / {count} total" in done.stdout  # every operation except /openapi.json
