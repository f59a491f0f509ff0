"""Unmodified clients of OpenAI's API with only the base URL changed, and schemathesis on documented routes.

The clients are OpenAI's SDKs for Python and Node, LiveKit's plugin and Pipecat's service. schemathesis sends
requests that the OpenAPI document allows and forbids, and checks the answers against it. Each runs in an
environment of its own, which is created once in .venv-peers, sees the packages of .venv and contains only
those that differ. Without a network the environment cannot be created, and the test is skipped.
"""

import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).with_name("openai")
ENVIRONMENTS = ROOT / ".venv-peers"
TIMEOUT_S = 300.0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    command = [sys.executable, str(PROGRAMS / "server.py"), str(tmp_path_factory.mktemp("gateway"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0


@pytest.fixture
def server(gateway: dict[str, str]) -> tuple[str, str, str]:
    return gateway["url"], gateway["key"], gateway["poor_key"]


def python_with(requirement: str) -> str:
    """Return a Python with the requirement and all packages of this one."""
    folder = ENVIRONMENTS / requirement.replace("==", "-")
    python = folder / "bin" / "python"
    done_mark = folder / ".made"
    if not done_mark.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)], check=True)
        program = "import sysconfig; print(sysconfig.get_path('purelib'))"
        packages = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout
        site_line = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
        Path(packages.strip(), "beside.pth").write_text(site_line)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", str(python)]
        install([*pip, "install", "--progress-bar", "off", requirement])
        done_mark.touch()
    return str(python)


def node_with(package: str, place: Path) -> str:
    """Install the package for Node in a folder; returns the command."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("Node is not installed")
    if not (place / "node_modules" / ".made").exists():
        place.mkdir(parents=True, exist_ok=True)
        (place / "package.json").write_text('{"private": true}')
        npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", package]
        install(npm, cwd=place)
        (place / "node_modules" / ".made").touch()
    return "node"


def install(command: list[str], cwd: Path | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=600)
    if done.returncode:
        pytest.skip(f"{command[-1]} cannot be installed; is there a network? {done.stderr[-300:]}")


def run_client(command: list[str], server: tuple[str, str, str]) -> dict[str, Any]:
    """Return what the program prints; fails with its traceback."""
    done = subprocess.run([*command, *server], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr[-4_000:]
    cases: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return cases


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
        *("--phases", "examples,coverage,fuzzing,stateful", "--max-examples", "12", "--no-color"),
        *("--request-timeout", "150"),  # a call answers when a text has been heard; some are a minute long
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=tmp_path)
    paths = httpx.get(f"{url}/openapi.json").json()["paths"]
    count = sum(len(methods) for methods in paths.values()) - 1
    assert done.returncode == 0, done.stdout[-4_000:]
    assert f"{count} selected / {count} total" in done.stdout  # every operation except /openapi.json
