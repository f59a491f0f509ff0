"""Speech that is fetched later, by a link: files in a folder of the server's own, for a day at most.

A link is a random name that nobody can guess, as the signed URLs of cloud storage are. Files go when their
time is over, and before it, the oldest first, when the store is full. Nothing survives the server.
"""

import asyncio
import secrets
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Self

from ....tts_engine.errors import Overloaded

RETENTION_S: Final = 24 * 3600.0  # as DashScope keeps its own
MAX_BYTES: Final = 512 << 20
_RETRY_AFTER_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class StoredAudio:
    """A file that can be fetched. expires_at: Unix seconds."""

    id: str
    path: Path
    content_type: str
    size: int
    expires_at: float


class AudioStore:
    """Audio by id; belongs to an event loop. Close it with ``close``. ``clock``: Unix seconds."""

    def __init__(
        self,
        retention_s: float = RETENTION_S,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="vivavoce-audio-")
        self._kept_s = retention_s
        self._most_bytes = max_bytes
        self._clock = clock
        self._audio: dict[str, StoredAudio] = {}  # oldest first
        self._bytes = 0

    def close(self) -> None:
        """Delete everything."""
        self._audio.clear()
        self._folder.cleanup()

    def get(self, id: str) -> StoredAudio | None:
        """What has that id, unless it is gone."""
        self._drop_expired()
        return self._audio.get(id)

    def open_writer(self, content_type: str) -> "AudioWriter":
        """A file to be written, with ``async with``; left without ``keep``, it is deleted."""
        self._drop_expired()
        return AudioWriter(self, Path(self._folder.name) / secrets.token_urlsafe(24), content_type)

    # What drafts call

    def reserve_bytes(self, size: int) -> None:
        """Make room for bytes that are about to be written; raises Overloaded."""
        while self._bytes + size > self._most_bytes and self._audio:
            self._drop(next(iter(self._audio)))
        if self._bytes + size > self._most_bytes:
            raise Overloaded("the store of audio is full", reason="audio_store", retry_after_s=_RETRY_AFTER_S)
        self._bytes += size

    def release_bytes(self, size: int) -> None:
        """Bytes that were taken are free again."""
        self._bytes -= size

    def add_complete(self, path: Path, content_type: str, size: int) -> StoredAudio:
        """A draft is complete."""
        audio = StoredAudio(path.name, path, content_type, size, self._clock() + self._kept_s)
        self._audio[audio.id] = audio
        return audio

    def _drop_expired(self) -> None:
        now = self._clock()
        while self._audio and next(iter(self._audio.values())).expires_at <= now:
            self._drop(next(iter(self._audio)))

    def _drop(self, id: str) -> None:
        audio = self._audio.pop(id)
        self._bytes -= audio.size
        audio.path.unlink(missing_ok=True)  # who is fetching it now still gets it whole


class AudioWriter:
    """Audio on its way into the store."""

    def __init__(self, store: AudioStore, path: Path, content_type: str) -> None:
        self._store = store
        self._path = path
        self._content_type = content_type
        self._size = 0
        self._committed = False
        self._file: BinaryIO

    async def __aenter__(self) -> Self:
        self._file = await asyncio.to_thread(self._path.open, "wb")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._file.close()
        if not self._committed:
            self._path.unlink(missing_ok=True)
            self._store.release_bytes(self._size)

    async def write(self, data: bytes) -> None:
        """Add bytes; raises Overloaded where the store is full."""
        self._store.reserve_bytes(len(data))
        self._size += len(data)
        await asyncio.to_thread(self._file.write, data)

    def commit(self) -> StoredAudio:
        """The audio is complete, and can be fetched from now on."""
        self._file.close()
        self._committed = True
        return self._store.add_complete(self._path, self._content_type, self._size)
