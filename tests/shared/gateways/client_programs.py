"""Client programs of other projects, each run in an environment of its own against a gateway.

An environment is created once in .venv-peers, sees the packages of .venv and contains only those that differ.
Without a network it cannot be created, and the test is skipped.
"""

import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
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


def run_python_program(requirement: str, program: Path, server: tuple[str, str, str]) -> int:
    """Run a program with ``name==version``, the version that it reports; returns its passed cases."""
    return _run([python_with(requirement), str(program), *server], requirement.rpartition("==")[2])


def run_pipecat_program(program: Path, server: tuple[str, str, str]) -> int:
    """Run a program with the installed Pipecat; returns its passed cases."""
    pytest.importorskip("pipecat", reason="needs the extra: make test EXTRAS=dev,stt,pipecat")
    return _run([sys.executable, str(program), *server], version("pipecat-ai"))


def run_node_program(package: str, program: Path, server: tuple[str, str, str]) -> int:
    """Run a program for Node with ``name@version``; returns its passed cases."""
    return _run(["node", str(node_program(package, program)), *server], package.rpartition("@")[2])


def node_program(package: str, program: Path) -> Path:
    """Return a copy of a program for Node beside the package, from where Node resolves its imports."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("Node is not installed")
    place = ENVIRONMENTS / f"node-{package.replace('/', '-')}"
    if not (place / "node_modules" / ".made").exists():
        place.mkdir(parents=True, exist_ok=True)
        (place / "package.json").write_text('{"private": true}')
        npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", package]
        install(npm, cwd=place)
        (place / "node_modules" / ".made").touch()
    return Path(shutil.copy(program, place))


def install(command: list[str], cwd: Path | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=600)
    if done.returncode:
        pytest.skip(f"{command[-1]} cannot be installed; is there a network? {done.stderr[-300:]}")


def _run(command: list[str], package_version: str) -> int:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr[-4_000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["version"] == package_version
    return len(result["passed"])
