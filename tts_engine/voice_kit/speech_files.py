"""Rendered lines on file, for processes that are started later and for others that share the folder.

    folder/4f/4f1c...e0.speech      header | JSON | samples, float32, little-endian
                                    |
                                    format, digest of the line's key, lengths, checksum

A key is everything that the samples depend on, and ``LineFormat.identity`` is a part of it: what another
version, voice or processor wrote has other names. It is never read, and is removed when the folder is full.

A file is written under another name and renamed, so that a process that is killed leaves no part of one. A
damaged file is removed, and its line rendered again. Where files cannot be read or written, one warning says
so, and speech is kept in memory only. Only the user of the server may read them: they hold what was said.
"""

import hashlib
import itertools
import json
import logging
import os
import re
import struct
import time
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...models.whole_files import written_whole

logger = logging.getLogger(__name__)

# Magic, format, digest of the key, bytes of the JSON, bytes of all after the header, CRC-32 of these.
_HEADER: Final = struct.Struct("<8sI32sIQI")
_MAGIC, _FORMAT = b"vivavoce", 1
_SUFFIX: Final = ".speech"
_NAME: Final = re.compile(rf"[0-9a-f]{{64}}\{_SUFFIX}($|\.)")
# Of the folder's size: written between two looks at the folder, which takes 0.1 s with 20,000 files.
_PART_BETWEEN_LOOKS: Final = 16

Arrays = Sequence[NDArray[np.float32]]
T = TypeVar("T")


class _DamagedFile(ValueError):
    """A file of speech that is not what was written."""


@dataclass(frozen=True, slots=True)
class LineFormat(Generic[T]):
    """The pieces of a line as a value that JSON can have, with arrays, and back."""

    identity: str  # of what renders the pieces: ``models.rendering_identity``
    encode: Callable[[Sequence[T]], tuple[object, Arrays]]
    decode: Callable[[Any, Arrays], list[T]]


class SpeechFiles(Generic[T]):
    """A folder of lines. One thread writes; any thread and several processes read. Nothing is raised.

    max_bytes: of all files in the folder. Those that were asked for longest ago are removed.
    """

    def __init__(self, folder: Path, max_bytes: int, line_format: LineFormat[T]) -> None:
        self._folder, self._max_bytes, self._format = folder, max_bytes, line_format
        self._unseen_bytes = max_bytes  # written since the last look at the folder
        self._warned: set[str] = set()

    def read(self, key: Hashable) -> list[T]:
        """The pieces of a line; none, if it is not on file."""
        path = self._path(key)
        try:
            about, arrays = _unpacked(path.stem, path.read_bytes())
        except FileNotFoundError:
            return []
        except _DamagedFile as error:
            self._warn("%s: %s; its line is rendered again", path, error)
            with suppress(OSError):
                path.unlink()
            return []
        except OSError as error:
            self._warn("kept speech cannot be read: %s", error)
            return []
        with suppress(OSError):
            os.utime(path)
        return self._format.decode(about, arrays)

    def write(self, key: Hashable, pieces: Sequence[T], in_memory: Callable[[], Iterable[Hashable]]) -> None:
        """Write a line. in_memory: keys of lines whose files are not read; the one asked for last is last."""
        path = self._path(key)
        content = _packed(path.stem, *self._format.encode(pieces))
        self._unseen_bytes += len(content)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._unseen_bytes > self._max_bytes // _PART_BETWEEN_LOOKS:
                self._make_room(map(self._path, in_memory()))
                self._unseen_bytes = len(content)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            _write_whole(path, content)
        except OSError as error:
            self._warn("speech is kept in memory only: %s", error)

    def _path(self, key: Hashable) -> Path:
        name = hashlib.sha256(f"{self._format.identity} {key!r}".encode()).hexdigest()
        return self._folder / name[:2] / f"{name}{_SUFFIX}"

    def _make_room(self, in_use: Iterable[Path]) -> None:
        """Remove old files until the folder has room for what is written before the next look."""
        now = time.time_ns()
        for at, path in enumerate(in_use):
            with suppress(OSError):
                os.utime(path, ns=(now + at, now + at))
        found = sorted(_files_in(self._folder), reverse=True)
        sizes = itertools.accumulate(size for _, size, _ in found)
        room = self._max_bytes - self._max_bytes // _PART_BETWEEN_LOOKS
        for (_, _, old), size in zip(found, sizes, strict=True):
            if size > room:
                Path(old).unlink(missing_ok=True)

    def _warn(self, message: str, *arguments: object) -> None:
        logger.log(logging.DEBUG if message in self._warned else logging.WARNING, message, *arguments)
        self._warned.add(message)


def _files_in(folder: Path) -> Iterator[tuple[int, int, str]]:
    """When each file was last asked for, its bytes and its path; unfinished files are among them."""
    for part in os.scandir(folder):
        if len(part.name) == 2 and part.is_dir():
            for file in os.scandir(part):
                with suppress(FileNotFoundError):
                    if _NAME.match(file.name):
                        yield file.stat().st_mtime_ns, file.stat().st_size, file.path


def _write_whole(path: Path, content: bytes) -> None:
    with written_whole(path) as unfinished:
        unfinished.write_bytes(content)


def _packed(name: str, about: object, arrays: Arrays) -> bytes:
    text = json.dumps([about, [len(array) for array in arrays]]).encode()
    text += b" " * (-(_HEADER.size + len(text)) % 4)  # samples at multiples of 4 bytes
    body = b"".join([text, *(array.astype("<f4", copy=False).tobytes() for array in arrays)])
    digest = bytes.fromhex(name)
    return _HEADER.pack(_MAGIC, _FORMAT, digest, len(text), len(body), zlib.crc32(body)) + body


def _unpacked(name: str, content: bytes) -> tuple[Any, Arrays]:
    """What ``_packed`` was given. Raises _DamagedFile."""
    if len(content) < _HEADER.size:
        raise _DamagedFile(f"{len(content)} bytes, fewer than a header has")
    magic, version, digest, text_bytes, body_bytes, checksum = _HEADER.unpack_from(content)
    if (magic, version, digest) != (_MAGIC, _FORMAT, bytes.fromhex(name)):
        raise _DamagedFile("not the header of this line")
    body = memoryview(content)[_HEADER.size :]
    if len(body) != body_bytes or zlib.crc32(body) != checksum:
        raise _DamagedFile("damaged")
    about, lengths = json.loads(bytes(body[:text_bytes]))
    samples = np.frombuffer(body, "<f4", offset=text_bytes)
    return about, np.split(samples, np.cumsum(lengths)[:-1])
