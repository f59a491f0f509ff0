"""Folders of recordings with transcripts, for tests of fine-tuning."""

import io
import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shared.audio.harmonic_voice import harmonic_voice

TEXT = "The quick brown fox jumps over the lazy dog."


def wav(samples: NDArray[np.float32], rate: int = 24_000, channels: int = 1) -> bytes:
    """A WAV file of samples, the same in each channel."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(2)
        out.setframerate(rate)
        pcm = (samples.clip(-1, 1) * 32_767).astype("<i2")
        out.writeframes(np.repeat(pcm, channels).tobytes())
    return file.getvalue()


def write_recordings(folder: Path, count: int, seconds: float = 3.0, text: str = TEXT) -> None:
    """Recordings of one voice, each a little longer than the one before, with their texts beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        write_recording(folder, f"r{number}", wav(harmonic_voice(seconds + number / 10)), text)


def write_recording(folder: Path, name: str, content: bytes, text: str = TEXT) -> None:
    """One recording and its text."""
    (folder / f"{name}.wav").write_bytes(content)
    (folder / f"{name}.txt").write_text(text, "utf-8")
