"""Rules of amounts: numbers, ranges, percent, units; money, fractions and rates have files of their own."""

import re

from ....lazy_pattern import LazyPattern
from ...tokenizer import RuleRow, ScanState, any_of
from ..codes import TableCodes
from ..language_table import LanguageTable
from ..number_context import TableNumberContext
from ..numbers import NumberPatterns, TableNumberWords, with_noun
from ..ordinals import TableOrdinals
from ..roman import TableRomanNumerals
from ..speller import TableSpeller
from .durations import TableDurations
from .fractions import TableFractions
from .magnitudes import TableMagnitudes
from .money import TableMoney
from .rates import TableRates

_MIN_CODE_DIGITS = 5  # of a code before a noun, which a shorter number counts
_SET = re.compile(r"[0-7][-–][0-7](?:,? (?:[^\W\d_]{1,3} )?[0-7][-–][0-7](?!\d)| ?\(\d{1,2}\))")  # of tennis
_WON_SET = re.compile(r"(?:6[-–][0-4]|7[-–][56])(?![\d-]|[.,:]\d)")
_LOST_SET = re.compile(r"(?:[0-4][-–]6|[56][-–]7)(?![\d-]|[.,:]\d)")
_SET_WORD = "6-4"  # noted as the word before the second number of a set
_SEPARATOR = re.compile(r"[\dA-Z€%)] - \Z")  # no minus: "12/A - 20121 Milano"


def _are_parts_of_code(first: str, second: str) -> bool:
    """Whether two numbers with a dash are no range: the second is much longer, and not round."""
    is_long = second.isdigit() and len(second) >= max(4, len(first) + 2)
    return is_long and second[-1] != "0"


