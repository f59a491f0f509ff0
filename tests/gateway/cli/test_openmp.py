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

# OpenMP reports its settings when it is loaded. Without a policy it names PASSIVE too, but its threads spin.
REPORTED_SPINS = re.compile(r"GOMP_SPINCOUNT = '(\d+)'")
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
        env=inherited | {"OMP_DISPLAY_ENV": "VERBOSE"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def reported_spins(arguments: Sequence[str], **environment: str) -> int:
    """How often a waiting thread of a command's OpenMP looks again before it sleeps.

    It is reported when torch is loaded; the command is ended then.
    """
    with start(arguments, **environment) as process:
        assert process.stdout is not None
        try:
            return next(int(found[0]) for line in process.stdout if (found := REPORTED_SPINS.findall(line)))
        finally:
            process.kill()


def say(bundle: Path, tmp_path: Path) -> list[str]:
    return ["say", "--bundle", str(bundle), "Hi.", "-o", str(tmp_path / "hi.wav")]


@pytest.mark.slow
def test_waiting_threads_of_say_do_not_spin(bundle: Path, tmp_path: Path) -> None:
    assert reported_spins(say(bundle, tmp_path)) == 0


@pytest.mark.slow
def test_a_policy_of_the_environment_is_kept(bundle: Path, tmp_path: Path) -> None:
    assert reported_spins(say(bundle, tmp_path), OMP_WAIT_POLICY="ACTIVE") > 0


@pytest.mark.slow
def test_waiting_threads_of_serve_do_not_spin(bundle: Path) -> None:
    arguments = ["serve", "--bundle", str(bundle), "--http-port", "0", "--audiosocket-port", "0"]
    assert reported_spins(arguments) == 0
