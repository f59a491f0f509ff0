"""Enrolment: encodes clients' recordings, and the sound files of a folder when a server starts.

With a shared store, a client's recording is encoded once for all gateways. Recordings are read, and encoded
where the voices are here, on a thread, one at a time. The folder has the operator's voices:

    NAME.wav (or .flac, .mp3 ...)    the recording; NAME is the voice's id
    NAME.txt                         its transcript, optional

Files that have not changed since an earlier start are skipped. A bad file is a warning in the log.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from ..tts_engine.errors import BadRequest, Overloaded, VivavoceError
from ..tts_engine.voices.enrollable import EnrollableVoices
from ..tts_engine.voices.packed_prompt import StorablePrompt
from ..tts_engine.voices.recording import (
    Recording,
    RecordingLimits,
    check_transcript,
    hash_recording,
    read_recording,
)
from ..tts_engine.voices.store import VoiceMetadata, VoiceStore, checked_id

logger = logging.getLogger(__name__)

SPEAKERS_FOLDER: Final = "speakers"  # in the store of voices
_PROVENANCE = "speakers folder"  # begins the provenance of these voices, which only this module replaces
_SOUND_SUFFIXES = frozenset(".wav .flac .mp3 .ogg .opus .m4a .aac .aiff .webm .mp4".split())

Encode = Callable[[], Awaitable[StorablePrompt]]


class PromptSharing(Protocol):
    """Prompts of recordings that gateways share."""

    async def encode(
        self, cloning: EnrollableVoices, recordings: Sequence[Recording], transcript: str, encode: Encode
    ) -> StorablePrompt:
        """The prompt of recordings; calls ``encode`` if no gateway has it. Raises what ``encode`` raises."""

    async def forget(self, prompt_id: str) -> None:
        """Delete what other gateways could use of a removed voice."""


class RecordingEncoder:
    """Encodes recordings. Belongs to one event loop; close it with ``close``.

    max_waiting: recordings at once; each takes about a second. shared: None encodes every recording here.
    """

    def __init__(self, max_waiting: int, shared: PromptSharing | None = None) -> None:
        self._max_waiting = max_waiting
        self._shared = shared
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="enrolment")
        self._waiting = 0

    def close(self) -> None:
        """Stop the thread after the recording that it works on."""
        self._thread.shutdown(cancel_futures=True)

    async def encode(
        self, cloning: EnrollableVoices, read: Callable[[], Sequence[Recording]], transcript: str
    ) -> StorablePrompt:
        """Read the recordings of a voice and encode them. Cancelling discards the result.

        Raises Overloaded, and what ``read`` and ``EnrollableVoices.encode_recordings`` raise.
        """
        if self._waiting >= self._max_waiting:
            raise Overloaded(
                f"{self._waiting} recordings are waiting to be encoded, which is the limit",
                reason="enrolments",
                retry_after_s=float(self._waiting),
            )
        self._waiting += 1
        try:
            recordings = await asyncio.get_running_loop().run_in_executor(self._thread, read)
            encode = partial(cloning.encode_on, self._thread, recordings, transcript)
            if self._shared is None:
                return await encode()
            return await self._shared.encode(cloning, recordings, transcript, encode)
        finally:
            self._waiting -= 1

    async def forget(self, prompt_id: str) -> None:
        """Delete what other gateways could use of a removed voice."""
        if self._shared is not None:
            await self._shared.forget(prompt_id)


async def enroll_speakers(folder: Path, voices: EnrollableVoices, store: VoiceStore) -> int:
    """Enrol new and changed files, and return their number. Raises BadRequest if there is no such folder."""
    files = await asyncio.to_thread(_sound_files_in, folder)
    enrolled = 0
    for file in files:
        try:
            enrolled += await asyncio.to_thread(_enroll_file, file, voices, store)
        except (VivavoceError, OSError, UnicodeDecodeError) as error:
            logger.warning("speaker %r is not enrolled: %s", file.name, error)
    logger.info("%d of %d speakers enrolled from %s", enrolled, len(files), folder)
    return enrolled


def _enroll_file(file: Path, voices: EnrollableVoices, store: VoiceStore) -> bool:
    """Enrol a file; False if the store has it already. Raises BadRequest if its name is taken."""
    with file.open("rb") as opened:
        data = opened.read(RecordingLimits().max_bytes + 1)
    transcript_file = file.with_suffix(".txt")
    transcript = transcript_file.read_text("utf-8").strip() if transcript_file.exists() else ""
    about = VoiceMetadata(provenance=f"{_PROVENANCE}, {file.name}", source=hash_recording(data, transcript))
    before = store.find(checked_id(file.stem))
    if before is None and file.stem in voices:
        raise BadRequest(f"the bundle has a voice {file.stem!r} already")
    if before is not None and not before.about.provenance.startswith(_PROVENANCE):
        raise BadRequest(
            f"there is a voice {file.stem!r} already, from elsewhere ({before.about.provenance})"
        )
    if before is not None and (before.about, before.version) == (about, store.version):
        return False
    recording = read_recording(data)
    check_transcript([recording], transcript)
    for remark in recording.remarks:
        logger.warning("speaker %r: %s", file.name, remark)
    prompt = voices.encode_recordings([recording], transcript)
    if before is None:
        store.add(prompt, name=file.stem, about=about, voice_id=file.stem)
    else:
        store.replace(file.stem, prompt, about)
    return True


def _sound_files_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise BadRequest(f"{folder}: no such folder of speakers")
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in _SOUND_SUFFIXES)
