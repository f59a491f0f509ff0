"""Temporary storage of rendered audio, which clients of DashScope's HTTP API fetch later by a link.

Files lie in a temporary folder of the server and are lost with it. The name of a file is its id and too long
to guess, as in the signed URLs of cloud storage, so a link needs no key. Files are deleted when they expire
and, the oldest first, when those of one key are too many: no key can delete what is another's. The subtitles
of a file lie beside it and go with it.
"""

import asyncio
import os
import secrets
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Self

from .....tts_engine.errors import Overloaded
from ....access.private_files import create_private_file, write_all

RETENTION_S: Final = 24 * 3600.0  # as at DashScope
MAX_BYTES: Final = 512 << 20  # of a key; 3 h of 24 kHz WAV
MAX_FILES: Final = 10_000  # of a key, of any length; each takes about 1 KB of memory
_ID_BYTES: Final = 24  # random, so 192 bits
_RETRY_AFTER_S: Final = 60.0  # until the operator has made room on the disk


@dataclass(frozen=True, slots=True)
class StoredAudio:
    """A complete file of the store."""

    id: str
    key_id: str  # for which it was rendered
    path: Path
    content_type: str
    size: int  # bytes, with its subtitles
    expires_at: float  # Unix seconds

    @property
    def subtitles_path(self) -> Path:
        """Where its subtitles are, as JSON."""
        return _subtitles_path(self.path)


class AudioStore:
    """Audio files by id. Belongs to an event loop; ``close`` deletes all files.

    max_bytes: of each key. ``clock`` returns Unix seconds.
    """

    def __init__(
        self,
        retention_s: float = RETENTION_S,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="vivavoce-audio-")
        self._retention_s = retention_s
        self._max_bytes = max_bytes
        self._clock = clock
        self._audio: dict[str, StoredAudio] = {}  # oldest first
        self._readers: Counter[str] = Counter()  # of files that are kept, by id
        self._ids: defaultdict[str, dict[str, None]] = defaultdict(dict)  # of each key, oldest first
        self._bytes: Counter[str] = Counter()  # of each key, of complete files and of those being written

    def close(self) -> None:
        """Delete all files."""
        self._audio.clear()
        self._ids.clear()
        self._folder.cleanup()

    def get(self, id: str) -> StoredAudio | None:
        """Return the file with that id; None if it never existed or was deleted."""
        self._drop_expired()
        return self._audio.get(id)

    @contextmanager
    def keep(self, id: str) -> Iterator[StoredAudio | None]:
        """Return the file as ``get``; one that is to be deleted inside the block is deleted after it."""
        audio = self.get(id)
        if audio is None:
            yield None
            return
        self._readers[id] += 1
        try:
            yield audio
        finally:
            self._readers[id] -= 1
            if id not in self._audio:
                self._delete(audio)

    def open_writer(self, key_id: str, content_type: str) -> "AudioWriter":
        """Return a writer, to be entered with ``async with``, for a new file of a key."""
        self._drop_expired()
        path = Path(self._folder.name) / secrets.token_urlsafe(_ID_BYTES)
        return AudioWriter(self, key_id, path, content_type)

    # Used by writers

    def reserve_bytes(self, key_id: str, size: int) -> None:
        """Count bytes about to be written, and delete old files of the key for them.

        Raises Overloaded if the key has too many bytes.
        """
        while self._bytes[key_id] + size > self._max_bytes and self._ids[key_id]:
            self._drop(next(iter(self._ids[key_id])))
        if self._bytes[key_id] + size > self._max_bytes:
            raise Overloaded(
                f"the audio of a key has at most {self._max_bytes} bytes",
                reason="audio_store",
                retry_after_s=_RETRY_AFTER_S,
            )
        self._bytes[key_id] += size

    def release_bytes(self, key_id: str, size: int) -> None:
        """Give back the reserved bytes of a file that was discarded."""
        self._bytes[key_id] -= size

    def add_complete(self, key_id: str, path: Path, content_type: str, size: int) -> StoredAudio:
        """Add a file that is completely written; delete the key's oldest if it has too many."""
        while len(self._ids[key_id]) >= MAX_FILES:
            self._drop(next(iter(self._ids[key_id])))
        audio = StoredAudio(path.name, key_id, path, content_type, size, self._clock() + self._retention_s)
        self._audio[audio.id] = audio
        self._ids[key_id][audio.id] = None
        return audio

    def _drop_expired(self) -> None:
        now = self._clock()
        while self._audio and next(iter(self._audio.values())).expires_at <= now:
            self._drop(next(iter(self._audio)))

    def _drop(self, id: str) -> None:
        audio = self._audio.pop(id)
        del self._ids[audio.key_id][id]
        self._bytes[audio.key_id] -= audio.size
        self._delete(audio)

    def _delete(self, audio: StoredAudio) -> None:
        if not self._readers[audio.id]:
            del self._readers[audio.id]
            audio.path.unlink(missing_ok=True)
            audio.subtitles_path.unlink(missing_ok=True)


class AudioWriter:
    """Writes one file of the store; leaving the ``async with`` without ``commit`` deletes it.

    Its methods raise Overloaded where the disk fails.
    """

    def __init__(self, store: AudioStore, key_id: str, path: Path, content_type: str) -> None:
        self._store = store
        self._key_id = key_id
        self._path = path
        self._content_type = content_type
        self._size = self._subtitles_size = 0
        self._committed = False
        self._file: BinaryIO

    async def __aenter__(self) -> Self:
        await _on_disk(self._open)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._file.close()
        if not self._committed:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
                _subtitles_path(self._path).unlink(missing_ok=True)
            self._store.release_bytes(self._key_id, self._size + self._subtitles_size)

    async def write(self, data: bytes) -> None:
        """Append bytes; raise Overloaded if the key has too many."""
        self._store.reserve_bytes(self._key_id, len(data))
        self._size += len(data)
        await _on_disk(lambda: write_all(self._file, data))

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._size

    async def replace_start(self, data: bytes) -> None:
        """Overwrite the first bytes of what has been written, such as a header without its length."""
        await _on_disk(lambda: self._overwrite_start(data))

    async def write_subtitles(self, data: bytes) -> None:
        """Write the subtitles of it, JSON, once; raise Overloaded as ``write``."""
        self._store.reserve_bytes(self._key_id, len(data))
        self._subtitles_size = len(data)
        await _on_disk(lambda: self._write_beside(data))

    def commit(self) -> StoredAudio:
        """Complete the file, which can be fetched from now on."""
        self._file.close()
        self._committed = True
        size = self._size + self._subtitles_size
        return self._store.add_complete(self._key_id, self._path, self._content_type, size)

    def _open(self) -> None:
        self._file = create_private_file(self._path)

    def _write_beside(self, data: bytes) -> None:
        with create_private_file(_subtitles_path(self._path)) as file:
            write_all(file, data)

    def _overwrite_start(self, data: bytes) -> None:
        self._file.seek(0)
        write_all(self._file, data)
        self._file.seek(0, os.SEEK_END)


def _subtitles_path(audio: Path) -> Path:
    return audio.with_name(f"{audio.name}.json")


async def _on_disk(work: Callable[[], None]) -> None:
    """Run ``work`` in a thread; raise Overloaded for an error of the disk."""
    try:
        await asyncio.to_thread(work)
    except OSError as error:
        raise Overloaded(
            f"the speech cannot be written: {error.strerror}", reason="disk", retry_after_s=_RETRY_AFTER_S
        ) from None
