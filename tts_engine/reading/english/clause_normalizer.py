"""TODO."""

from ..clause_boundaries import ENGLISH_BOUNDARY_RULES, MAX_CLAUSE_CHARACTERS
from ..folding import fold
from ..tokenizer import DraftWord, ReadingContext, ScanState
from .grammar import read, read_stable_prefix

_STABLE_MARGIN = 100  # characters from the end of an unfinished clause beyond which readings no longer change


class EnglishClauseNormalizer:
    """For voices that are given words: numbers and codes as words, letters respelled."""

    boundary_rules = ENGLISH_BOUNDARY_RULES

    def __init__(self, max_characters: int = MAX_CLAUSE_CHARACTERS) -> None:
        self._max_characters = self.min_forced_cut = max_characters
        self._context = ReadingContext()

    def fold(self, text: str) -> tuple[str, list[int]]:
        """Into ASCII as far as it goes."""
        return fold(text)

    def forced_cut(self, view: str) -> int | None:
        """By characters alone."""
        return self._max_characters if len(view) >= self._max_characters else None

    def read(self, view: str) -> list[DraftWord]:
        """By the rules of ``recognisers.py``."""
        scan = ScanState(view, self._context)
        read(scan, len(view))
        return scan.words

    def read_stable_prefix(self, view: str) -> tuple[list[DraftWord], int]:
        """Up to a blank a good way before the end."""
        scan = ScanState(view, self._context)
        stop = read_stable_prefix(scan, len(view) - _STABLE_MARGIN)
        self._context = scan.context
        return scan.words, stop

    def end_line(self) -> None:
        """No number goes on over it."""
        self._context.end_line()
