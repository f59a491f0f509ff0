"""Trains the student on the lessons: seeded, and going on where it was ended."""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from small_voice.optimise import Losses, Schedule, optimise
from telephone_decoder.losses import Batch, Windows, losses
from telephone_decoder.student import STUDENT_PARTS, Student, StudentSize
from telephone_decoder.teacher import Lessons

FRAMES, WINDOWS = 128, 8  # of a batch
SOUND_WEIGHT, LATE_SOUND_WEIGHT = 0.25, 1.0
_LATE = 2 / 3  # of a run
_MEANS_OF = 20_000  # frames


@dataclass(frozen=True, slots=True)
class StudentTask:
    """A student and its lessons."""

    network: Student
    windows: Windows

    def losses(self, draw: np.random.Generator, progress: float) -> Losses:
        """Of a batch that the generator draws."""
        batch = self.windows.draw(draw, WINDOWS)
        return losses(self.network, batch, LATE_SOUND_WEIGHT if progress > _LATE else SOUND_WEIGHT)


def new_student(size: StudentSize, lessons: Lessons, seed: int) -> Student:
    """A student with first weights, and with the means of its inputs and outputs."""
    torch.manual_seed(seed)
    student = Student(size)
    frames = len(lessons.f0)
    some = np.random.default_rng(seed).choice(frames, min(frames, _MEANS_OF), replace=False)
    parts = lessons.parts[some].astype(np.float32)
    means = np.zeros((STUDENT_PARTS, size.bins), np.float32)
    means[0], means[3] = parts[:, 0].mean(0), parts[:, 2].mean(0)
    student.standardize(torch.from_numpy(lessons.hidden[some].astype(np.float32)), torch.from_numpy(means))
    return student


def train(folder: Path, size: StudentSize, schedule: Schedule, seed: int, name: str) -> Student:
    """Train a student on the lessons of a folder; returns it with its averaged weights."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    lessons = Lessons.read(folder / "lessons")
    student = new_student(size, lessons, seed)
    task = StudentTask(student, Windows(lessons, FRAMES, size.reach))
    started = time.process_time()
    average = optimise(task, schedule, folder / f"{name}.pt", seed)
    print(f"trained in {time.process_time() - started:.0f} s of CPU", flush=True)
    return with_weights(student, average)


def with_weights(student: Student, weights: dict[str, Tensor]) -> Student:
    """The student with other weights."""
    student.load_state_dict({**student.state_dict(), **weights})
    return student.eval()


def held_out_batches(folder: Path, size: StudentSize) -> list[Batch]:
    """The same windows of unseen lessons at each call: a hundred seconds of speech."""
    windows = Windows(Lessons.read(folder / "held_out"), FRAMES, size.reach)
    return [windows.draw(np.random.default_rng(seed), WINDOWS) for seed in range(8)]
