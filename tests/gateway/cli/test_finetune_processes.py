"""``torchrun ... vivavoce finetune train``: two processes have the losses of one; only the first writes."""

import csv
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the [train] extra is not installed")
pytest.importorskip("tensorboardX", reason="the [train] extra is not installed")

from shared.training.recorded_voice import write_recordings
from shared.voices.cosyvoice_bundles import write_random_bundle
from vivavoce.gateway.cli.main import main

pytestmark = pytest.mark.usefixtures("decoded_in_this_process")

TIMEOUT_S = 120
STEPS, BATCH_FRAMES = 3, 400
LOSSES = ("loss", "validation_loss", "gradient_norm")
# A sitecustomize module: notes what a process of torchrun opens for writing, makes, renames or deletes.
WATCH = """
import os, sys

path = os.path.join(os.environ["NOTES"], os.environ.get("RANK", "launcher"))
noted = os.open(path, os.O_CREAT | os.O_WRONLY)
CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.link", "os.symlink"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT

def note(event, arguments):
    if event in CHANGES or (event == "open" and (arguments[2] or 0) & WRITING):
        os.write(noted, f"{arguments[0]}\\n".encode())

sys.addaudithook(note)
"""


def run(*arguments: object) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*map(str, arguments)])
    assert not ended.value.code


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Short utterances of a bundle with reduced networks."""
    write_random_bundle(tmp_path / "bundle", 2, "tiny", 1)
    write_recordings(tmp_path / "recordings", 8, seconds=1.0, text="The fox.")
    run(
        "finetune",
        "prepare",
        tmp_path / "recordings",
        "--bundle",
        tmp_path / "bundle",
        "--out",
        tmp_path / "data",
    )
    return tmp_path / "data"


def training(dataset: Path, target: Path, processes: int) -> list[str]:
    """Arguments of a short training; a batch has so many frames of each process."""
    frames = BATCH_FRAMES // processes
    options = f"--part lm --device cpu --accumulate 1 --max-frames {frames} --max-steps {STEPS} --out".split()
    return ["finetune", "train", str(dataset), *options, str(target)]


def train_with_torchrun(processes: int, arguments: Sequence[str], notes: Path) -> str:
    """What the processes print. notes: gets a file for each of them, of the paths that it changed."""
    watch = notes.with_name("watch")
    watch.mkdir()
    notes.mkdir()
    (watch / "sitecustomize.py").write_text(WATCH, "utf-8")
    programs = Path(sys.executable).parent
    command = [programs / "torchrun", "--standalone", f"--nproc-per-node={processes}", programs / "vivavoce"]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(watch), *sys.path]),
        "NOTES": str(notes),
        "OMP_NUM_THREADS": "1",
    }
    finished = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, env=environment, timeout=TIMEOUT_S
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def metrics_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_two_processes_of_torchrun_have_the_losses_of_one_and_the_first_writes(
    dataset: Path, tmp_path: Path
) -> None:
    one, two, notes = tmp_path / "one", tmp_path / "two", tmp_path / "notes"
    run(*training(dataset, one, 1))
    printed = train_with_torchrun(2, training(dataset, two, 2), notes)

    wanted, found = metrics_of(one), metrics_of(two)
    assert [row["step"] for row in found] == [str(step + 1) for step in range(STEPS)]
    for name in LOSSES:
        numbers = [[float(row[name]) for row in rows if row[name]] for rows in (found, wanted)]
        assert numbers[1] and numbers[0] == pytest.approx(numbers[1], rel=1e-5)

    assert printed.count(f"{two}: {STEPS} steps") == 1 and printed.count("Next: ") == 1
    written = [(notes / rank).read_text("utf-8").count(str(two)) for rank in ("0", "1")]
    assert written[0] > 0 and written[1] == 0
    assert [len([*folder.glob("tensorboard/*")]) for folder in (one, two)] == [1, 1]
