"""Files that are whole whenever they are there, whatever stops their writing."""

import contextlib
import glob
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """An empty file to write, which takes the place of ``path`` when the block ends, unless the block raises.

    Only this user may read it. Nothing is left of it if the block raises, nor of those of processes that were
    killed while they wrote to the same path.
    """
    _delete_abandoned(path)
    partial = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}.partial")
    try:
        partial.touch(0o600, exist_ok=False)
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _delete_abandoned(path: Path) -> None:
    for partial in path.parent.glob(f"{glob.escape(path.name)}.*.partial"):
        process = partial.name.removeprefix(path.name).split(".")[1]
        if not process.isdecimal() or not _runs(int(process)):
            partial.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # of another user
        return True
    return True
