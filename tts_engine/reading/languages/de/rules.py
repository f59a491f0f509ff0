"""German: words with numbers in them, ordinals after articles, "24.12.", and nouns with capitals."""

import re
from typing import Final

from ...kit.table_rules.amounts.amounts import TableAmounts
from ...kit.table_rules.compounds import TableCompounds
from ...kit.table_rules.dates import TableDates
from ...kit.table_rules.normalizer import TableNormalizer, table_language
from ...kit.table_rules.number_context import TableNumberContext
from ...kit.table_rules.numbers import TableNumberWords
from ...kit.table_rules.times import TableTimes
from ...kit.tokenizer import RuleRow, ScanState, any_of

_YEARS_OF_CENTURIES = range(1100, 2000)
_MAX_BEHIND = 60  # characters that are searched for the words before an ordinal
_WORDS_BEHIND = re.compile(r"\d+(?=\.)|[^\W\d_]+")
# Joined to a number as one word: "50er", "18-jährig"
_JOINED_SUFFIXES = frozenset(
    """
    er mal fach jährig tägig stündig stündlich stellig minütig wöchig monatig köpfig prozentig malig
    teilig türig
    """.split()
)
# Between ordinals that are inflected alike
_ORDINAL_JOINTS = frozenset("und oder u sowie bzw beziehungsweise".split())
# That begin a sentence before an article that they do not govern: "Heute der 3. Tag"
_OPENINGS = frozenset(
    """
    heute morgen gestern jetzt hier dort das dies nur auch und aber dann es da so wieder nun noch schon
    """.split()
)
# Before an article that inflects the ordinal after it otherwise than alone
_PREPOSITIONS = frozenset(
    """
    in an auf bei mit nach seit von zu aus vor hinter neben unter über zwischen ab außer gegenüber
    während wegen laut innerhalb außerhalb trotz
    """.split()
)
_OBLIQUE_ORDINALS: Final = dict.fromkeys(("der", "dieser", "jeder"), "spellout-ordinal-n")


class GermanNumbers(TableNumberWords):
    """Number words of German."""

    def ordinal_rules_after(self, previous_word: str, before: str) -> str | None:
        """Return the rule set of an ordinal after ``previous_word``, with which the text ``before`` ends.

        "im 3. und" inflects the ordinal after it as "im" does, and "in der" does otherwise than "der".
        """
        words = _WORDS_BEHIND.findall(before, max(0, len(before) - _MAX_BEHIND))
        if previous_word in _ORDINAL_JOINTS:
            while len(words) > 2 and words[-1] in _ORDINAL_JOINTS and words[-2].isdigit():
                del words[-2:]
            previous_word = words[-1].lower() if words else ""
        is_oblique = len(words) > 1 and words[-2].lower() in _PREPOSITIONS
        is_after_noun = len(words) > 1 and words[-2][0].isupper() and words[-2].lower() not in _OPENINGS
        is_oblique = is_oblique or is_after_noun  # "am Ende der 3. Woche"
        rules = _OBLIQUE_ORDINALS.get(previous_word) if is_oblique else None
        return rules or super().ordinal_rules_after(previous_word, before)


class GermanNumberContext(TableNumberContext):
    """Case and gender of numbers in German."""

    nouns_are_capitalized = True


class GermanAmounts(TableAmounts):
    """Recognisers of amounts in German."""

    context_type = GermanNumberContext


class GermanTimes(TableTimes):
    """Recognisers of times in German."""

    whole_hour_cues = frozenset("um ab gegen".split())


class GermanDates(TableDates):
    """Recognisers of dates in German."""

    times_type = GermanTimes

    def own_rows(self) -> list[RuleRow]:
        """Return the rules of "24.12." and of the first day of "3.-7. Mai"."""
        return [
            (
                r"(?P<day>\d{1,2})\.(?:(?P<month>\d{1,2})\.)?(?P<joint> ?[-–/] ?)"
                rf"(?=\d{{1,2}}\.(?:\d{{1,2}}\.| ?(?i:{any_of(self._months)})))",
                self._read_first_day,
            ),
            (r"(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?!\d)", self._read_day_and_month),
        ]

    def _read_first_day(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "3.-" of "3.-7. Mai" and of "3./4. Mai"; the second day is inflected as the first."""
        day, month, table = int(match["day"]), int(match["month"] or 1), self._table
        if not (1 <= month <= 12 and 1 <= day <= 31):
            return None
        name = table.months[month - 1] if match["month"] else ""
        scan.emit(f"{self._day(scan, match)} {name}", match.start(), match.start("joint"))
        joint = table.marks["&"] if "/" in match["joint"] else table.range_word
        scan.emit(joint, match.start("joint"), match.end())
        scan.context.line_start = False
        return match.end()


class GermanCompounds(TableCompounds):
    """Recognisers of compound words in German."""

    def digit_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of words that begin with a number."""
        joined = rf"(?P<ending>(?:{any_of(_JOINED_SUFFIXES)})[a-z]{{0,2}})(?!\w)"
        decimal = r"(?P<whole>\d{1,4})(?:,(?P<fraction>\d{1,2}))?"
        return (
            (rf"(?P<whole>\d{{1,4}})-?{joined}", self._read_joined),
            (rf"{decimal}-?(?P<unit>{any_of(self._table.units)})-(?=[A-Z])", self._read_unit_compound),
        )

    def _read_joined(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "50er" and "18-jährig" as one word."""
        number, table = int(match["whole"]), self._table
        if number in _YEARS_OF_CENTURIES and table.lone_year_rules:
            words = self._numbers.spell_out(number, table.lone_year_rules)
        else:
            words = self._numbers.number(number, table.times.gender if table.times else "")
        scan.emit(words + match["ending"], *match.span())
        scan.context.note_word(match["ending"])
        return match.end()

    def _read_unit_compound(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read the "24-h-" of "24-h-Hotline"."""
        noun = self._table.units[match["unit"]]
        words = self._numbers.counted(match["whole"], match["fraction"], noun)
        scan.emit(words, *match.span())
        scan.context.note_word(words)
        return match.end()


class GermanRules(TableNormalizer):
    """Recognisers of German."""

    numbers_type = GermanNumbers
    amounts_type = GermanAmounts
    dates_type = GermanDates
    compounds_type = GermanCompounds


GERMAN: Final = table_language(__file__, "German", GermanRules)
