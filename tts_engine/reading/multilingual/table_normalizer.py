"""Grammar of the languages that a table describes: German, French, Spanish, Italian, Russian, Korean.

Numbers, money, dates, times, codes and addresses become words; other words stay as written. The languages are
covered less than English: a number in an oblique case is read in its base form.
"""

import re
import unicodedata

from ..address_patterns import SPACED_ADDRESSES, UNSPACED_ADDRESSES
from ..lazy_pattern import LazyPattern
from ..markup_rules import LINE_START_ROWS, MARKUP_ROWS, PUNCTUATION_ROWS
from ..reading_context import CODE_WINDOW
from ..spelling import LONG_DIGIT_GROUPS, Speller
from ..tokenizer import WORD, WORD_PATTERN, Grammar, RuleRow, ScanState, any_of, compile_rules
from .language_tables import LanguageTable
from .table_numbers import TableNumberWords

_INVERTED_MARKS = "¿¡"
_MIXED_RUN = re.compile(r"\d+|[^\W\d_]+")
_SILENT_MARKS = ".-_/#"  # named in addresses only
_PHONE_NUMBER = (
    r"0\d(?: \d\d){4}(?!\d)|(?:0\d+(?:[ /-]\d{2,})+|\d{3}-\d{4}|(?:\d ?)?(?:\(\d{2,4}\) ?)?"
    r"\d{2,4}(?:-\d{2,4}){2,3})(?![-\d])"
)
_MIN_LETTERS_FOR_GENDER = 3  # of a noun whose ending tells its gender


