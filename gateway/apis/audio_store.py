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

from ...tts_engine.errors import Overloaded

KEPT_S: Final = 24 * 3600.0  # as DashScope keeps its own
MOST_BYTES: Final = 512 << 20
_RETRY_AFTER_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class KeptAudio:
    """A file that can be fetched. expires_at: Unix seconds."""

    id: str
    path: Path
    content_type: str
    size: int
    expires_at: float


class AudioStore:
    """Audio by id; belongs to an event loop. Close it with ``close``. ``clock``: Unix seconds."""

    def __init__(
        self, kept_s: float = KEPT_S, most_bytes: int = MOST_BYTES, clock: Callable[[], float] = time.time
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="vivavoce-audio-")
        self._kept_s = kept_s
        self._most_bytes = most_bytes
        self._clock = clock
        self._audio: dict[str, KeptAudio] = {}  # oldest first
        self._bytes = 0

    def close(self) -> None:
        """Delete everything."""
        self._audio.clear()
        self._folder.cleanup()

    def get(self, id: str) -> KeptAudio | None:
        """What has that id, unless it is gone."""
        self._drop_expired()
        return self._audio.get(id)

    def draft(self, content_type: str) -> "Draft":
        """A file to be written, with ``async with``; left without ``keep``, it is deleted."""
        self._drop_expired()
        return Draft(self, Path(self._folder.name) / secrets.token_urlsafe(24), content_type)

    # What drafts call

    def take_room(self, size: int) -> None:
        """Make room for bytes that are about to be written; raises Overloaded."""
        while self._bytes + size > self._most_bytes and self._audio:
            self._drop(next(iter(self._audio)))
        if self._bytes + size > self._most_bytes:
            raise Overloaded("the store of audio is full", reason="audio_store", retry_after_s=_RETRY_AFTER_S)
        self._bytes += size

    def give_room(self, size: int) -> None:
        """Bytes that were taken are free again."""
        self._bytes -= size

    def keep(self, path: Path, content_type: str, size: int) -> KeptAudio:
        """A draft is complete."""
        audio = KeptAudio(path.name, path, content_type, size, self._clock() + self._kept_s)
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


class Draft:
    """Audio on its way into the store."""

    def __init__(self, store: AudioStore, path: Path, content_type: str) -> None:
        self._store = store
        self._path = path
        self._content_type = content_type
        self._size = 0
        self._kept = False
        self._file: BinaryIO

    async def __aenter__(self) -> Self:
        self._file = await asyncio.to_thread(self._path.open, "wb")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._file.close()
        if not self._kept:
            self._path.unlink(missing_ok=True)
            self._store.give_room(self._size)

    async def write(self, data: bytes) -> None:
        """Add bytes; raises Overloaded where the store is full."""
        self._store.take_room(len(data))
        self._size += len(data)
        await asyncio.to_thread(self._file.write, data)

    def keep(self) -> KeptAudio:
        """The audio is complete, and can be fetched from now on."""
        self._file.close()
        self._kept = True
        return self._store.keep(self._path, self._content_type, self._size)
