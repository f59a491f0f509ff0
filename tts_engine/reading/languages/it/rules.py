"""Italian: the one before a noun, and ordinals with the sign of degrees."""

import re
from typing import Final

from ...kit.table_rules.amounts.amounts import TableAmounts
from ...kit.table_rules.dates import TableDates
from ...kit.table_rules.normalizer import TableNormalizer, table_language
from ...kit.table_rules.numbers import TableNumberWords
from ...kit.table_rules.ordinals import TableOrdinals
from ...kit.tokenizer import ScanState

# By the gender of a noun and its beginning
_ONES = (
    (re.compile("f (?:[aeiouàèéìòù])", re.IGNORECASE), "un'"),
    (re.compile("m (?:s[^aeiouàèéìòù])", re.IGNORECASE), "uno"),
    (re.compile("m (?:[xyz]|gn|ps|pn)", re.IGNORECASE), "uno"),
)
_FULL_ARTICLES = {
    "l'": "il",
    "L'": "Il",
    "dell'": "del",
    "dall'": "dal",
    "all'": "al",
    "nell'": "nel",
    "sull'": "sul",
}


class ItalianNumbers(TableNumberWords):
    """Number words of Italian."""

    def one(self, gender: str, noun: str) -> str:
        """Return the word of 1 before ``noun`` where its first letters decide it, else ""."""
        return next((one for pattern, one in _ONES if pattern.match(f"{gender} {noun}")), "")


class ItalianOrdinals(TableOrdinals):
    """Recognisers of ordinals in Italian."""

    lone_ordinal_cues = frozenset(
        """
        ogni il al dal del nel sul lo è era arriva arrivato chiude chiuso finisce finito resta sale scende
        """.split()
    )


class ItalianAmounts(TableAmounts):
    """Recognisers of amounts in Italian."""

    ordinals_type = ItalianOrdinals


class ItalianDates(TableDates):
    """Recognisers of dates in Italian."""

    def _day(self, scan: ScanState, match: re.Match[str]) -> str:
        """Return the words of a day; the elided article before "l'1/12" becomes that of "il primo"."""
        day = super()._day(scan, match)
        if day == self._table.first_day_word and scan.words and scan.words[-1].text in _FULL_ARTICLES:
            scan.words[-1].text = _FULL_ARTICLES[scan.words[-1].text]
        return day


class ItalianRules(TableNormalizer):
    """Recognisers of Italian."""

    numbers_type = ItalianNumbers
    dates_type = ItalianDates
    amounts_type = ItalianAmounts


ITALIAN: Final = table_language(__file__, "Italian", ItalianRules)
