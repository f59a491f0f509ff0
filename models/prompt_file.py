"""Files of voice prompts: named arrays and a line about them, without pickle; and the id of a content."""

import contextlib
import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .whole_files import written_whole

_MAX_PROMPT_BYTES = 4_000_000  # of a saved prompt; 30 s of CosyVoice take 490 kB
_ABOUT = "about"

Arrays = Mapping[str, NDArray[Any]]


class VoicePromptError(ValueError):
    """A recording or a saved prompt cannot be used; the message says what was got and what is allowed."""


def content_id(header: Sequence[object], arrays: Sequence[NDArray[Any]]) -> str:
    """32 hexadecimal digits of the SHA-256 of a prompt's header and arrays."""
    digest = hashlib.sha256(json.dumps(header).encode())
    for array in arrays:
        digest.update(json.dumps([array.shape, str(array.dtype)]).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]


def pack_prompt(about: Mapping[str, object], arrays: Arrays) -> bytes:
    """The content of a prompt's file."""
    packed = io.BytesIO()
    line = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(packed, allow_pickle=False, **{_ABOUT: line}, **arrays)
    return packed.getvalue()


def unpack_prompt(content: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The line and the arrays of a file's content. Raises what ``prompt_faults`` translates."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        _check_size(sum(entry.file_size for entry in archive.infolist()))
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        arrays = dict(stored)
    return json.loads(arrays.pop(_ABOUT).tobytes()), arrays


def write_prompt(path: Path, content: bytes) -> None:
    """Write a prompt's file, complete or not at all. Raises OSError."""
    with written_whole(path) as partial:
        partial.write_bytes(content)


def read_prompt(path: Path) -> bytes:
    """The content of a prompt's file. Raises VoicePromptError, and OSError if it cannot be read."""
    with prompt_faults(path.name):
        _check_size(path.stat().st_size)
    return path.read_bytes()


@contextlib.contextmanager
def prompt_faults(name: str) -> Iterator[None]:
    """Translate the errors of a content that is something else than a prompt to VoicePromptError."""
    try:
        yield
    except (zipfile.BadZipFile, ValueError, KeyError, TypeError, EOFError) as error:
        raise VoicePromptError(f"{name}: not a saved prompt, or damaged ({error}); enrol again") from error


def _check_size(size: int) -> None:
    if size > _MAX_PROMPT_BYTES:
        raise VoicePromptError(f"it holds {size:,} bytes; a prompt has at most {_MAX_PROMPT_BYTES:,}")
