"""Voices of the recordings in a bundle's folder ``speakers``, prepared when the bundle is loaded.

    NAME.wav (or .flac, .mp3 ...)    a recording; NAME is the voice's id
    NAME/*.wav                       several recordings of one voice
    NAME.voice.npz                   written here: the prepared voice, read while the recordings are the same

A bad recording is a warning in the log, and so is a folder that cannot be written.
"""

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path

from ...models.xtts.checkpoint.voices_file import read_prepared_voice, write_prepared_voice
from ...models.xtts.config import XTTS_INPUT_RATE, XttsConfig
from ...models.xtts.voice import MIN_REFERENCE_S
from ..errors import BadRequest, VivavoceError
from ..voices.recording import RecordingLimits, read_recording
from .bundle_voices import XttsVoices, at_input_rate

logger = logging.getLogger(__name__)

SPEAKERS_FOLDER = "speakers"
# The bundle's voices check the duration of all clips of a voice together.
_CLIP_LIMITS = RecordingLimits(min_duration_s=MIN_REFERENCE_S)
_SOUND_SUFFIXES = frozenset(".wav .flac .mp3 .ogg .opus .m4a .aac .aiff .webm".split())


def add_speakers(folder: Path, voices: XttsVoices, config: XttsConfig) -> int:
    """Add the voice of each recording or folder of recordings; returns their number. No folder: none."""
    added = 0
    for place in sorted(folder.iterdir()) if folder.is_dir() else ():
        if files := _recordings_at(place):
            try:
                _add_speaker(place, files, voices, config)
                added += 1
            except (VivavoceError, OSError, ValueError) as error:
                logger.warning("speaker %r is not enrolled: %s", place.name, error)
    return added


def _add_speaker(place: Path, files: Sequence[Path], voices: XttsVoices, config: XttsConfig) -> None:
    name = place.name if place.is_dir() else place.stem
    if name in voices:
        raise BadRequest(f"there is a voice {name!r} already")
    hashes = b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)
    source = hashlib.sha256(hashes).hexdigest()
    prepared = place.with_name(f"{name}.voice.npz")
    voice = read_prepared_voice(prepared, config, source)
    if voice is None:
        recordings = [read_recording(file.read_bytes(), _CLIP_LIMITS) for file in files]
        inputs = [at_input_rate(each.samples, each.sample_rate) for each in recordings]
        voice = voices.encode(inputs, XTTS_INPUT_RATE)
        try:
            write_prepared_voice(prepared, voice, source)
        except OSError as error:
            logger.warning("voice %r is prepared at each start: %s", name, error)
    voices.register(name, voice)


def _recordings_at(place: Path) -> list[Path]:
    if place.is_dir():
        return sorted(file for file in place.iterdir() if file.suffix.lower() in _SOUND_SUFFIXES)
    return [place] if place.suffix.lower() in _SOUND_SUFFIXES else []
