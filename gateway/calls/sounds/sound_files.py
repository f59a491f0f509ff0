"""Sound files of the operator's folder and of URLs, as programs play them on calls.

A file is decoded when it is played for the first time, in a process of its own as recordings of voices are,
and kept; a URL is fetched each time. Both are played as an utterance without text.
"""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
import soxr

from ....adapters.playback.background import MIN_LOOP_S, BackgroundSounds, comfort_noise
from ....tts_engine.chunk import SAMPLE_RATE, AudioChunk, Mark, Provenance
from ....tts_engine.errors import BadRequest
from ....tts_engine.voices.recording import RecordingLimits, read_recording
from ...web.errors import ResourceNotFound
from ..settings import AmbienceTable, SoundsTable

# 5 minutes at 48 kHz in stereo take 400 MB to decode, of the 512 that the decoder may use.
SOUND_LIMITS: Final = RecordingLimits(
    min_duration_s=0.02,
    max_duration_s=300.0,
    max_excerpted_s=0.0,
    min_sample_rate=8_000,
    max_sample_rate=48_000,
    max_channels=2,
    max_bytes=2**26,
)
_MAX_KEPT_BYTES: Final = 2**26  # of decoded files: 23 minutes
_DECODERS: Final = 2  # at once
_CHUNK_SAMPLES: Final = SAMPLE_RATE // 2
_NO_PROVENANCE: Final = Provenance(None, None, 0.0, 0.0)

_URLS: Final = ("http://", "https://")

Fetch = Callable[[str], Awaitable[bytes]]
_FileVersion = tuple[Path, int, int]  # with its time in ns and its size in bytes


class SoundNotFound(ResourceNotFound):
    """There is no such file in the folder, or no folder."""


class SoundRefused(BadRequest):
    """A file cannot be played."""


def read_sound(path: Path) -> bytes:
    """Decode a file of at most 5 minutes to s16le mono at 24 kHz; raises SoundRefused. Blocks."""
    try:
        size = path.stat().st_size
        if size > SOUND_LIMITS.max_bytes:
            raise SoundRefused(
                f"{path.name}: {size:,} bytes; at most {SOUND_LIMITS.max_bytes:,} are allowed, and "
                f"{SOUND_LIMITS.max_duration_s:g} s"
            )
        content = path.read_bytes()
    except OSError as error:
        raise SoundRefused(f"{path.name}: {error.strerror}") from None
    return decode_sound(path.name, content)


def decode_sound(name: str, content: bytes) -> bytes:
    """Decode as ``read_sound`` does; ``name`` is for the error."""
    try:
        recording = read_recording(content, SOUND_LIMITS)
    except BadRequest as error:
        raise SoundRefused(f"{name}: {error}") from None
    samples = recording.samples
    if recording.sample_rate != SAMPLE_RATE:
        samples = soxr.resample(samples, recording.sample_rate, SAMPLE_RATE, quality="HQ")
    return np.rint(np.clip(samples, -1.0, 1.0) * 32_767).astype("<i2").tobytes()


@dataclass(frozen=True, slots=True)
class PlayedFile:
    """One playing of a file or a URL."""

    text: ClassVar[str] = ""  # it has no words

    library: "SoundLibrary"
    source: Path | str  # a file, or a URL
    marks: tuple[Mark, ...] = ()  # places in it, by time; reported when they are heard

    async def chunks(self) -> Iterator[AudioChunk]:
        """Decode the sound; return its audio in pieces of half a second. Raises SoundRefused, UrlRefused."""
        pcm = await self.library.load(self.source)
        return _chunks(pcm, self.marks)


