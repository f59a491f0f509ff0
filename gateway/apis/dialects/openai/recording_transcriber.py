"""Writes down recordings of clients, one at a time, by the recogniser of the [stt] extra."""

import asyncio
from typing import Final

import soxr

from .....tts_engine.errors import Overloaded
from .....tts_engine.voices.recording import RecordingLimits, read_recording
from ....transcription import RECOGNISER_RATE, WhisperRecogniser

_MAX_WAITING: Final = 4  # recordings; each takes about a second
_RETRY_AFTER_S: Final = 5.0
_LIMITS: Final = RecordingLimits(min_duration_s=0.1)


class RecordingTranscriber:
    """Writes down recordings, one at a time, on a thread and one core, so that calls have the others.

    The model is loaded for the first recording and kept: 120 MB. Belongs to an event loop.
    """

    def __init__(self) -> None:
        self._recogniser: WhisperRecogniser | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def transcribe(self, data: bytes) -> str:
        """The words of a sound file. Raises BadRequest, Overloaded and MissingExtra."""
        if self._waiting >= _MAX_WAITING:
            raise Overloaded(
                f"{_MAX_WAITING} recordings wait to be written down",
                reason="transcripts",
                retry_after_s=_RETRY_AFTER_S,
            )
        self._waiting += 1
        try:
            async with self._turn:
                return await asyncio.to_thread(self._transcribe, data)
        finally:
            self._waiting -= 1

    def _transcribe(self, data: bytes) -> str:
        recording = read_recording(data, _LIMITS)
        if self._recogniser is None:
            self._recogniser = WhisperRecogniser(threads=1)
        samples = soxr.resample(recording.samples, recording.sample_rate, RECOGNISER_RATE)
        return self._recogniser.transcribe(samples)
