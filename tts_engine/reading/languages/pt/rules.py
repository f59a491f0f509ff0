"""Portuguese: phone numbers that begin with "0800", and "9h30min" as a time."""

from typing import Final

from ...kit.table_rules.codes import TableCodes
from ...kit.table_rules.dates import TableDates
from ...kit.table_rules.normalizer import TableNormalizer, table_language
from ...kit.table_rules.numbers import TableNumberWords
from ...kit.table_rules.speller import TableSpeller
from ...kit.table_rules.times import TableTimes
from ...kit.tokenizer import RuleRow, ScanState, any_of

_PHONE_READINGS = {"0800": "zero oitocentos", "0300": "zero trezentos"}  # of whole groups


class PortugueseSpeller(TableSpeller):
    """Speller of Portuguese."""

    def spell(self, scan: ScanState, start: int, stop: int) -> None:
        """Spell the range; a group that has a reading of its own is read by it."""
        reading = _PHONE_READINGS.get(scan.view[start:stop])
        if reading:
            scan.emit(reading, start, stop)
        else:
            TableSpeller.spell(self, scan, start, stop)


class PortugueseNumbers(TableNumberWords):
    """Number words of Portuguese."""

    ordinal_tens = True


class PortugueseCodes(TableCodes):
    """Recognisers of codes in Portuguese."""

    def digit_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of phone numbers and other codes of digits."""
        number = rf"(?:{any_of(_PHONE_READINGS)})(?:[ -]?\d{{2,4}})+{self._end}"
        return ((number, self._speller.read_digit_groups), *super().digit_rows())


class PortugueseTimes(TableTimes):
    """Recognisers of times in Portuguese."""

    minute_suffixes = "min|m"


class PortugueseDates(TableDates):
    """Recognisers of dates in Portuguese."""

    times_type = PortugueseTimes


class PortugueseRules(TableNormalizer):
    """Recognisers of Portuguese."""

    numbers_type = PortugueseNumbers
    letter_cues = frozenset("doutor doutora senhor senhora professor professora enfermeira".split())
    speller_type = PortugueseSpeller
    codes_type = PortugueseCodes
    dates_type = PortugueseDates


PORTUGUESE: Final = table_language(__file__, "Portuguese", PortugueseRules)
