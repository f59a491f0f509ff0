"""The files of ambience, thinking sound and hold music, read when the server starts.

Later changes of a file are not heard before the next start.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from ....adapters.playback.background import MIN_LOOP_S, BackgroundSounds
from ....tts_engine.chunk import SAMPLE_RATE
from ....tts_engine.errors import BadRequest
from .settings import SoundsTable
from .sound_files import SoundRefused, read_sound


def read_background(table: SoundsTable) -> BackgroundSounds:
    """Return the sounds under speech. Blocks. Raises BadRequest for a file that cannot be played."""
    ambience, thinking, hold = table.ambience, table.thinking, table.hold
    sounds = BackgroundSounds(
        ambience=b"" if ambience is None else _read("ambience", ambience.file, ambience.level_db),
        thinking=b"" if thinking is None else _read("thinking", thinking.file, thinking.level_db),
        hold=b"" if hold is None else _read("hold", hold.file, hold.level_db),
    )
    return sounds if thinking is None else replace(sounds, thinking_after_s=thinking.after_ms / 1000)


def _read(key: str, path: Path, level_db: float) -> bytes:
    try:
        samples = np.frombuffer(read_sound(path), "<i2")
    except SoundRefused as error:
        raise BadRequest(f"sounds.{key}: {error}") from None
    if len(samples) < MIN_LOOP_S * SAMPLE_RATE:
        seconds = len(samples) / SAMPLE_RATE
        raise BadRequest(f"sounds.{key}: {path.name}: {seconds:.2f} s; at least {MIN_LOOP_S:g} s are needed")
    return np.rint(samples * 10 ** (level_db / 20)).astype("<i2").tobytes()
