"""A digest of a bundle's weights."""

import hashlib
from pathlib import Path

from ...bundle_files import weight_path
from ...checkpoint.tensor_digest import add_tensor
from ...checkpoint.weight_files import map_weight_file
from ..config import TIED_HEAD_KEY
from .tensor_shapes import WEIGHT_FILES


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