class SoundLibrary:
    """The files of a folder, decoded when they are first played. Belongs to one event loop.

    Raises BadRequest if there is no such folder.

    Args:
        folder: None: there are no files.
        fetch: returns the content of a URL, or raises UrlRefused; None: no URLs are played.
        max_kept_bytes: of decoded files; those not played for the longest time are forgotten.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        fetch: Fetch | None = None,
        max_kept_bytes: int = _MAX_KEPT_BYTES,
    ) -> None:
        if folder is not None and not folder.is_dir():
            raise BadRequest(f"sounds.folder: {folder}: no such folder")
        self._folder = None if folder is None else folder.resolve()
        self._fetch = fetch
        self._max_kept_bytes = max_kept_bytes
        self._threads = ThreadPoolExecutor(_DECODERS, thread_name_prefix="sounds")
        self._kept: OrderedDict[_FileVersion, bytes] = OrderedDict()  # the one played last at the end
        self._loading: dict[_FileVersion, asyncio.Future[bytes]] = {}

    def close(self) -> None:
        """Stop the threads after the files that they decode."""
        self._threads.shutdown(cancel_futures=True)

    def find(self, name: str, marks: Mapping[str, float] | None = None) -> PlayedFile:
        """Return a playing of the file of that name, which may be in a folder inside, or of a URL.

        Raises SoundRefused for a path that leaves the folder, and SoundNotFound.

        marks: seconds from the beginning, by name.
        """
        places = sorted((marks or {}).items(), key=lambda mark: mark[1])
        heard = tuple(Mark(mark, at_s) for mark, at_s in places)
        if self._fetch is not None and name.lower().startswith(_URLS):
            return PlayedFile(self, name, heard)
        return PlayedFile(self, self._find_file(name), heard)

    def _find_file(self, name: str) -> Path:
        if self._folder is None:
            raise SoundNotFound("there are no sounds here: set sounds.folder to a folder of sound files")
        try:
            path = Path(os.path.realpath(self._folder / name))
            if not path.is_relative_to(self._folder):
                raise SoundRefused(f"{name!r} is outside the folder of sounds")
            if not path.is_file():
                raise SoundNotFound(f"there is no sound {name!r} in the folder of sounds")
        except (OSError, ValueError):  # too long, a zero
            raise SoundNotFound(f"there is no sound {name[:100]!r} in the folder of sounds") from None
        return path

    async def load(self, source: Path | str) -> bytes:
        """Return the decoded sound, s16le mono at 24 kHz; raises SoundRefused, and UrlRefused."""
        if isinstance(source, str):
            return await self._load_url(source)
        version = _version_of(source)
        if (pcm := self._kept.get(version)) is not None:
            self._kept.move_to_end(version)
            return pcm
        if (loading := self._loading.get(version)) is None:
            loading = asyncio.ensure_future(self._decode(version))
            self._loading[version] = loading
        return await asyncio.shield(loading)

    async def _load_url(self, url: str) -> bytes:
        assert self._fetch is not None
        content = await self._fetch(url)
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, decode_sound, "the URL", content
        )

    async def _decode(self, version: _FileVersion) -> bytes:
        try:
            pcm = await asyncio.get_running_loop().run_in_executor(self._threads, read_sound, version[0])
        finally:
            del self._loading[version]
        self._kept[version] = pcm
        while sum(map(len, self._kept.values())) > self._max_kept_bytes:
            self._kept.popitem(last=False)
        return pcm


def _version_of(path: Path) -> _FileVersion:
    try:
        status = path.stat()
    except OSError as error:
        raise SoundRefused(f"{path.name}: {error.strerror}") from None
    return path, status.st_mtime_ns, status.st_size


def _chunks(pcm: bytes, marks: tuple[Mark, ...]) -> Iterator[AudioChunk]:
    count = len(pcm) // 2
    for index, start in enumerate(range(0, count, _CHUNK_SAMPLES)):
        stop = min(start + _CHUNK_SAMPLES, count)
        is_last = stop == count
        heard = tuple(
            mark
            for mark in marks
            if start <= mark.at_s * SAMPLE_RATE and (is_last or mark.at_s * SAMPLE_RATE < stop)
        )
        yield AudioChunk(
            pcm[2 * start : 2 * stop],
            index,
            (start, stop),
            (0, 0),
            (),
            _NO_PROVENANCE,
            final=is_last,
            marks=heard,
        )


def read_background(table: SoundsTable) -> BackgroundSounds:
    """Return the sounds under speech, as the files are now. Blocks. Raises BadRequest for a wrong file."""
    thinking, hold = table.thinking, table.hold
    sounds = BackgroundSounds(
        ambience=b"" if table.ambience is None else _ambience(table.ambience),
        thinking=b"" if thinking is None else _read("thinking", thinking.file, thinking.level_db),
        hold=b"" if hold is None else _read("hold", hold.file, hold.level_db),
    )
    return sounds if thinking is None else replace(sounds, thinking_after_s=thinking.after_ms / 1000)


def _ambience(table: AmbienceTable) -> bytes:
    if table.noise_dbm0 is not None:
        return comfort_noise(table.noise_dbm0)
    assert table.file is not None  # the table has checked it
    return _read("ambience", table.file, table.level_db)


def _read(key: str, path: Path, level_db: float) -> bytes:
    try:
        samples = np.frombuffer(read_sound(path), "<i2")
    except SoundRefused as error:
        raise BadRequest(f"sounds.{key}: {error}") from None
    if len(samples) < MIN_LOOP_S * SAMPLE_RATE:
        seconds = len(samples) / SAMPLE_RATE
        raise BadRequest(f"sounds.{key}: {path.name}: {seconds:.2f} s; at least {MIN_LOOP_S:g} s are needed")
    return np.rint(samples * 10 ** (level_db / 20)).astype("<i2").tobytes()
