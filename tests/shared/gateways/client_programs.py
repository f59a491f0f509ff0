"""Client programs of other projects, run against a gateway in environments that have their packages.

An environment is created once in .venv-peers, sees the packages of .venv and contains only those that differ.
Clients whose packages suit each other share one: installing takes longer than most of their cases. Without a
network it cannot be created, and the test is skipped. ``python -m shared.gateways.client_programs`` creates
those that are shared before a test needs them.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[3]
ENVIRONMENTS = ROOT / ".venv-peers"
TIMEOUT_S = 300.0
_SERVER = ROOT / "tests" / "peers" / "server.py"
# By folder, what is installed together; any other requirement has a folder of its own.
_PYTHON_CLIENTS: Final[Mapping[str, Sequence[str]]] = {
    "python-clients": (
        "openai[realtime]==3.54.0",
        "openai-agents[voice]==0.24.0",
        "dashscope==2.0.2",
        "elevenlabs==2.78.0",
        "cartesia[websockets]==4.2.0",
        "deepgram-sdk==7.17.0",
        *(
            f"livekit-plugins-{service}==1.8.9"
            for service in ("openai", "elevenlabs", "cartesia", "deepgram", "inworld")
        ),
        "schemathesis==4.32.5",
    ),
    "older-python-clients": ("openai==1.109.1", "dashscope==1.25.24"),
}
_NODE_CLIENTS: Final = (
    "ws@8.23.0",  # of OpenAI's and Cartesia's SDKs
    "openai@7.57.0",
    "ai@7.0.173",
    "@ai-sdk/openai@4.0.118",
    "@elevenlabs/elevenlabs-js@2.73.0",
    "@cartesia/cartesia-js@4.2.0",
    "@deepgram/sdk@5.13.0",
    "@pipecat-ai/client-js@1.13.1",
    "@pipecat-ai/small-webrtc-transport@1.10.8",
    "esbuild@0.28.2",
    "axe-core@4.14.1",
)


@contextmanager
def run_gateway(folder: Path) -> Iterator[dict[str, str]]:
    """Run a gateway with keys over the stand-in backend; yield its URL and its keys."""
    command = [sys.executable, str(_SERVER), str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
            process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()  # does nothing to one that has ended
    assert process.returncode == 0


def python_with(requirement: str, base: str = sys.executable) -> str:
    """Return a Python with the requirement, and all packages of this one if that is its base."""
    shared = _environment_of(requirement) if base == sys.executable else None
    name, requirements = shared or (requirement.replace("==", "-"), [requirement])
    folder = ENVIRONMENTS / name
    python = folder / "bin" / "python"
    with _made_once(folder, requirements) as is_made:
        if not is_made:
            subprocess.run([base, "-m", "venv", "--clear", "--without-pip", str(folder)], check=True)
            if base == sys.executable:
                _see_packages_of_this_python(python)
            pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
            options = ["--no-compile", "--progress-bar", "off"]
            install([*pip, "--python", str(python), "install", *options, *requirements])
    return str(python)


def _environment_of(requirement: str) -> tuple[str, Sequence[str]] | None:
    """The shared environment that has a requirement, with or without its extras."""
    for name, requirements in _PYTHON_CLIENTS.items():
        if requirement in requirements or requirement in map(_without_extras, requirements):
            return name, requirements
    return None


def _without_extras(requirement: str) -> str:
    return re.sub(r"\[.*]", "", requirement)


@contextmanager
def _made_once(folder: Path, packages: Sequence[str]) -> Iterator[bool]:
    """Whether the folder has the packages; otherwise the block installs them, while other processes wait."""
    ENVIRONMENTS.mkdir(exist_ok=True)
    mark, wanted = folder / ".made", "\n".join(packages)
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        is_made = mark.is_file() and mark.read_text() == wanted
        yield is_made
        if not is_made:
            mark.write_text(wanted)


def _see_packages_of_this_python(python: Path) -> None:
    program = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout
    site_line = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    Path(packages.strip(), "beside.pth").write_text(site_line)


def run_python_program(requirement: str, program: Path, server: tuple[str, str, str]) -> int:
    """Run a program with ``name==version``, the version that it reports; returns its passed cases."""
    return _run([python_with(requirement), str(program), *server], requirement.rpartition("==")[2])


def run_pipecat_program(program: Path, server: tuple[str, str, str]) -> int:
    """Run a program with the installed Pipecat; returns its passed cases."""
    pytest.importorskip("pipecat", reason="needs the extra: make test EXTRAS=dev,stt,pipecat")
    return _run([sys.executable, str(program), *server], version("pipecat-ai"))


def run_requests_program(program: Path, server: tuple[str, str, str]) -> int:
    """Run a program that sends a client's requests with httpx; returns its passed cases."""
    return _run([sys.executable, str(program), *server], version("httpx"))


def run_node_program(
    packages: str, program: Path, server: tuple[str, str, str], certificate: Path | None = None
) -> int:
    """Run a program for Node with ``name@version``, the last of which it reports; returns its passed cases.

    Names are separated by spaces. ``certificate`` is one that Node trusts besides those of the system.
    """
    environment = {"NODE_EXTRA_CA_CERTS": str(certificate)} if certificate else {}
    command = ["node", str(node_program(packages, program)), *server]
    return _run(command, packages.rpartition("@")[2], environment)


def node_program(packages: str, program: Path) -> Path:
    """Return a copy of a program for Node beside the packages, from where Node resolves its imports."""
    return Path(shutil.copy(program, node_packages(packages) / f"{program.parent.name}-{program.name}"))


def node_packages(packages: str) -> Path:
    """Return the folder in whose ``node_modules`` the packages are; skips the test if they cannot be had."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("Node is not installed")
    name, wanted = f"node-{packages.replace('/', '-').replace(' ', '+')}", tuple(packages.split())
    if set(wanted) <= set(_NODE_CLIENTS):
        name, wanted = "node-clients", _NODE_CLIENTS
    place = ENVIRONMENTS / name
    with _made_once(place, wanted) as is_made:
        if not is_made:
            place.mkdir(exist_ok=True)
            (place / "package.json").write_text('{"private": true}')
            npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", *wanted]
            install(npm, cwd=place)
    return place


def install(command: list[str], cwd: Path | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=600)
    if done.returncode:
        pytest.skip(f"{command[-1]} cannot be installed; is there a network? {done.stderr[-300:]}")


def _run(command: list[str], package_version: str, environment: Mapping[str, str] | None = None) -> int:
    all_variables = {**os.environ, **(environment or {})}
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=all_variables)
    assert done.returncode == 0, done.stderr[-4_000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["version"] == package_version
    return len(result["passed"])


def install_all() -> None:
    """Create the environments that clients share."""
    for requirements in _PYTHON_CLIENTS.values():
        python_with(requirements[0])
    node_packages(" ".join(_NODE_CLIENTS))


if __name__ == "__main__":
    install_all()
