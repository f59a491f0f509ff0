"""Plays speech through the package sounddevice, which is not a dependency of vivavoce."""

from typing import Self

import sounddevice

from .....adapters.audio.resample import resampler_to
from .....tts_engine.errors import VivavoceError


class NoSoundDevice(VivavoceError):
    """The system has no device that plays sound, or the device failed."""


class SoundDevicePlayer:
    """Plays 24 kHz s16le on the default device."""

    def __init__(self, sample_rate: int) -> None:
        self._resampler = resampler_to(sample_rate)
        try:
            self._stream = sounddevice.RawOutputStream(sample_rate, channels=1, dtype="int16")
            self._stream.start()
        except sounddevice.PortAudioError as error:
            raise NoSoundDevice(f"cannot play sound: {error}; write a file with -o out.wav") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._stream.abort()
        else:
            self._stream.write(self._resampler.drain())
            self._stream.stop()  # waits until all is played
        self._stream.close()

    def write(self, pcm: bytes) -> None:
        """Play samples after the earlier ones; waits while the device has enough."""
        self._stream.write(self._resampler.push(pcm))
