"""Compiled kernels on file beside the weights, so that a server that starts again compiles none.

    BUNDLE/kernels/NVIDIA-H200-sm90-triton-3.6.0/...     what Triton keeps of each kernel

Triton itself compares sources and options; the folder's name says for which card and Triton it is. Several
processes may use it at once: Triton writes each file under another name first.
"""

import logging
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch

from .kernel_support import runs_triton

logger = logging.getLogger(__name__)

_FOLDER = "kernels"  # of a bundle


@cache
def keep_compiled_kernels(bundle: Path, device: torch.device) -> None:
    """Let Triton keep its compiled kernels in the bundle, or else where it can write.

    Logs why if they are not in the bundle, and if there are only those of other cards or versions.
    """
    if not runs_triton(device):
        return
    import triton

    capability = "".join(map(str, torch.cuda.get_device_capability(device)))
    name = folder_name(torch.cuda.get_device_name(device), capability, triton.__version__)
    triton.knobs.cache.dir = str(writable_folder(bundle, name) or elsewhere(Path(triton.knobs.cache.dir)))


def elsewhere(folder: Path) -> Path:
    """Triton's own folder, or a temporary one if it cannot be written, as in a read-only home."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if os.access(folder, os.W_OK):
        return folder
    logger.warning("compiled kernels cannot be kept in %s either; they are compiled at every start", folder)
    return Path(tempfile.mkdtemp(prefix="vivavoce-kernels-"))


def folder_name(card: str, capability: str, triton_version: str) -> str:
    """The folder of a card and a version, without characters that a path may not have."""
    return re.sub(r"[^\w.]+", "-", f"{card}-sm{capability}-triton-{triton_version}")


def writable_folder(bundle: Path, name: str) -> Path | None:
    """The folder of kernels with that name, made if need be; None if it cannot be written."""
    parent, folder = bundle / _FOLDER, bundle / _FOLDER / name
    others = sorted(_names_of_others(parent, name))
    if others and not folder.is_dir():
        logger.info("kernels are compiled for %s; those in %s are for %s", name, parent, ", ".join(others))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        logger.warning("compiled kernels are not kept in %s: %s", parent, error.strerror)
        return None
    if not os.access(folder, os.W_OK):
        logger.warning("compiled kernels are not kept in %s: it cannot be written", folder)
        return None
    return folder


def _names_of_others(parent: Path, name: str) -> Iterator[str]:
    if parent.is_dir():
        yield from (each.name for each in parent.iterdir() if each.is_dir() and each.name != name)
