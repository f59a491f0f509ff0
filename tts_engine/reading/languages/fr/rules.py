"""French: phone numbers in pairs of digits, "d'une heure", and capitals that are no titles."""

import re
from typing import Final

from ...kit.table_rules.codes import TableCodes
from ...kit.table_rules.normalizer import TableNormalizer, table_language
from ...kit.table_rules.speller import TableSpeller
from ...kit.tokenizer import RuleRow, ScanState

_ELISIONS = {"de un": "d'", "de une": "d'", "que un": "qu'", "que une": "qu'"}


class FrenchSpeller(TableSpeller):
    """Speller of French."""

    reads_pairs = True

    def finish_number(self, scan: ScanState, end: int) -> int:
        """Note that a number ends at ``end``."""
        self._elide(scan)
        return TableSpeller.finish_number(self, scan, end)

    def _elide(self, scan: ScanState) -> None:
        """Shorten the word before a number that was just read: "d'une heure" for "de 1 h"."""
        first = len(scan.words) - 1
        while first > 0 and scan.words[first - 1].start == scan.words[-1].start:
            first -= 1
        if first < 1:
            return
        before, number, after = (
            scan.words[first - 1],
            scan.words[first].text,
            scan.words[first + 1 : first + 2],
        )
        elided = _ELISIONS.get(f"{before.text} {number}")
        is_decimal = bool(after) and after[0].text == self.table.decimal_word
        if elided and not before.punctuation and not is_decimal:
            before.text = elided


class FrenchCodes(TableCodes):
    """Recognisers of codes in French."""

    def digit_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of phone numbers and other codes of digits."""
        return ((r"0\d{9}" + self._end, self._read_paired_digits), *super().digit_rows())

    def is_code(self, scan: ScanState, digits: str) -> bool:
        """Whether a number is a code; "n° 205" is a number."""
        is_short = len(digits) == 3 and digits[0] != "0" and scan.context.previous_word == "numéro"
        return not is_short and super().is_code(scan, digits)

    def _read_paired_digits(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "0612345678" in pairs."""
        for start in range(match.start(), match.end(), 2):
            if scan.view[start] == "0":
                self._speller.spell(scan, start, start + 2)
            else:
                scan.emit(self._numbers.number(int(scan.view[start : start + 2])), start, start + 2)
            scan.punctuate("," if start + 2 < match.end() else "")
        return self._speller.finish_number(scan, match.end())


class FrenchRules(TableNormalizer):
    """Recognisers of French."""

    speller_type = FrenchSpeller
    codes_type = FrenchCodes
    letter_cues = frozenset("taille lettre docteur maître professeur madame".split())


FRENCH: Final = table_language(__file__, "French", FrenchRules)
