"""Case i_tokenizer: text to cleaned text and text ids, with the number words that upstream uses."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from num2words import num2words  # type: ignore[import-untyped]

from golden.reference.comparison import Comparison, compare_rows, read_rows
from vivavoce.models.xtts.text.cleaner import clean_text
from vivavoce.models.xtts.text.language_tables import CHARACTER_LIMITS
from vivavoce.models.xtts.text.tokenizer import VOCABULARY_FILE, XttsTokenizer
from vivavoce.tts_engine.xtts.number_words import CldrNumberWords

_CASE = "i_tokenizer"


class UpstreamNumberWords:
    """Number words of num2words, the package that upstream calls; Chinese ones, of rules of its own."""

    def cardinal(self, number: int, language: str) -> str | None:
        """A whole number."""
        if language == "zh":
            return CldrNumberWords().cardinal(number, language)
        return self._words(number, language)

    def decimal(self, number: float, language: str) -> str | None:
        """A number with decimals."""
        return self._words(number, language)

    def ordinal(self, number: int, language: str) -> str | None:
        """A place in an order."""
        return self._words(number, language, ordinal=True)

    def money(self, amount: float, currency: str, language: str) -> str | None:
        """An amount in GBP, USD or EUR."""
        return self._words(amount, language, to="currency", currency=currency)

    def _words(self, number: float, language: str, **form: Any) -> str | None:
        try:
            return str(num2words(number, lang=language, **form))
        except (NotImplementedError, KeyError, TypeError, ValueError, IndexError):
            return None


def text_ids(folder: Path, text: str, language: str) -> list[int]:
    """Text ids of a sentence, as upstream's inference makes them."""
    cleaned = clean_text(text.strip().lower(), language, UpstreamNumberWords())
    return XttsTokenizer.load(folder / VOCABULARY_FILE).encode(cleaned, language)


def check_text(folder: Path) -> Iterator[Comparison]:
    """Compare cleaned texts, ids and limits. Rows that fail upstream bind nobody.

    Without cutlet, rows of Japanese are compared from the romanized text on.
    """
    stated = read_rows(folder, _CASE)
    rows = [row for row in stated["rows"] if "error" not in row]
    readable = [row for row in rows if row["lang"] != "ja" or find_spec("cutlet") is not None]
    numbers = UpstreamNumberWords()
    tokenizer = XttsTokenizer.load(folder / VOCABULARY_FILE)
    lowered = [clean_text(row["text"].strip().lower(), row["lang"], numbers) for row in readable]
    yield compare_rows(_CASE, "clean_lower", lowered, [row["clean_lower"] for row in readable])
    as_is = [clean_text(row["text"], row["lang"], numbers) for row in readable]
    yield compare_rows(_CASE, "clean_as_is", as_is, [row["clean_as_is"] for row in readable])
    ids = [tokenizer.encode(row["clean_lower"], row["lang"]) for row in rows]
    yield compare_rows(_CASE, "ids_small", ids, [row["ids_small"] for row in rows])
    limits = sorted(CHARACTER_LIMITS.items())
    yield compare_rows(_CASE, "char_limits", limits, sorted(stated["char_limits"].items()))
