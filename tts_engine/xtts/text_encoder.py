"""Words of a segment to text ids: cleaned, with the tag of their language, split to what the model takes.

XTTS reads Chinese in pinyin, so a word with pinyin of its own is read as that; phonemes in IPA are not used.
"""

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...models.xtts.text.cleaner import NumberWords, clean_text
from ...models.xtts.text.language_tables import CHARACTER_LIMITS
from ...models.xtts.text.tokenizer import XttsTokenizer
from ..errors import MissingExtra
from ..reading.normalizer import join_words
from ..segmenter import BoundaryKind, Segment, best_cut
from ..voice_kit.pinyin_words import with_pinyin
from ..voice_kit.spoken_words import estimate_seconds
from .languages import XTTS_LANGUAGES, language_of_text

logger = logging.getLogger(__name__)

_CHARACTER_S = 0.075  # of cleaned text, at a brisk pace
_EXTRA_OF_LANGUAGE = {"ja": "japanese"}  # for its script; the others: that of the networks
# Tones that are not to be read as numbers while the text around them is cleaned.
_TONES = str.maketrans("12345", "１２３４５")
_TONE_DIGITS = str.maketrans("１２３４５", "12345")
_MIN_CHARACTERS = 60  # of a limit for a language that the tables lack


@dataclass(frozen=True, slots=True)
class EncodedPiece:
    """Words that are spoken in one generation. text_ids: without start and stop. usual_s: speaking time."""

    segment: Segment
    text_ids: tuple[int, ...]
    pause_s: float  # after the words
    usual_s: float


class XttsTextEncoder:
    """Encodes segments. max_text_ids: of one generation."""

    def __init__(self, tokenizer: XttsTokenizer, numbers: NumberWords, max_text_ids: int) -> None:
        self._tokenizer, self._numbers, self._max_text_ids = tokenizer, numbers, max_text_ids
        self._cleaning = threading.Lock()  # romanizers serve one thread at a time
        self._reported_phonemes = False

    def encode(self, segment: Segment, language: str | None, pause_s: float) -> Iterator[EncodedPiece]:
        """The pieces of a segment, each within the limits; none for a segment without words.

        language: a base code such as "zh"; None decides by the script. pause_s: after the last piece. A
        single word beyond the limits is cut. Raises MissingExtra for a script that needs a library.
        """
        if not segment.words:
            return
        self._report_unused_phonemes(segment)
        code = language or language_of_text(segment.spoken)
        cleaned = self._cleaned(_with_pinyin(segment) if code == "zh" else segment.spoken, code)
        text_ids = tuple(self._tokenizer.encode(cleaned, code))
        words = segment.words
        if len(words) == 1 or self._fits(segment.spoken, text_ids, code):
            # Words of the text may be numbers, which take as long as they are in words.
            usual_s = max(estimate_seconds(segment.words), _CHARACTER_S * len(cleaned))
            yield EncodedPiece(segment, text_ids[: self._max_text_ids], pause_s, usual_s)
            return
        count = best_cut(list(words), max(1, len(words) // 2))
        middle = words[count].start
        first = replace(segment, words=words[:count], stop=middle, ending=BoundaryKind.FORCED)
        yield from self.encode(first, code, 0.0)
        yield from self.encode(replace(segment, words=words[count:], start=middle), code, pause_s)

    def _report_unused_phonemes(self, segment: Segment) -> None:
        if not self._reported_phonemes and any(word.phonemes for word in segment.words):
            self._reported_phonemes = True
            logger.warning("XTTS reads letters; phonemes of words are not used")

    def _cleaned(self, text: str, code: str) -> str:
        try:
            with self._cleaning:
                return clean_text(text, code, self._numbers).translate(_TONE_DIGITS)
        except ModuleNotFoundError as error:
            extra = _EXTRA_OF_LANGUAGE.get(code, "cosyvoice")
            raise MissingExtra(f"{XTTS_LANGUAGES.get(code, code)} script", extra) from error

    def _fits(self, text: str, text_ids: tuple[int, ...], code: str) -> bool:
        return (
            len(text) <= CHARACTER_LIMITS.get(code, _MIN_CHARACTERS) and len(text_ids) <= self._max_text_ids
        )


def _with_pinyin(segment: Segment) -> str:
    """The words, those with pinyin in it, as ``romanize`` writes the others: without blanks."""
    return join_words(with_pinyin(segment.words, lambda said: said.replace(" ", "").translate(_TONES)))
