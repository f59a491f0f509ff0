"""Digests of weights over samples of them; reading every number of a bundle takes seconds."""

import hashlib
from collections.abc import Sequence, Set
from pathlib import Path

from torch import Tensor

from ..bundle_files import weight_path
from .weight_files import map_weight_file

_SAMPLED_NUMBERS = 256  # of each end of a tensor


def add_tensor(digest: "hashlib._Hash", name: str, tensor: Tensor) -> None:
    """Add the name, shape, type and both ends of a tensor to a digest."""
    digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
    numbers = tensor.flatten()
    for end in (numbers[:_SAMPLED_NUMBERS], numbers[-_SAMPLED_NUMBERS:]):
        digest.update(end.float().cpu().numpy().tobytes())


def weight_digest(folder: Path, files: Sequence[str], left_out: Set[str] = frozenset()) -> str:
    """32 hexadecimal digits that differ between bundles with different weights.

    files: names of the weights' files. left_out: keys that a converted file may lack.
    SHA-256 over the key, shape, type and both ends of each tensor: it is the same for .pt and .safetensors.
    Raises WeightFileError.
    """
    digest = hashlib.sha256()
    for name in files:
        tensors = map_weight_file(weight_path(folder, name))
        for key in sorted(tensors.keys() - left_out):
            add_tensor(digest, f"{name} {key}", tensors[key])
    return digest.hexdigest()[:32]