class TableNormalizer:
    """Recognisers of one language. Raises MissingExtra if unicode-rbnf is not installed."""

    def __init__(self, table: LanguageTable) -> None:
        self._table = table
        self._numbers = TableNumberWords(table)
        self._speller = Speller(
            table.marks,
            self._numbers.digit,
            lambda text: self._numbers.number(int(text)),
            point=table.marks["."],
            pairs_digits=table.pairs_digits,
        )
        group = f"[{re.escape(table.thousands_separators)}]"
        self._integer = rf"(?:\d{{1,3}}(?:{group}\d{{3}})+|\d+)(?!\d)"
        self._decimal = rf"({self._integer})(?:[.,](\d+))?"
        self._number_end = r"(?![A-Za-z0-9])" if table.particles else r"(?!\w)"

    def grammar(self) -> Grammar:
        """Return the grammar of the language."""
        lines = compile_rules(*LINE_START_ROWS, (r"(\d{1,3})[.)] +(?=\S)", self._speller.read_list_number))
        symbols = compile_rules(
            *MARKUP_ROWS,
            *self._sign_rows(),
            *PUNCTUATION_ROWS,
            (r"#(?![\w#])", self._read_telephone_key),
            (r"[^\w\s]", self._read_mark),
        )
        addresses = self._speller.address_rows(
            UNSPACED_ADDRESSES if self._table.particles else SPACED_ADDRESSES
        )
        letters = compile_rules(
            *addresses,
            *self._abbreviation_rows(),
            (r"[^\W\d_]{1,20}'(?=\d)", self._read_word),
            (r"[A-Za-z]{1,20}\d[A-Za-z0-9]{0,40}", self._read_mixed),
        )
        digits = compile_rules(
            *addresses,
            *self._date_and_code_rows(),
            *self._language_date_rows(),
            *self._number_rows(),
        )
        word = LazyPattern(rf"{WORD_PATTERN}(?:-{WORD_PATTERN})*"), self._read_word
        return Grammar(lines, letters, digits, symbols, word)

    def _abbreviation_rows(self) -> tuple[RuleRow, ...]:
        words = any_of(self._table.abbreviations)
        return ((rf"({words})\.|({words})(?=\s?\d)", self._read_abbreviation),) if words else ()

    def _sign_rows(self) -> tuple[RuleRow, ...]:
        money = any_of(sign for sign in self._table.money if not sign.isalpha())
        return (
            (rf"({money})\s?{self._decimal}", self._read_leading_money),
            (r"\+\d{1,3}(?:[ .-]?\(?\d{1,5}\)?){1,7}(?!\w)", self._speller.read_digit_groups),
            (r"[-−](?=\d)", self._read_minus),
            (rf"[{_INVERTED_MARKS}](?=[^\W\d_])", self._read_inverted_mark),
        )

    def _date_and_code_rows(self) -> tuple[RuleRow, ...]:
        table, end = self._table, self._number_end
        day_of_month = (
            rf"(\d{{1,2}})\.? ({any_of(table.months)})(?: (\d{{4}}))?(?!\w)",
            self._read_day_of_month,
        )
        spaced_code = (r"\d{3}(?: \d{2,3}){2,3}(?![\d-])", self._speller.read_digit_groups)
        return (
            (r"(\d{4})-(\d{2})-(\d{2})(?!\w|-\d)", self._read_iso_date),
            (r"(\d{1,2})[./](\d{1,2})[./](\d{4})(?!\w)", self._read_date),
            *((day_of_month,) if table.day_first else ()),
            # "14:30", "14h30", "14.30 Uhr"
            (
                rf"(\d{{1,2}})(?:[:h]|(?<=\d)\.(?=\d\d Uhr))(\d{{2}})(?: ?(?:Uhr|h))?{end}(?!:)",
                self._read_time,
            ),
            (
                rf"(?!{self._integer}(?!\.\d))\d+(?:\.\d+){{2,}}(?![\w.]\d)",
                self._speller.read_version,
            ),
            (_PHONE_NUMBER + end, self._speller.read_digit_groups),
            (LONG_DIGIT_GROUPS + end, self._speller.read_digit_groups),
            (r"\d(?:-\d{2,4}){3,4}(?![-\d])" + end, self._speller.read_digit_groups),
            *((spaced_code,) if " " not in table.thousands_separators else ()),
            (r"24/7(?![\w/])", self._read_twenty_four_seven),
            (r"(\d{1,3})/(\d{1,3})(?![\w/])", self._read_fraction),
        )

    def _language_date_rows(self) -> tuple[RuleRow, ...]:
        table = self._table
        rows: list[RuleRow] = []
        if table.day_month_stops:
            rows.append((r"(\d{1,2})\.(\d{1,2})\.(?!\d)", self._read_day_and_month))
        if table.month_readings:
            month = rf"({any_of(table.month_readings)})(?={table.month_suffix})"
            rows.append((month, self._read_irregular_month))
        return tuple(rows)

    def _number_rows(self) -> tuple[RuleRow, ...]:
        table, end = self._table, self._number_end
        suffixes = any_of(table.ordinal_suffixes) or r"(?!)"
        return (
            (rf"{self._decimal}\s?%", self._read_percent),
            (rf"{self._decimal}\s?({any_of(table.money)}){end}", self._read_trailing_money),
            (rf"({self._integer})({suffixes})(?!\w)", self._read_suffixed_ordinal),
            (rf"{self._decimal}\s?({any_of(table.units)}){end}", self._read_unit),
            (r"(\d{1,2})\.(?= [^\W\d_])", self._read_ordinal),
            (r"\d{1,20}[A-Za-z][A-Za-z0-9]{0,40}", self._read_mixed),
            (rf"{self._decimal}(?: ?[-–] ?(?=\d))", self._read_range),
            (self._decimal, self._read_number),
        )

    # Words

    def _read_word(self, scan: ScanState, match: re.Match[str]) -> int:
        word = unicodedata.normalize("NFC", match.group())
        scan.emit(word, match.start(), match.end())
        self._note_word(scan, word)
        return match.end()

    def _note_word(self, scan: ScanState, word: str) -> None:
        scan.context.note_word(word)
        if scan.context.previous_word in self._table.code_words:
            scan.context.code_words_left = CODE_WINDOW

    def _read_inverted_mark(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read ¿ or ¡ as part of the word after it, as a voice that takes text needs it."""
        word = WORD.compiled.match(scan.view, match.end())
        stop = word.end() if word else match.end()
        scan.emit(scan.view[match.start() : stop], match.start(), stop)
        self._note_word(scan, scan.view[match.end() : stop])
        return stop

    def _read_abbreviation(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read an abbreviation with its full stop, or without it before a number."""
        start = match.start()
        if start and scan.view[start - 1].isalnum():
            return None
        spoken = self._table.abbreviations[match.group(1) or match.group(2)]
        scan.emit(spoken, start, match.end())
        self._note_word(scan, spoken)
        if match.group(1) and not scan.next_visible(match.end()):
            scan.punctuate(".")
        return match.end()

    def _read_telephone_key(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read a lone # as the telephone key."""
        if match.start() and not scan.view[match.start() - 1].isspace():
            return None
        scan.emit(self._table.marks["#"], match.start(), match.end())
        self._note_word(scan, "#")
        return match.end()

    def _read_mark(self, scan: ScanState, match: re.Match[str]) -> int | None:
        name = self._table.marks.get(match.group())
        if name is None or match.group() in _SILENT_MARKS:
            return None
        scan.emit(name, match.start(), match.end())
        self._note_word(scan, name)
        return match.end()

    def _read_minus(self, scan: ScanState, match: re.Match[str]) -> int | None:
        if match.start() and not scan.view[match.start() - 1].isspace():
            return None
        scan.emit(self._table.minus_word, match.start(), match.end())
        return match.end()

    # Numbers

    def _emit_number(self, scan: ScanState, words: str, match: re.Match[str]) -> int:
        """Emit the words of the whole match and end the number."""
        scan.emit(words, match.start(), match.end())
        return self._speller.finish_number(scan, match.end())

    def _read_number(self, scan: ScanState, match: re.Match[str]) -> int:
        whole, fraction = match.group(1), match.group(2)
        if whole.isdigit() and not fraction and self._is_code(scan, whole):
            return self._speller.read_digits(scan, match)
        gender = self._gender_of_next_word(scan, match)
        return self._emit_number(scan, self._numbers.year_or_amount(whole, fraction, gender), match)

    def _gender_of_next_word(self, scan: ScanState, match: re.Match[str]) -> str:
        """Return the gender that the ending of the word after a number tells, or ""."""
        following = scan.next_word(match.end())
        if len(following) < _MIN_LETTERS_FOR_GENDER:
            return ""
        endings = self._table.gender_by_ending.items()
        return next((gender for ending, gender in endings if following.endswith(ending)), "")

    def _is_code(self, scan: ScanState, digits: str) -> bool:
        """Whether a number is a code: it begins with zero, was announced, or is long and not round."""
        has_leading_zero = len(digits) > 1 and digits[0] == "0"
        announced = scan.context.code_words_left > 0 and len(digits) > 2
        return has_leading_zero or announced or (len(digits) > 4 and not digits.endswith("000"))

    def _read_range(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the first number of "3-5" and the dash."""
        if not self._table.range_word or self._is_code(scan, match.group(1)):
            return None
        words = self._numbers.year_or_amount(match.group(1), match.group(2))
        scan.emit(words, match.start(), match.end(1))
        dash = match.start() + len(match.group().rstrip()) - 1
        scan.emit(self._table.range_word, dash, dash + 1)
        return match.end()

    def _read_twenty_four_seven(self, scan: ScanState, match: re.Match[str]) -> int:
        return self._emit_number(scan, f"{self._numbers.number(24)} {self._numbers.number(7)}", match)

    def _read_fraction(self, scan: ScanState, match: re.Match[str]) -> int:
        scan.emit(self._numbers.amount(match.group(1), None), match.start(), match.end(1))
        scan.emit(self._table.marks["÷"], match.end(1), match.start(2))
        scan.emit(self._numbers.amount(match.group(2), None), match.start(2), match.end())
        return self._speller.finish_number(scan, match.end())

    def _read_percent(self, scan: ScanState, match: re.Match[str]) -> int:
        words = self._numbers.amount_with_noun(match.group(1), match.group(2), self._table.percent)
        return self._emit_number(scan, words, match)

    def _read_unit(self, scan: ScanState, match: re.Match[str]) -> int | None:
        prefix = self._table.ordinal_prefix
        if prefix and scan.view.endswith(prefix, 0, match.start()):
            return None
        noun = self._table.units[match.group(3)]
        return self._emit_number(
            scan, self._numbers.amount_with_noun(match.group(1), match.group(2), noun), match
        )

    def _read_trailing_money(self, scan: ScanState, match: re.Match[str]) -> int:
        whole, fraction, currency = match.groups()
        return self._emit_number(scan, self._numbers.money(whole, fraction, currency), match)

    def _read_leading_money(self, scan: ScanState, match: re.Match[str]) -> int:
        currency, whole, fraction = match.groups()
        return self._emit_number(scan, self._numbers.money(whole, fraction, currency), match)

    def _read_suffixed_ordinal(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "1er"; a suffix that begins with a blank decides the ordinal and is read as a word."""
        number, suffix = match.groups()
        # "г." is the year after four digits, else grams.
        if suffix.endswith(".") and len(number) != 4:
            return None
        words = self._numbers.ordinal(self._numbers.value(number), self._table.ordinal_suffixes[suffix])
        end = match.end(1) if suffix[0] == " " else match.end()
        scan.emit(words, match.start(), end)
        return self._speller.finish_number(scan, end)

    def _read_ordinal(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "3." of "der 3. Stock"."""
        rules = self._table.ordinal_rules.get(scan.context.previous_word)
        if rules is None:
            return None
        return self._emit_number(scan, self._numbers.ordinal(int(match.group(1)), rules), match)

    # Dates and times

    def _read_day_of_month(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "3. März 2026"."""
        day, month, year = match.groups()
        if not 1 <= int(day) <= 31:
            return None
        scan.emit(self._numbers.day(int(day), scan.context.previous_word), match.start(), match.end(1))
        scan.emit(month, match.start(2), match.end(2))
        if year:
            scan.emit(self._numbers.year(int(year)), match.start(3), match.end(3))
        return self._speller.finish_number(scan, match.end())

    def _read_day_and_month(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "24.12."."""
        day, month = int(match.group(1)), int(match.group(2))
        if not (1 <= month <= 12 and 1 <= day <= 31):
            return None
        scan.emit(self._numbers.day(day, scan.context.previous_word), match.start(), match.end(1))
        scan.emit(self._table.months[month - 1], match.start(2), match.end())
        return self._speller.finish_number(scan, match.end())

    def _read_irregular_month(self, scan: ScanState, match: re.Match[str]) -> int:
        return self._emit_number(scan, self._table.month_readings[match.group()], match)

    def _read_date(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "31.12.2025"."""
        day, month, year = map(int, match.groups())
        return self._emit_date(scan, match, year, month, day)

    def _read_iso_date(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "2026-03-05"."""
        year, month, day = map(int, match.groups())
        return self._emit_date(scan, match, year, month, day)

    def _emit_date(
        self, scan: ScanState, match: re.Match[str], year: int, month: int, day: int
    ) -> int | None:
        if not (1 <= month <= 12 and 1 <= day <= 31):
            return None
        return self._emit_number(
            scan, self._numbers.date(year, month, day, scan.context.previous_word), match
        )

    def _read_time(self, scan: ScanState, match: re.Match[str]) -> int | None:
        hour, minute = int(match.group(1)), int(match.group(2))
        if hour > 24 or minute > 59:
            return None
        return self._emit_number(scan, self._numbers.time(hour, minute), match)

    # Codes

    def _read_mixed(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read letters with digits: the letters as written, long numbers digit by digit."""
        if match.group().isdigit():
            return None
        for run in _MIXED_RUN.finditer(scan.view, match.start(), match.end()):
            text = run.group()
            if not text.isdigit():
                scan.emit(text, run.start(), run.end())
            elif len(text) < 3 and text[0] != "0":
                scan.emit(self._numbers.number(int(text)), run.start(), run.end())
            else:
                self._speller.spell(scan, run.start(), run.end())
        scan.context.after_number = scan.context.line_start = False
        return match.end()
