"""A digest of a bundle's weights."""

import hashlib
from pathlib import Path

from torch import Tensor

from ..config import TIED_HEAD_KEY
from .bundle_files import weight_path
from .tensor_shapes import WEIGHT_FILES
from .weight_files import map_weight_file

_SAMPLED_NUMBERS = 256  # of each end of a tensor


def weight_digest(folder: Path) -> str:
    """32 hexadecimal digits that differ between bundles with different weights.

    SHA-256 over the key, shape and both ends of each tensor: the whole files take seconds to read. It is the
    same for .pt and .safetensors. Raises WeightFileError.
    """
    digest = hashlib.sha256()
    for name in WEIGHT_FILES:
        tensors = map_weight_file(weight_path(folder, name))
        for key in sorted(tensors.keys() - {TIED_HEAD_KEY}):  # which a converted file lacks
            add_tensor(digest, f"{name} {key}", tensors[key])
    return digest.hexdigest()[:32]


def add_tensor(digest: "hashlib._Hash", name: str, tensor: Tensor) -> None:
    """Add the name, shape, type and both ends of a tensor to a digest."""
    digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
    numbers = tensor.flatten()
    for end in (numbers[:_SAMPLED_NUMBERS], numbers[-_SAMPLED_NUMBERS:]):
        digest.update(end.float().cpu().numpy().tobytes())
