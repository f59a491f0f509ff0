"""Writes a student's weights as the product reads them, quantized to 8-bit integers."""

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from telephone_decoder.quantise import quantised
from telephone_decoder.student import Student


def write(student: Student, hidden: NDArray[np.float32], path: Path) -> str:
    """Write the weights; returns the file's SHA-256. hidden: (N, 130), frames of speech."""
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **quantised(student, hidden))
    return hashlib.sha256(path.read_bytes()).hexdigest()
