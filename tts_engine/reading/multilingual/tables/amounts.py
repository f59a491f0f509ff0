"""Rules of amounts in a language that a table describes: numbers, ranges, percent, money, units, ordinals."""

import re

from ...roman_numerals import roman_value
from ...tokenizer import RuleRow, ScanState, any_of
from .codes import TableCodes
from .language_tables import LanguageTable
from .numbers import TableNumberWords
from .plural_rules import CountedNoun
from .speller import TableSpeller

_MIN_NOUN_LETTERS = 3  # of a noun whose ending tells its gender
_FEW = 1  # plural category of 2, 3 and 4
_ROMAN_BEHIND = re.compile(r"(?<!\w)[IVXLC]{2,7} [^\W\d_A-Z]{1,3} \Z")  # "XV e "
_COUNTED_NOUN_BEHIND = re.compile(r"\d [^\W\d_]{2,20}\Z")


class TableAmounts:
    """Recognisers of amounts of one language."""

    def __init__(
        self, table: LanguageTable, numbers: TableNumberWords, speller: TableSpeller, codes: TableCodes
    ) -> None:
        self._table, self._numbers, self._speller, self._codes = table, numbers, speller, codes
        group = f"[{re.escape(table.thousands_separators)}]"
        self.integer = rf"(?:\d{{1,3}}(?:{group}\d{{3}})+|\d+)(?!\d)"
        self._has_decimal_comma = "," not in table.thousands_separators
        self._decimal_mark = "[.,]" if self._has_decimal_comma else "."
        self._decimal = rf"(?P<whole>{self.integer})(?:{self._decimal_mark}(?P<fraction>\d+))?"
        self._end = r"(?![A-Za-z0-9])" if table.particles else r"(?!\w)"
        self._signs = any_of(sign for sign in table.money if not sign[-1].isalpha()) or r"(?!)"
        self._magnitudes = any_of(table.magnitudes) or r"(?!)"
        self._size_word = table.size_word or table.marks["×"]
        units = any_of(table.units)
        self._per = re.compile(
            rf" ?/ ?(?:(?P<count>\d{{1,3}}) ?(?P<counted>{units}){self._end}"
            rf"|(?P<unit>(?:{units}){self._end}|[^\W\d_]{{1,20}}\b)|(?P<number>\d{{1,3}}(?!\d)))"
        )

    def sign_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of amounts that begin with a sign."""
        return (
            *self.money_rows(),
            (rf"% ?{self._decimal}", self._read_percent_sign),
            (rf"[-−](?=(?:{self._signs})? ?\d)", self._read_minus),
            (rf"/(?:{any_of(self._table.per_nouns) or '(?!)'})(?!\w)", self._read_slash),
        )

    def money_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of money that begins with a currency."""
        amount = rf"(?P<currency>{self._signs})\s?{self._decimal}"
        repeated = rf"(?:(?:{self._signs})\s?)?"
        low = rf"(?P<low_currency>{self._signs})\s?(?P<low>{self.integer})"
        low += rf"(?:{self._decimal_mark}(?P<low_fraction>\d\d))?"
        return (
            (rf"{amount}\s(?P<magnitude>{self._magnitudes}){self._end}", self._read_large_money),
            (
                rf"{low}(?:[-–]| ?[-–] ?(?={self._signs})){repeated}{self._decimal}"
                rf"(?!\d|\s(?:{self._magnitudes}))",
                self._read_money_range,
            ),
            (rf"{amount}(?:,-{{1,2}}(?!\d))?", self._read_money),
        )

    def letter_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of the "x" of a size, and of Roman numerals."""
        return ((r"x(?= ?\d)", self._read_by), *self._roman_rows())

    def _roman_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of Roman numerals with a word or a suffix that tells what they are."""
        table = self._table
        rows: list[RuleRow] = []
        if table.roman_ordinals:
            after = any_of(table.roman_ordinals)
            rows.append(
                (rf"(?P<roman>[IVX]|[IVXLC]{{2,7}})(?P<word>{after})(?!\w)", self._read_roman_ordinal)
            )
        if table.roman_numbers:
            rows.append((r"(?P<roman>[IVX]|[IVXLC]{2,7})(?!\w)", self._read_roman_number))
        return tuple(rows)

    def number_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of amounts that begin with a digit."""
        table, end, decimal = self._table, self._end, self._decimal
        suffixes = any_of(table.ordinal_suffixes) or r"(?!)"
        money = f"(?P<currency>{any_of(table.money)}){end}"
        large = rf"{decimal}\s?(?P<magnitude>{self._magnitudes})"
        return (
            (rf"(?:{any_of(table.fractions) or '(?!)'})(?![\w/])", self._read_known_fraction),
            (r"(?P<over>\d{1,2}):(?P<under>\d{1,2}|(?<=\b1:)\d{3,5})(?![\d:])" + end, self._read_ratio),
            (rf"(?!0x){decimal}x(?=\d{{1,4}}(?![\dA-Z]))", self._read_size),
            (rf"(?P<whole>{self.integer})x{end}", self._read_times),
            (r"(?P<over>\d{1,3})/(?P<under>\d{1,3})(?![\d/])" + end, self._read_fraction),
            (rf"{decimal}\s?%", self._read_percent),
            (rf"{large}\s?{money}", self._read_large_money),
            (rf"{decimal}\s?{money}", self._read_money),
            (rf"{large}\s(?P<unit>{any_of(table.units)}){end}", self._read_large_unit),
            (rf"{large}{end}", self._read_magnitude),
            (rf"(?P<whole>{self.integer})(?P<suffix>{suffixes})(?!\w)", self._read_suffixed_ordinal),
            (rf"{decimal}\s?(?P<unit>{any_of(table.units)}){end}", self._read_unit),
            (r"(?P<number>\d{1,3})\.(?= [^\W\d_])", self._read_stop_ordinal),
            self._codes.mixed_row(),
            (rf"{decimal}(?P<dash> ?[-–~] ?)(?=\d)(?!\d+\.?[ºª])", self._read_range),
            (decimal, self._read_number),
        )

    # Words around a number

    def _emit(self, scan: ScanState, words: str, start: int, stop: int) -> int:
        scan.emit(words, start, stop)
        return self._speller.finish_number(scan, stop)

    def _case(self, scan: ScanState) -> str:
        return self._table.case_after(scan.context.previous_word)

    def _gender_of_noun(self, scan: ScanState, at: int, number: int) -> str:
        """Return the gender of the noun at ``at``, or "" for a word that is no noun."""
        table, noun = self._table, scan.next_word(at)
        lower = noun.lower()
        if not noun or lower in table.function_words:
            return ""
        if lower in table.genders:
            return table.genders[lower]
        if len(noun) < _MIN_NOUN_LETTERS:
            return ""
        is_few = self._numbers.plural(number) == _FEW and table.few_gender_by_ending
        endings = table.few_gender_by_ending if is_few else table.gender_by_ending
        known = next((gender for ending, gender in endings.items() if lower.endswith(ending)), "")
        if known or (table.nouns_are_capitalized and not noun[0].isupper()):
            return known
        return table.noun_gender

    def _read_per(self, scan: ScanState, at: int) -> int:
        """Read the "/Monat" after a price or a unit, and return where it ends."""
        match = self._per.match(scan.view, at)
        if match is None or (match["counted"] and scan.view.endswith(match["counted"], 0, at)):
            return at  # "16 GB/512 GB" are two amounts
        scan.emit(self._per_words(match), at, match.end())
        return match.end()

    def _per_words(self, match: re.Match[str]) -> str:
        """Return the words of "/100 km", "/7" or "/kg"."""
        table = self._table
        if match["count"]:
            counted = self._numbers.counted(match["count"], None, table.units[match["counted"]])
            return f"{table.per_word} {counted}"
        if match["number"]:
            return f"{table.fraction_word} {self._numbers.number(int(match['number']))}"
        unit = match["unit"]
        words = table.per.get(unit) or table.per.get(unit.lower())
        name = table.units[unit].forms[0] if unit in table.units else unit
        return words or f"{table.per_word} {name}"

    # Numbers

    def _read_number(self, scan: ScanState, match: re.Match[str]) -> int:
        whole, fraction = match["whole"], match["fraction"]
        if whole.isdigit() and not fraction and self._codes.is_code(scan, whole):
            return self._speller.read_digits(scan, match)
        rules = self._table.years_after.get(scan.context.previous_word)
        if rules and whole.isdigit() and len(whole) == 4:
            return self._emit(scan, self._numbers.spell_out(int(whole), rules), *match.span())
        has_stop = fraction and self._has_decimal_comma and scan.view[match.start("fraction") - 1] == "."
        if has_stop and scan.context.previous_word != self._table.range_word:
            return self._emit(scan, self._numbers.pointed(whole, fraction), *match.span())
        gender = self._gender_of_noun(scan, match.end(), self._numbers.value(whole))
        words = self._numbers.year_or_amount(whole, fraction, gender, self._case(scan))
        return self._emit(scan, words, *match.span())

    def _read_range(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the first number of "3-5" and the dash."""
        if self._codes.is_code(scan, match["whole"]):
            return None
        words = self._numbers.year_or_amount(match["whole"], match["fraction"], "", self._case(scan))
        scan.emit(words, match.start(), match.start("dash"))
        if not self._is_score(scan, match):
            scan.emit(self._table.range_word, match.start("dash"), match.end())
        scan.context.previous_word = self._table.range_word
        return match.end()

    def _is_score(self, scan: ScanState, match: re.Match[str]) -> bool:
        """Whether the second number of "3-1" is not larger than the first, or is a code as in "24-00123"."""
        other = re.compile(self.integer).match(scan.view, match.end())
        if not self._table.ranges_rise or other is None:
            return False
        is_larger = self._numbers.value(other.group()) > self._numbers.value(match["whole"])
        return not is_larger or other.group()[0] == "0"

    def _read_known_fraction(self, scan: ScanState, match: re.Match[str]) -> int | None:
        if scan.context.previous_word in self._table.slash_cues:
            return None
        words, _, feminine = self._table.fractions[match.group()].partition("|")
        is_feminine = feminine and self._gender_of_noun(scan, match.end(), 1) == "f"
        return self._emit(scan, feminine if is_feminine else words, *match.span())

    def _read_ratio(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "3:1" of a score."""
        if not self._table.ratio_word:
            return None
        over, under = self._numbers.amount(match["over"], None), self._numbers.amount(match["under"], None)
        return self._emit(scan, f"{over} {self._table.ratio_word} {under}", *match.span())

    def _read_size(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read the "35x" of "35x45 mm"."""
        amount = self._numbers.amount(match["whole"], match["fraction"])
        return self._emit(scan, f"{amount} {self._size_word}", *match.span())

    def _read_by(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "x" of "35 x 45 mm"."""
        if not scan.context.after_number:
            return None
        return self._emit(scan, self._size_word, *match.span())

    def _read_times(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "3x" as "drei mal"."""
        if self._table.times is None:
            return None
        words = self._numbers.counted(match["whole"], None, self._table.times, self._case(scan))
        return self._emit(scan, words, *match.span())

    def _read_slash(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "/jour" of "3 fois/jour"."""
        is_counted = _COUNTED_NOUN_BEHIND.search(scan.view, max(0, match.start() - 24), match.start())
        return self._read_per(scan, match.start()) if is_counted else None

    def _read_fraction(self, scan: ScanState, match: re.Match[str]) -> int:
        over, under = self._numbers.amount(match["over"], None), self._numbers.amount(match["under"], None)
        words = f"{over} {self._table.fraction_word} {under}"
        if scan.context.previous_word in self._table.slash_cues:
            words = f"{over} {under}"
        if self._table.particles:  # Korean names the lower number first
            words = f"{under}{self._table.fraction_word} {over}"
        return self._emit(scan, words, *match.span())

    def _read_minus(self, scan: ScanState, match: re.Match[str]) -> int | None:
        if match.start() and not scan.view[match.start() - 1].isspace():
            return None
        if scan.context.after_number and scan.view[match.end()] == " ":
            return None
        scan.emit(self._table.minus_word, match.start(), match.end())
        return match.end()

    # Amounts with a noun

    def _read_percent(self, scan: ScanState, match: re.Match[str]) -> int | None:
        if self._table.percent_prefix:
            return self._read_percent_sign(scan, match)
        words = self._numbers.counted(
            match["whole"], match["fraction"], self._table.percent, self._case(scan)
        )
        return self._emit(scan, words, *match.span())

    def _read_percent_sign(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "%20", as Turkish writes it."""
        if not self._table.percent_prefix:
            return None
        amount = self._numbers.amount(match["whole"], match["fraction"])
        return self._emit(scan, f"{self._table.percent_prefix} {amount}", *match.span())

    def _read_money(self, scan: ScanState, match: re.Match[str]) -> int:
        words = self._numbers.money(match["whole"], match["fraction"], match["currency"], self._case(scan))
        scan.emit(words, *match.span())
        return self._speller.finish_number(scan, self._read_per(scan, match.end()))

    def _read_money_range(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "€ 10-15" or "€ 10 - € 15"."""
        unit, _ = self._table.money[match["low_currency"]]
        words = self._numbers.amount(match["low"], match["low_fraction"], unit.gender, self._case(scan))
        scan.emit(words, match.start(), match.end("low"))
        scan.emit(self._table.range_word, match.end("low"), match.start("whole"))
        money = self._numbers.money(match["whole"], match["fraction"], match["low_currency"])
        scan.emit(money, match.start("whole"), match.end())
        return self._speller.finish_number(scan, self._read_per(scan, match.end()))

    def _read_large_money(self, scan: ScanState, match: re.Match[str]) -> int:
        unit, _ = self._table.money[match["currency"]]
        return self._emit_large_amount(scan, match, unit)

    def _read_large_unit(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "15 mil km"."""
        return self._emit_large_amount(scan, match, self._table.units[match["unit"]])

    def _emit_large_amount(self, scan: ScanState, match: re.Match[str], unit: CountedNoun) -> int:
        words = self._numbers.large_amount(
            match["whole"], match["fraction"], match["magnitude"], unit, self._case(scan)
        )
        return self._emit(scan, words, *match.span())

    def _read_magnitude(self, scan: ScanState, match: re.Match[str]) -> int:
        noun = self._table.magnitudes[match["magnitude"]]
        words = self._numbers.counted(match["whole"], match["fraction"], noun, self._case(scan))
        return self._emit(scan, words, *match.span())

    def _read_unit(self, scan: ScanState, match: re.Match[str]) -> int | None:
        prefix = self._table.ordinal_prefix
        if prefix and scan.view.endswith(prefix, 0, match.start()):
            return None
        noun = self._table.units[match["unit"]]
        words = self._numbers.counted(match["whole"], match["fraction"], noun, self._case(scan))
        scan.emit(words, *match.span())
        return self._speller.finish_number(scan, self._read_per(scan, match.end()))

    # Ordinals

    def _read_suffixed_ordinal(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "1er"; a suffix that begins with a blank may be read as another word."""
        number, suffix, suffixes = match["whole"], match["suffix"], self._table.ordinal_suffixes
        # "г." is the year after four digits, else grams.
        if suffix.startswith(" ") and len(number) != 4:
            return None
        reading = suffixes.get(f"{scan.context.previous_word}{suffix}", suffixes[suffix])
        rules, _, word = reading.partition(": ")
        words = self._numbers.spell_out(self._numbers.value(number), rules)
        if not word:
            return self._emit(
                scan, words, match.start(), match.end("whole" if suffix[0] == " " else "suffix")
            )
        scan.emit(words, *match.span("whole"))
        self._emit(scan, word, match.start("suffix") + 1, match.end())
        if not scan.next_visible(match.end()):
            scan.punctuate(".")
        return match.end()

    def _read_stop_ordinal(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "3." of "der 3. Stock", or of "3. kat" where a small letter follows an ordinal."""
        number = int(match["number"])
        rules = self._table.ordinal_rules.get(scan.context.previous_word)
        if rules is None and self._table.stop_ordinals and scan.next_word(match.end())[:1].islower():
            key = f"{self._gender_of_noun(scan, match.end(), 1)} {self._case(scan)}".strip()
            rules = self._table.stop_ordinals.get(key) or self._table.stop_ordinals[""]
        if rules is None:
            return None
        return self._emit(scan, self._numbers.spell_out(number, rules), *match.span())

    def _read_roman_ordinal(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "XX" of "XX secolo"; a suffix without a blank, as in "XXe", is part of it."""
        number, word = roman_value(match["roman"]), match["word"]
        if number is None:
            return None
        words = self._numbers.spell_out(number, self._table.roman_ordinals[word])
        return self._emit(scan, words, match.start(), match.end("roman" if word[0] == " " else "word"))

    def _read_roman_number(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "XX" of "siglo XX"."""
        number = roman_value(match["roman"])
        rules, _, last = self._table.roman_numbers.get(scan.context.previous_word, "").partition(" ")
        if len(match["roman"]) > 1 and _ROMAN_BEHIND.search(scan.view, 0, match.start()):
            rules = rules or "spellout-numbering"
        if number is None or not rules:
            return None
        if last and number > int(last):
            rules = "spellout-numbering"
        if self._table.roman_article and "ordinal" in rules:
            scan.emit(self._table.roman_article, *match.span())
        return self._emit(scan, self._numbers.spell_out(number, rules), *match.span())
