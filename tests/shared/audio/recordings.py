"""A recording for tests of enrolled voices, as a file and as a data URL."""

import base64
import io
import wave

import numpy as np


def recording(seconds: float = 3.5, sample_rate: int = 16_000, level: float = 0.5) -> bytes:
    """A WAV file with a tone of 220 Hz."""
    file = io.BytesIO()
    with wave.open(file, "wb") as output:
        output.setnchannels(1)
        output.setsampwidth(2)
        output.setframerate(sample_rate)
        tone = np.sin(2 * np.pi * 220 * np.arange(round(sample_rate * seconds)) / sample_rate)
        output.writeframes((32_000 * level * tone).astype("<i2").tobytes())
    return file.getvalue()


def as_data_url(data: bytes) -> str:
    """The file as a data URL."""
    return "data:audio/wav;base64," + base64.b64encode(data).decode()
