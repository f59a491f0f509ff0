"""Shortens long silences of CosyVoice 3: of a run of silent ids, the first five are kept.

Source: FunAudioLLM/CosyVoice@ace7c47 cli/model.py (CosyVoice3Model.silent_tokens, llm_job).
"""

from collections.abc import Iterable, Iterator

SILENT_IDS = frozenset((1, 2, 28, 29, 55, 248, 494, 2241, 2242, 2322, 2323))
MAX_SILENT_RUN = 5  # ids, 0.2 s


class SilenceFilter:
    """Filters the speech ids of one session; keeps its position in a run between calls."""

    def __init__(self, silent: frozenset[int] = SILENT_IDS, max_run: int = MAX_SILENT_RUN) -> None:
        self._silent = silent
        self._max_run = max_run
        self._run = 0

    def push(self, ids: Iterable[int]) -> Iterator[int]:
        """Yield the ids to be spoken, in order."""
        for speech_id in ids:
            self._run = self._run + 1 if speech_id in self._silent else 0
            if self._run <= self._max_run:
                yield speech_id
