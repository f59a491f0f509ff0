"""Enrols the sound files of a folder as the operator's voices, when a server starts.

    NAME.wav (or .flac, .mp3 ...)    the recording; NAME is the voice's id
    NAME.txt                         its transcript, optional

Files that have not changed since an earlier start are skipped. A bad file is a warning in the log.
"""

import asyncio
import logging
from pathlib import Path

from ..tts_engine.errors import BadRequest, VivavoceError
from ..tts_engine.voices.enrollable import EnrollableVoices
from ..tts_engine.voices.recording import RecordingLimits, hash_recording, read_recording
from ..tts_engine.voices.store import VoiceMetadata, VoiceStore, checked_id

logger = logging.getLogger(__name__)

_PROVENANCE = "speakers folder"  # begins the provenance of these voices, which only this module replaces
_SOUND_SUFFIXES = frozenset(".wav .flac .mp3 .ogg .opus .m4a .aac .aiff .webm .mp4".split())


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
