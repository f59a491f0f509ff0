"""Turkish: endings after numbers, "%20", and dates with a word or an ending after them."""

import re
from typing import Final

from ...kit.table_rules.amounts.amounts import TableAmounts
from ...kit.table_rules.dates import TableDates
from ...kit.table_rules.normalizer import TableNormalizer, table_language
from ...kit.table_rules.speller import TableSpeller
from ...kit.table_rules.times import TableTimes
from ...kit.tokenizer import RuleRow, ScanState
from .vowel_harmony import VowelHarmony

_HARMONY: Final = VowelHarmony(
    vowels={"aı": "aı", "ei": "ei", "ou": "au", "öü": "eü"},
    voiceless="fstkçşhp",
    softened={"dört": "dörd", "çeyrek": "çeyreğ"},
    irregular={"saat": "ei"},
)
_FRACTION_BEHIND = re.compile(r"(?<![\d/])\d{1,2}/\d{1,2}\Z")
# After "24.12" as a date
_DATE_ENDS = (
    r" (?:tarih|bakiye|itibar|günü)| (?:Pzt|Sal|Çar|Per|Cum|Cmt|Paz)\b"
    r"|(?<=2[4-9]\.\d\d)'|(?<=3[01]\.\d\d)'"
)


class TurkishSpeller(TableSpeller):
    """Speller of Turkish."""

    suffix_mark = "'"

    def with_suffix(self, word: str, suffix: str) -> str:
        """Return ``word`` with an ending, in the form that it has after it."""
        return _HARMONY.join(word, suffix)

    def join_suffix(self, scan: ScanState, end: int) -> int:
        """Join the ending at ``end`` to the last word; that of a fraction is possessive: "üçte ikisi"."""
        ends = scan.view[end : end + 2]
        if len(ends) > 1 and ends[0] == "'" and ends[1] in "ıiuüs" and scan.words:
            word = scan.words[-1]
            if _FRACTION_BEHIND.search(scan.view, max(0, end - 6), end):
                word.text = word.text.removesuffix("m") if word.text == "yarım" else word.text
                word.text += "s" if word.text[-1] in "aeıioöuü" and ends[1] != "s" else ""
        return TableSpeller.join_suffix(self, scan, end)


class TurkishTimes(TableTimes):
    """Recognisers of times in Turkish."""

    def seconds_after(self, seconds: str, fraction: str | None) -> str:
        """Return the words of the seconds of a time of day, which have no noun."""
        return self._numbers.amount(seconds, fraction)


class TurkishDates(TableDates):
    """Recognisers of dates in Turkish."""

    times_type = TurkishTimes

    def own_rows(self) -> list[RuleRow]:
        """Return the rules of "24.12 tarihinde" and of "son ödeme 15.12."."""
        date = r"(?P<day>\d{1,2})[./](?P<month>0[1-9]|1[0-2])"
        return [
            (rf"{date}(?:\.(?=')|(?={_DATE_ENDS}))", self._read_day_and_month),
            (rf"{date}(?![\w/-]|[.,]\d)", self._read_announced_day),
        ]


class TurkishAmounts(TableAmounts):
    """Recognisers of amounts in Turkish."""

    def sign_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of amounts that begin with a sign."""
        return (
            *super().sign_rows(),
            (rf"% ?{self._patterns.decimal}", self._read_percent),
        )

    def _read_percent(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "%20" and "20%"."""
        amount = self._numbers.amount(match["whole"], match["fraction"])
        return self._speller.emit_number(scan, f"yüzde {amount}", *match.span())


class TurkishRules(TableNormalizer):
    """Recognisers of Turkish."""

    speller_type = TurkishSpeller
    dates_type = TurkishDates
    amounts_type = TurkishAmounts


TURKISH: Final = table_language(__file__, "Turkish", TurkishRules)
