"""Voices of the recordings in a bundle's folder ``speakers``, prepared when the bundle is loaded.

    NAME.wav (or .flac, .mp3 ...)    a recording; NAME is the voice's id
    NAME/*.wav                       several recordings of one voice
    prepared/HASH.npz                written here: the prepared voice of these recordings and weights

A bad recording is a warning in the log, and so is a folder that cannot be written.
"""

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path

from ...models.prompt_file import VoicePromptError
from ...models.xtts.checkpoint.voice_prompt import XttsVoicePrompt
from ..errors import BadRequest, VivavoceError
from ..voices.recording import read_recordings
from .bundle_voices import XttsVoices

logger = logging.getLogger(__name__)

SPEAKERS_FOLDER = "speakers"
_PREPARED_FOLDER = "prepared"
_SOUND_SUFFIXES = frozenset(".wav .flac .mp3 .ogg .opus .m4a .aac .aiff .webm".split())


def add_speakers(folder: Path, voices: XttsVoices) -> None:
    """Add the voice of each recording or folder of recordings, and delete what was prepared of others."""
    prepared = folder / _PREPARED_FOLDER
    used = set()
    for place in sorted(folder.iterdir()) if folder.is_dir() else ():
        if files := _recordings_at(place):
            try:
                used.add(_add_speaker(place, files, voices, prepared))
            except (VivavoceError, OSError) as error:
                logger.warning("speaker %r is not enrolled: %s", place.name, error)
    for file in prepared.iterdir() if prepared.is_dir() else ():
        if file not in used:
            file.unlink(missing_ok=True)


def _add_speaker(place: Path, files: Sequence[Path], voices: XttsVoices, prepared: Path) -> Path:
    """Add a voice; returns its prepared file."""
    name = place.name if place.is_dir() else place.stem
    if name in voices:
        raise BadRequest(f"there is a voice {name!r} already")
    recordings = [file.read_bytes() for file in files]
    digest = hashlib.sha256(str(voices.model_version).encode())
    for recording in recordings:
        digest.update(hashlib.sha256(recording).digest())
    path = prepared / f"{digest.hexdigest()[:32]}.npz"
    voices.register(name, _read_prepared(path) or _prepare(name, recordings, voices, path))
    return path


def _read_prepared(path: Path) -> XttsVoicePrompt | None:
    try:
        return XttsVoicePrompt.load(path)
    except (VoicePromptError, OSError):
        return None


def _prepare(name: str, recordings: Sequence[bytes], voices: XttsVoices, path: Path) -> XttsVoicePrompt:
    prompt = voices.encode_recordings(read_recordings(recordings))
    try:
        path.parent.mkdir(exist_ok=True)
        prompt.save(path)
    except OSError as error:
        logger.warning("voice %r is prepared at each start: %s", name, error)
    return prompt


def _recordings_at(place: Path) -> list[Path]:
    if place.is_dir():
        return sorted(file for file in place.iterdir() if file.suffix.lower() in _SOUND_SUFFIXES)
    return [place] if place.suffix.lower() in _SOUND_SUFFIXES else []
