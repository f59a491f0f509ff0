"""OpenAI's clients, unmodified, with the base URL changed: SDKs in Python and Node, LiveKit's and Pipecat's.
And schemathesis, which asks whatever the OpenAPI document allows and forbids, of every API of the server.

Each runs as a program of its own in an environment that is made once, beside the checkout's own: it sees what
.venv has and holds only what the client wants otherwise. Where one cannot be made, there is no network.
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
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    command = [sys.executable, str(PROGRAMS / "server.py"), str(tmp_path_factory.mktemp("house"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0


@pytest.fixture
def server(house: dict[str, str]) -> tuple[str, str, str]:
    return house["url"], house["key"], house["poor_key"]


def python_with(requirement: str) -> str:
    """A Python that has the requirement and, apart from that, what this one has."""
    place = ENVIRONMENTS / requirement.replace("==", "-")
    python = place / "bin" / "python"
    made = place / ".made"
    if not made.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(place)], check=True)
        ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
        packages = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout
        beside = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
        Path(packages.strip(), "beside.pth").write_text(beside)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", str(python)]
        install([*pip, "install", "--progress-bar", "off", requirement])
        made.touch()
    return str(python)


def node_with(package: str, place: Path) -> str:
    """A folder with the package in it, for Node."""
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
        pytest.skip(f"{command[-1]} cannot be installed; is the network off? {done.stderr[-300:]}")


def passed(command: list[str], server: tuple[str, str, str]) -> dict[str, Any]:
    """What the program prints; its traceback fails the test."""
    done = subprocess.run([*command, *server], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr[-4_000:]
    cases: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return cases


@pytest.mark.parametrize(("version", "cases"), [("1.109.1", 13), ("3.54.0", 14)])
def test_openais_python_sdk(version: str, cases: int, server: tuple[str, str, str]) -> None:
    python = python_with(f"openai=={version}")
    told = passed([python, str(PROGRAMS / "sdk.py")], server)
    assert told["version"] == version
    assert len(told["passed"]) == cases


def test_openais_node_sdk(server: tuple[str, str, str]) -> None:
    place = ENVIRONMENTS / "node-openai-7.57.0"
    node = node_with("openai@7.57.0", place)
    # An import is looked up from where the file lies.
    program = Path(shutil.copy(PROGRAMS / "sdk.mjs", place / "sdk.mjs"))
    told = passed([node, str(program)], server)
    assert (told["version"], len(told["passed"])) == ("7.57.0", 10)


def test_livekits_plugin(server: tuple[str, str, str]) -> None:
    python = python_with("livekit-plugins-openai==1.8.9")
    told = passed([python, str(PROGRAMS / "livekit_tts.py")], server)
    assert (told["version"], len(told["passed"])) == ("1.8.9", 4)


def test_pipecats_service(server: tuple[str, str, str]) -> None:
    pytest.importorskip("pipecat", reason="needs the extra: pip install 'vivavoce[pipecat]'")
    told = passed([sys.executable, str(PROGRAMS / "pipecat_tts.py")], server)
    assert len(told["passed"]) == 3


def test_schemathesis_finds_no_answer_that_is_not_documented(house: dict[str, str], tmp_path: Path) -> None:
    url, key = house["url"], house["admin_key"]
    python = Path(python_with("schemathesis==4.32.5"))
    checks = "not_a_server_error status_code content_type response_schema response_headers".split()
    named = [check if check.startswith("not") else f"{check}_conformance" for check in checks]
    command = [
        *(str(python.with_name("schemathesis")), "run", f"{url}/openapi.json"),
        *("--header", f"Authorization: Bearer {key}", "--checks", ",".join(named)),
        *("--phases", "examples,coverage,fuzzing,stateful", "--max-examples", "12", "--no-color"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=tmp_path)
    paths = httpx.get(f"{url}/openapi.json").json()["paths"]
    count = sum(len(methods) for methods in paths.values()) - 1
    assert done.returncode == 0, done.stdout[-4_000:]
    assert f"{count} selected / {count} total" in done.stdout  # all but /openapi.json, which it has read
