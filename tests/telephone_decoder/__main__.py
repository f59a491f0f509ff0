"""Makes the decoder for telephones from nothing: ``python -m telephone_decoder OUT``, with PYTHONPATH=tests.

Lessons that are recorded are kept in OUT and not recorded again; a training that was ended goes on from its
last checkpoint.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from small_voice.optimise import Schedule
from telephone_decoder import export, listen, speed
from telephone_decoder.losses import log_spectral_distance_db
from telephone_decoder.quantise import FRAMES
from telephone_decoder.student import Student, StudentSize
from telephone_decoder.teacher import Lessons, record
from telephone_decoder.train import held_out_batches, train, with_weights

SIZES = {
    "96x4": StudentSize(96, 4, input_reach=(3, 3)),
    "128x5": StudentSize(128, 5),
    "192x5": StudentSize(192, 5),
    "256x4": StudentSize(256, 4, input_reach=(3, 3)),
}
HOURS, HELD_OUT_HOURS = 4.0, 0.25
SCHEDULE = Schedule(steps=6_000, rate=2e-3)
SEED = 1
WEIGHTS = "telephone_decoder.npz"


def make(out: Path, name: str, schedule: Schedule) -> None:
    """Record the lessons, train a student of a size, and write its weights."""
    record(out / "lessons", HOURS, SEED)
    record(out / "held_out", HELD_OUT_HOURS, SEED + 1)
    student = train(out, SIZES[name], schedule, SEED, f"{name}-{schedule.steps}")
    _report(out, student)


def write(out: Path, checkpoint: Path, name: str) -> None:
    """Write the weights of a checkpoint."""
    saved = torch.load(checkpoint, weights_only=True)
    student = Student(SIZES[name])
    student.load_state_dict(saved["network"])
    print(f"step {saved['step']}")
    _report(out, with_weights(student, saved["average"]))


def _report(out: Path, student: Student) -> None:
    path = out / WEIGHTS
    hidden = Lessons.read(out / "lessons", slice(1)).hidden[:FRAMES].astype(np.float32)
    digest = export.write(student, hidden, path)
    distance = log_spectral_distance_db(student, held_out_batches(out, student.size))
    print(f"{path}: SHA-256 {digest}")
    print(
        f"{student.size.products_per_frame / 1e6:.2f} million products a frame, {distance:.2f} dB", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="telephone_decoder", description=__doc__)
    parser.add_argument("out", type=Path, help="folder of the run; the weights are OUT/telephone_decoder.npz")
    parser.add_argument("--size", choices=SIZES, default="192x5")
    parser.add_argument("--steps", type=int, default=SCHEDULE.steps)
    parser.add_argument("--write", type=Path, metavar="CHECKPOINT", help="write the weights of a checkpoint")
    parser.add_argument("--listen", type=int, metavar="N", help="judge N sentences of student and teacher")
    parser.add_argument("--curve", type=int, metavar="N", help="judge N sentences of each size after --steps")
    parser.add_argument("--speed", action="store_true", help="measure what student and teacher cost")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    weights = arguments.out / WEIGHTS
    if arguments.write:
        write(arguments.out, arguments.write, arguments.size)
    elif arguments.listen:
        listen.compare(weights, arguments.out / "judged.json", arguments.listen)
    elif arguments.curve:
        from telephone_decoder.curve import compare_sizes

        compare_sizes(arguments.out, SIZES, arguments.steps, arguments.curve)
    elif arguments.speed:
        speed.measure(weights)
    else:
        make(arguments.out, arguments.size, Schedule(arguments.steps, SCHEDULE.rate))


if __name__ == "__main__":
    main()
