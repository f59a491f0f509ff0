"""The wait policy of OpenMP's threads in the processes of ``vivavoce say`` and ``vivavoce serve``."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from shared.voices.cosyvoice_bundles import write_random_bundle

# OpenMP reports its settings when it is loaded.
REPORTED_POLICY = re.compile(r"OMP_WAIT_POLICY = '(\w+)'")
COMMAND = (sys.executable, "-c", "from vivavoce.gateway.cli import run; run()")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundles") / "tiny"
    write_random_bundle(folder, 2, "tiny", 1)
    return folder


def start(arguments: Sequence[str], **environment: str) -> subprocess.Popen[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    return subprocess.Popen(
        [*COMMAND, *arguments],
        env=inherited | {"OMP_DISPLAY_ENV": "TRUE"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def reported_policy(arguments: Sequence[str], **environment: str) -> str:
    """The policy that a command's OpenMP reports when torch is loaded; the command is ended then."""
    with start(arguments, **environment) as process:
        assert process.stdout is not None
        try:
            return next(found[0] for line in process.stdout if (found := REPORTED_POLICY.findall(line)))
        finally:
            process.kill()


def say(bundle: Path, tmp_path: Path) -> list[str]:
    return ["say", "--bundle", str(bundle), "Hi.", "-o", str(tmp_path / "hi.wav")]


@pytest.mark.slow
def test_waiting_threads_of_say_do_not_spin(bundle: Path, tmp_path: Path) -> None:
    assert reported_policy(say(bundle, tmp_path)) == "PASSIVE"


@pytest.mark.slow
def test_a_policy_of_the_environment_is_kept(bundle: Path, tmp_path: Path) -> None:
    assert reported_policy(say(bundle, tmp_path), OMP_WAIT_POLICY="ACTIVE") == "ACTIVE"


@pytest.mark.slow
def test_waiting_threads_of_serve_do_not_spin(bundle: Path) -> None:
    arguments = ["serve", "--bundle", str(bundle), "--http-port", "0", "--audiosocket-port", "0"]
    assert reported_policy(arguments) == "PASSIVE"
