"""Client programs of other projects, each run in an environment of its own against a gateway.

An environment is created once in .venv-peers, sees the packages of .venv and contains only those that differ.
Without a network it cannot be created, and the test is skipped.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ENVIRONMENTS = ROOT / ".venv-peers"
TIMEOUT_S = 300.0
_SERVER = ROOT / "tests" / "peers" / "server.py"


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
    folder = ENVIRONMENTS / requirement.replace("==", "-")
    python = folder / "bin" / "python"
    done_mark = folder / ".made"
    if not done_mark.exists():
        subprocess.run([base, "-m", "venv", "--clear", "--without-pip", str(folder)], check=True)
        if base == sys.executable:
            _see_packages_of_this_python(python)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", str(python)]
        install([*pip, "install", "--progress-bar", "off", requirement])
        done_mark.touch()
    return str(python)


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
    return Path(shutil.copy(program, node_packages(packages)))


def node_packages(packages: str) -> Path:
    """Return the folder in whose ``node_modules`` the packages are; skips the test if they cannot be had."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("Node is not installed")
    place = ENVIRONMENTS / f"node-{packages.replace('/', '-').replace(' ', '+')}"
    if not (place / "node_modules" / ".made").exists():
        place.mkdir(parents=True, exist_ok=True)
        (place / "package.json").write_text('{"private": true}')
        npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", *packages.split()]
        install(npm, cwd=place)
        (place / "node_modules" / ".made").touch()
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
