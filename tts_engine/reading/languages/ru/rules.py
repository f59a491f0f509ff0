"""Russian: decimal fractions with nouns, 1,5 as a few, silent ones, and ordinals by the noun after them."""

import re
from typing import Final

from ...kit.table_rules.amounts.amounts import TableAmounts
from ...kit.table_rules.dates import TableDates
from ...kit.table_rules.normalizer import TableNormalizer, table_language
from ...kit.table_rules.numbers import TableNumberWords
from ...kit.table_rules.ordinals import TableOrdinals
from ...kit.table_rules.plural_rules import CountedNoun, parse_noun
from ...kit.table_rules.times import TableTimes
from ...kit.tokenizer import RuleRow, ScanState, any_of
from ...unicode_scripts import CYRILLIC, LATIN

_DECIMAL_NOUNS = (
    parse_noun("f: целая|целых|целых|целой"),
    parse_noun("f: десятая|десятых|десятых|десятой"),
    parse_noun("f: сотая|сотых|сотых|сотой"),
    parse_noun("f: тысячная|тысячных|тысячных|тысячной"),
)
# Of a suffix, by the ending of the noun after it: "на 3-й неделе"
_SUFFIXES_BY_ENDING = {
    "-й": dict.fromkeys(("е", "и", "ы", "платф", "мин"), "feminine genitive"),
    "-м": dict.fromkeys(("гг", "годам"), "plural dative"),
    "-е": dict.fromkeys(("ы", "и", "числа", "места", "занятия", "гг"), "plural"),
}

# Of "ср.", by the beginning of the noun after it
_AVERAGES = {
    **dict.fromkeys(("балл", "чек", "возраст", "расход", "срок", "размер", "вес", "рост"), "средний"),
    **dict.fromkeys(("темп", "цена", "зарплата", "стоимость", "скорость", "оценка", "длина"), "средняя"),
    **dict.fromkeys(("время", "значение", "количество", "число"), "среднее"),
}


class RussianNumbers(TableNumberWords):
    """Number words of Russian."""

    silent_one = "одна "
    minute = parse_noun("f: минута|минуты|минут")

    def decimal(self, whole: int, fraction: str, case: str) -> str:
        """Return "three whole five tenths"."""
        if len(fraction) >= len(_DECIMAL_NOUNS):
            return super().decimal(whole, fraction, case)
        return " ".join(
            f"{self.number(number, noun.gender, case)} {self._table.noun_form(noun, number, case)}"
            for number, noun in ((whole, _DECIMAL_NOUNS[0]), (int(fraction), _DECIMAL_NOUNS[len(fraction)]))
        )

    def noun_form(self, noun: CountedNoun, whole: str, fraction: str | None, case: str) -> str:
        """Return the form of ``noun`` after an amount; after the "полтора" of 1,5 it is that after 2."""
        if fraction == "5" and whole == "1":
            return self._table.noun_form(noun, 2, case)
        return super().noun_form(noun, whole, fraction, case)


class RussianOrdinals(TableOrdinals):
    """Recognisers of ordinals in Russian."""

    def rules_by_noun(self, suffix: str, noun: str) -> str | None:
        """Return the entry of a suffix that the noun after it tells apart, or None."""
        endings = _SUFFIXES_BY_ENDING.get(suffix, {})
        return next((rules for ending, rules in endings.items() if noun.endswith(ending)), None)


class RussianAmounts(TableAmounts):
    """Recognisers of amounts in Russian."""

    ordinals_type = RussianOrdinals
    lettered_words = frozenset("дом поезд корпус строение квартира вагон место кабинет офис подъезд".split())

    def number_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of amounts that begin with a digit, and of floors: "5/9 эт."."""
        floor = r"(?P<floor>[1-9]\d?)/(?P<floors>[1-9]\d?) ?эт(?:\.|аж)?(?!\w)"
        return ((floor, self._read_floor), *super().number_rows())

    def _read_floor(self, scan: ScanState, match: re.Match[str]) -> int | None:
        floor, floors = int(match["floor"]), int(match["floors"])
        if floor > floors:
            return None
        words = f"{self._numbers.spell_out(floor, 'masculine')} этаж из"
        words += f" {self._numbers.number(floors, '', 'genitive')}"
        return self._speller.emit_number(scan, words, *match.span())


class RussianTimes(TableTimes):
    """Recognisers of times in Russian."""

    time_range_word = "до"


class RussianDates(TableDates):
    """Recognisers of dates in Russian."""

    times_type = RussianTimes

    def letter_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of abbreviated days and months, after that of "Ср. ст. 121", which is no day."""
        compared = any_of("ст с п пп ч гл разд табл рис прим".split())
        average = rf"[Сс]р\.(?= (?P<noun>{any_of(_AVERAGES)}))"
        row = rf"[Сс]р\.(?= (?:(?:{compared})\. ?[\d«\"']|также(?!\w)))"
        rows = (row, self._read_comparison), (average, self._read_average)
        return (*rows, *super().letter_rows())

    def _read_average(self, scan: ScanState, match: re.Match[str]) -> int:
        words = _AVERAGES[match["noun"]]
        scan.emit(words, *match.span())
        scan.context.note_word(words)
        return match.end()

    def _read_comparison(self, scan: ScanState, match: re.Match[str]) -> int:
        scan.emit("сравни", *match.span())
        scan.context.note_word("сравни")
        return match.end()


class RussianRules(TableNormalizer):
    """Recognisers of Russian."""

    numbers_type = RussianNumbers
    dates_type = RussianDates
    amounts_type = RussianAmounts


RUSSIAN: Final = table_language(__file__, "Russian", RussianRules, scripts=(LATIN, CYRILLIC), is_latin=False)
