"""Files and folders that no other user of the machine may read: they hold what callers and clients said."""

import os
from pathlib import Path
from typing import BinaryIO


def make_private_folder(folder: Path) -> None:
    """Make a folder of mode 0700, and missing parents likewise; one that exists stays as it is."""
    if not folder.is_dir():
        make_private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def create_private_file(path: Path) -> BinaryIO:
    """Make a file of mode 0600 to write. Raises FileExistsError.

    It has no buffer, so that a full disk is an error of the write and not of the close.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    return os.fdopen(descriptor, "wb", buffering=0)


def write_all(file: BinaryIO, data: bytes) -> None:
    """Write all of ``data`` to a file without a buffer, which may take a part of it at a time."""
    while data:
        data = data[file.write(data) :]
