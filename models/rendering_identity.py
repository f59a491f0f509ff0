"""A digest of what renders speech here, for files of speech that must not outlive it.

It changes with the code and data of ``models``, with the libraries that compute, with other files such as
weights, and with a sound that was rendered here: processors round differently, and a sound shows it.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray


def rendering_identity(sound: NDArray[np.float32], files: Iterable[Path] = (), versions: str = "") -> str:
    """The digest, in hexadecimal. Raises OSError for a file that cannot be read.

    sound: rendered on the device in use. files: further code, and weights. versions: of other programs.
    """
    used = f"onnxruntime {onnxruntime.__version__} numpy {np.__version__} {versions}"
    digest = hashlib.sha256(used.encode())
    digest.update(np.ascontiguousarray(sound).tobytes())
    own = (path for path in Path(__file__).parent.rglob("*") if path.is_file() and path.suffix != ".pyc")
    for path in (*sorted(own), *files):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