class TableAmounts:
    """Recognisers of amounts of one language."""

    context_type: type[TableNumberContext] = TableNumberContext
    ordinals_type: type[TableOrdinals] = TableOrdinals
    romans_type: type[TableRomanNumerals] = TableRomanNumerals
    money_type: type[TableMoney] = TableMoney
    lettered_words: frozenset[str] = frozenset()  # before "104В", whose letter is no unit
    repeats_units = False  # a unit is said after both numbers of a range
    address_number_words: frozenset[str] = frozenset()  # before "12-30", two numbers of an address

    def __init__(
        self, table: LanguageTable, numbers: TableNumberWords, speller: TableSpeller, codes: TableCodes
    ) -> None:
        self._table, self._numbers, self._speller, self._codes = table, numbers, speller, codes
        self._context = context = self.context_type(table, numbers)
        self._patterns = patterns = NumberPatterns(table, speller.suffix_mark)
        self._ordinals = self.ordinals_type(table, numbers, speller, context)
        self._romans = self.romans_type(table, numbers, speller)
        self._rates = rates = TableRates(table, numbers, speller, patterns)
        self._magnitudes = TableMagnitudes(table, numbers, speller, context, patterns, rates)
        self._money = self.money_type(table, numbers, speller, context, patterns, rates, self._magnitudes)
        self._durations = TableDurations(table, numbers, speller, context)
        self._fractions = TableFractions(table, numbers, speller, context, patterns, rates)
        self._integer_ahead = LazyPattern(patterns.integer)
        self._hour_ahead = LazyPattern(rf"\d{{1,2}}(?:[.:]\d\d)? ?(?:{table.hour_suffixes})(?!\w)")
        # "2 배송" is no "2배": after a blank, a noun is followed by a particle or by no letter.
        particles = rf"(?=[!-~]|(?:{patterns.units})(?:[{table.particle_letters}]|(?!\w)))"
        self._unit_gap = rf"(?:|\s{particles})" if table.particle_letters else r"\s?"
        self._counted = LazyPattern(
            rf"{patterns.integer}(?:\s?(?P<unit>{patterns.units}){patterns.unit_end})?"
        )
        sums = any_of((*table.money, *table.units, "%"))
        self._amount_ahead = LazyPattern(rf"(?:{patterns.signs}) ?\d|{patterns.decimal}\s?(?:{sums})(?!\w)")
        years = any_of(suffix for suffix in table.ordinal_suffixes if suffix[0] == " ") or "(?!)"
        joints = any_of(table.day_joints) or "(?!)"
        self._year_joint = LazyPattern(rf" (?P<joint>{joints}) \d{{4}}(?P<suffix>{years})(?!\w)")
        self._years_ahead = LazyPattern(rf"\d{{4}}(?P<suffix>{years})(?!\w)")
        self._unit_plurals = table.unit_plurals
        self._signed_nouns = any_of({signed[1:] for signed in table.signed_nouns}) or "(?!)"
        self._number_ahead = LazyPattern(
            rf"\.? ?\d+(?![\d:]|[.,]\d|\s?(?:{patterns.units}|{any_of(table.money)}){patterns.end})"
        )

    @property
    def integer(self) -> str:
        """Pattern of a whole number."""
        return self._patterns.integer

    def sign_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of amounts that begin with a sign."""
        patterns = self._patterns
        return (
            *self._money.sign_rows(),
            (
                rf"(?P<sign>[-−+]) ?(?:[^\W\d_]{{2}} )?(?=\d{{1,3}} (?P<noun>{self._signed_nouns})(?!\w))",
                self._read_sign_of_noun,
            ),
            (rf"[-−](?= ?(?:{patterns.signs})? ?\d)(?! \d{{5}} [A-Z])", self._read_minus),
            self._rates.sign_row(),
        )

    def money_letter_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of money that begins with a letter."""
        return self._money.letter_rows()

    def letter_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of the "x" of a size, of units without a number, and of Roman numerals."""
        return (self._fractions.letter_row(), self._rates.letter_row(), *self._romans.rows())

    def number_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of amounts that begin with a digit."""
        table, patterns, decimal = self._table, self._patterns, self._patterns.decimal
        suffixes = any_of(table.ordinal_suffixes) or r"(?!)"
        unit = rf"{self._unit_gap}(?P<unit>{patterns.units}){patterns.unit_end}"
        # "3 р./день", which begins as a currency does; a larger number counts money.
        rates = any_of(
            unit for unit in table.units if unit.startswith(tuple(table.money)) and {*unit} & {"/", " "}
        )
        low = rf"(?P<low>{patterns.integer})(?:{patterns.decimal_mark}(?P<low_fraction>\d+))?"
        return (
            *self._durations.rows(),
            (rf"(?P<whole>\d{{3,4}}) ?{re.escape(table.page_mark)}(?! ?\d)", self._read_pages),
            *self._fractions.digit_rows(),
            (
                rf"{decimal}\s?%(?!\d){'(?![pP](?![A-Za-z]))' if '%p' in table.units else ''}",
                self._read_percent,
            ),
            (
                rf"(?P<whole>\d)(?P<fraction>(?!))?\s?(?P<unit>{rates or '(?!)'}){patterns.end}",
                self._read_unit,
            ),
            *self._money.digit_rows(),
            *self._magnitudes.other_rows(),
            (rf"(?P<whole>{patterns.integer})(?P<suffix>{suffixes})(?!\w)", self._ordinals.read_suffixed),
            (rf"{low}(?P<dash> ?[-–~] ?){decimal}{unit}", self._read_unit_range),
            (rf"{decimal}{unit}", self._read_unit),
            (rf"(?P<number>\d{{1,4}})\.(?=[ {self._speller.suffix_mark}][^\W\d_])", self._ordinals.read_stop),
            (r"(?P<number>\d{1,3})\.\+(?P<added>\d{1,2})(?= [^\W\d_])", self._ordinals.read_added),
            *self._codes.mixed_rows(),
            (rf"{decimal}(?P<dash> ?[-–~] ?)(?=\d)", self._read_range),
            (decimal, self._read_number),
        )

    def _read_number(self, scan: ScanState, match: re.Match[str]) -> int:
        whole, fraction = match["whole"], match["fraction"]
        is_code = whole.isdigit() and not fraction and self._codes.is_code(scan, whole)
        if is_code and not self._is_counted(scan, match):
            return self._speller.read_digits(scan, match)
        previous = scan.context.previous_word
        rules = self.year_rules_after(scan)
        years = self._year_joint.match(scan.view, match.end()) if len(whole) == 4 else None
        if years:
            is_one_case = years["joint"] in self._table.case_joints
            rules = (
                self._ordinals.rules_of_suffix(scan, match, years) if is_one_case else self._table.year_rules
            )
        if rules and whole.isdigit() and len(whole) == 4:
            return self._speller.emit_number(scan, self._numbers.spell_out(int(whole), rules), *match.span())
        number = self._numbers.value(whole)
        governor = self._table.governor(previous, scan.view[: match.start()])
        decade = self._table.ordinal_rules.get(governor, "")
        is_decade = len(whole) == 2 and whole[1] == "0" and scan.view.startswith(".", match.end())
        if is_decade and not fraction and decade.startswith("plural"):  # "w latach 90."
            return self._speller.emit_number(scan, self._numbers.spell_out(number, decade), *match.span())
        ordinal = self._bare_ordinal(previous, scan.next_word(match.end())) if not fraction else None
        if ordinal and number > 1 and scan.view[match.end() : match.end() + 1] == " ":
            return self._speller.emit_number(scan, self._numbers.spell_out(number, ordinal), *match.span())
        case = self._context.case_by_noun(scan, match, number)
        gender = self._context.gender_of_noun_before(scan, match.end())
        one = ""
        if gender is None:
            gender = self._context.gender_of_counted(scan, match.end(), number, case)
            if fraction:
                gender = self._context.gender_of_noun(scan, match.end(), 1, "genitive")
            is_one = whole == "1" and not fraction
            one = self._numbers.one(gender, scan.next_word(match.end())) if is_one else ""
        words = one or self._numbers.year_or_amount(whole, fraction, gender, case)
        if fraction and self._table.point_word and scan.view[match.end("whole")] == ".":
            words = self._numbers.with_point(whole, fraction)
        return self._speller.emit_number(scan, words, *match.span())

    def year_rules_after(self, scan: ScanState) -> str | None:
        """Return the rule set of a year after the words before it, or None for a number as any other."""
        return None

    def _is_counted(self, scan: ScanState, match: re.Match[str]) -> bool:
        """Whether a known noun follows a short number: "une réservation pour 120 personnes"."""
        is_short = len(match["whole"]) < _MIN_CODE_DIGITS and match["whole"][0] != "0"
        noun = scan.next_word(match.end())
        return is_short and (noun in self._table.genders or noun in self._unit_plurals)

    def _bare_ordinal(self, previous: str, noun: str) -> str | None:
        """Return the rule set of an ordinal without a sign between two words, or None for a cardinal."""
        ordinals = self._table.bare_ordinals
        return ordinals.get(f"{previous}_{noun}") or ordinals.get(noun)

    def _read_range(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the first number of "3-5" and the dash."""
        is_change = match["dash"] in (" -", " –") and scan.view.endswith("+", 0, match.start())
        if is_change:  # "+320 -41"
            return None
        if self._codes.is_code(scan, match["whole"]):
            return None
        gender = self._gender_after_range(scan, match) if self._table.few_gender_by_ending else ""
        words = self._numbers.year_or_amount(
            match["whole"], match["fraction"], gender, self._context.case(scan, match)
        )
        years = self._years_ahead.match(scan.view, match.end()) if len(match["whole"]) == 4 else None
        previous = scan.context.previous_word
        if years:
            rules = self._ordinals.rules_of_suffix(scan, match, years)
            words = self._numbers.spell_out(int(match["whole"]), rules)
        scan.emit(words, match.start(), match.start("dash"))
        second = self._integer_ahead.match(scan.view, match.end())
        falls = second and self._numbers.value(second.group()) <= self._numbers.value(match["whole"])
        falls = falls and not self._hour_ahead.match(scan.view, match.end())  # "23-5 Uhr"
        falls = falls or scan.context.previous_word in self.address_number_words
        is_set = self._is_set(scan, match)
        falls = falls or is_set
        # "221-18" and "88-4127" are the numbers of an article and of an order.
        is_code = falls or (second and _are_parts_of_code(match["whole"], second.group()))
        joint = "" if is_code else self._table.range_word
        if second:
            joint = self.house_joint(scan, match.start(), second.end()) or joint
        scan.emit(joint, match.start("dash"), match.end())
        is_pair_of_years = second is not None and len(match["whole"]) == len(second.group()) == 4
        scan.context.previous_word = "" if is_pair_of_years else joint or previous
        if years:
            scan.context.previous_word = previous
        if is_set:
            scan.context.previous_word = _SET_WORD
        return match.end()

    def _is_set(self, scan: ScanState, match: re.Match[str]) -> bool:
        """Whether "7-6 (5)" is a set of tennis; one that was lost comes after another: "6-4, 3-6"."""
        patterns = [_SET, _WON_SET]
        if scan.context.previous_word == "0" and scan.context.word_before_number == _SET_WORD:
            patterns.append(_LOST_SET)
        return any(pattern.match(scan.view, match.start()) for pattern in patterns)

    def _gender_after_range(self, scan: ScanState, match: re.Match[str]) -> str:
        """Return the gender of what "1-2 minuty" counts."""
        second = self._counted.match(scan.view, match.end())
        if second is None:
            return ""
        unit = self._table.units.get(second["unit"] or "")
        return unit.gender if unit else self._context.gender_of_noun(scan, second.end(), 2)

    def house_joint(self, scan: ScanState, start: int, stop: int) -> str:
        """Return the word between two numbers at ``start`` to ``stop`` if they are of a house, else ""."""
        return ""

    def _read_minus(self, scan: ScanState, match: re.Match[str]) -> int | None:
        if match.start() and not scan.view[match.start() - 1].isspace():
            return None
        if _SEPARATOR.search(scan.view, max(0, match.start() - 2), match.end() + 1):
            return None
        is_code = scan.context.previous_word in self._table.code_words
        if is_code and not self._amount_ahead.match(scan.view, match.end()):
            return match.end()
        scan.emit(self._table.minus_word, match.start(), match.end())
        return match.end()

    def _read_sign_of_noun(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the sign of "-26 ans" and "+65 ans"."""
        words = self._table.signed_nouns.get(f"{match['sign']}{match['noun']}".replace("−", "-"))
        if words is None or (match.start() and scan.view[match.start() - 1].isalnum()):
            return None
        scan.emit(words, *match.span())
        return match.end()

    def _read_percent(self, scan: ScanState, match: re.Match[str]) -> int:
        words = self._numbers.counted(
            match["whole"], match["fraction"], self._table.percent, self._context.case(scan, match)
        )
        return self._speller.emit_number(scan, words, *match.span())

    def _read_unit(self, scan: ScanState, match: re.Match[str]) -> int | None:
        # "§ 7 ust. 2 pkt 3" and "5 m. 3" have the abbreviation of a word before a number.
        is_word = match["unit"].removesuffix(".") in self._table.numbered_words
        if is_word and self._number_ahead.match(scan.view, match.end()):
            return None
        if match["unit"] in self._table.verb_units and scan.view[match.end() : match.end() + 1] == " ":
            following = scan.next_word(match.end())
            if following[:1].islower() and following not in self._table.words_after_units:
                return None
        if match["unit"].isupper() and scan.context.previous_word in self._table.section_words:
            return None  # "art. 5 GW" is of a law
        # "№ 104В" has a letter.
        is_joined = match.group()[-2].isdigit() and match["unit"].isupper()
        is_lettered = scan.context.previous_word in self.lettered_words
        if is_joined and (is_lettered or scan.context.code_words_left):
            return None
        noun = self._table.units[match["unit"]]
        words = self._numbers.counted(
            match["whole"], match["fraction"], noun, self._context.case(scan, match)
        )
        scan.emit(words, *match.span())
        scan.context.counted_gender = noun.gender
        end = self._speller.finish_number(scan, self._rates.read_per(scan, match.end(), "/"))
        self._codes.note_announcement(scan, noun.forms[0])
        return end

    def _read_pages(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "412 S." of a book."""
        page, mark = self._table.page, self._table.page_mark
        at = match.end() - len(mark)
        others = (each for each in self._table.bare_abbreviations if each.startswith(f"{mark} "))
        if page is None or any(scan.view.startswith(other, at) for other in others):
            return None  # "6698 s. Kanun"
        words = self._numbers.counted(match["whole"], None, page, self._context.case(scan, match))
        return self._speller.emit_number(scan, words, *match.span())

    def _read_unit_range(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "2~3명" with its unit twice, and "90-110 km/sa", whose unit is around the numbers."""
        noun, table = self._table.units[match["unit"]], self._table
        falls = self._numbers.value(match["low"]) >= self._numbers.value(match["whole"])
        if falls and "~" not in match["dash"]:
            return None
        if len(match["low"]) > 2 and self._codes.is_code(scan, match["low"]):
            return None
        if " {}" in noun.forms[-1]:
            numbers = self._numbers.amount(match["low"], match["low_fraction"], noun.gender), table.range_word
            high = self._numbers.amount(match["whole"], match["fraction"], noun.gender)
            scan.emit(with_noun(" ".join((*numbers, high)), noun.forms[-1]), *match.span())
        elif self.repeats_units and not noun.forms[-1].startswith("{}"):
            low = self._numbers.counted(match["low"], match["low_fraction"], noun)
            scan.emit(f"{low} {table.range_word}", match.start(), match.end("dash"))
            high = self._numbers.counted(match["whole"], match["fraction"], noun)
            scan.emit(high, match.end("dash"), match.end())
        else:
            return None
        return self._speller.finish_number(scan, self._rates.read_per(scan, match.end()))
