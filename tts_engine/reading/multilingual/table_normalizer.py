"""Reads languages that a table describes: German, French, Spanish, Italian, Russian, Korean.

Words go through as they are written; numbers, money, dates, times, codes and addresses become words. Less is
known of them than of English: a number in an oblique case is said in its plain one.
"""

import re
import unicodedata
from collections.abc import Iterator

from ..markup_rules import LINE_START_ROWS, MARKUP_ROWS, PUNCTUATION_ROWS
from ..tokenizer import CODE_WINDOW, WORD, WORD_PATTERN, Grammar, RuleRow, ScanState, compile_rules
from .language_tables import GERMAN_ORDINAL_ENDINGS, LanguageTable
from .number_formatter import MAX_NUMBER_DIGITS, NumberFormatter
from .spelling import LONG_DIGIT_GROUPS, Speller, finish_number

_GENDER_RULES = {
    "m": "spellout-cardinal-masculine",
    "f": "spellout-cardinal-feminine",
    "n": "spellout-cardinal-neuter",
    "k": "spellout-cardinal-native-attributive",
    "h": "spellout-cardinal-native-attributive",
}
_INVERTED_MARKS = "¿¡"
_MIXED_RUN = re.compile(r"\d+|[^\W\d_]+")


def _alternatives(words: Iterator[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


class TableNormalizer:
    """The readings of one language. Raises MissingExtra without its number words."""

    def __init__(self, language: LanguageTable) -> None:
        self._language = language
        self._number_formatter = NumberFormatter(language.code, language.number_rules)
        self._speller = Speller(
            language.marks, self._digit_word, lambda text: self._number_in_words(int(text))
        )
        self._months = {name.lower(): place for place, name in enumerate(language.months, 1)}
        group = f"[{re.escape(language.thousands_separators)}]"
        self._integer = rf"(?:\d{{1,3}}(?:{group}\d{{3}})+|\d+)(?!\d)"
        self._decimal = rf"({self._integer})(?:[.,](\d+))?"
        self._separator = re.compile(group)

    def grammar(self) -> Grammar:
        """How it is read."""
        lines = compile_rules(*LINE_START_ROWS, (r"(\d{1,3})[.)] +(?=\S)", self._speller.read_list_number))
        symbols = (
            *compile_rules(*MARKUP_ROWS, *self._sign_rows()),
            *compile_rules(
                *PUNCTUATION_ROWS, (r"#(?![\w#])", self._read_telephone_key), (r"[^\w\s]", self._read_mark)
            ),
        )
        letters = compile_rules(
            *self._address_rows(),
            *self._abbreviation_rows(),
            (r"[^\W\d_]{1,20}'(?=\d)", self._read_word),
            (r"[A-Za-z]{1,20}\d[A-Za-z0-9]{0,40}", self._read_mixed),
        )
        word = re.compile(rf"{WORD_PATTERN}(?:-{WORD_PATTERN})*"), self._read_word
        return Grammar(
            lines, letters, compile_rules(*self._address_rows(), *self._number_rows()), symbols, word
        )

    def _address_rows(self) -> tuple[RuleRow, ...]:
        return (
            (r"(?:https?|ftp)://[^\s<>()\[\]\"]{1,300}", self._speller.read_address),
            (
                r"[A-Za-z0-9][\w.+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?!\w)",
                self._speller.read_address,
            ),
            (r"www\.[^\s<>()\[\]\"]{1,200}", self._speller.read_address),
            (
                r"(?:[A-Za-z0-9-]{1,63}\.){1,4}(?:com|org|net|de|fr|es|it|ru|kr|eu|io|ch|at)(?![\w-]|\.\w)",
                self._speller.read_address,
            ),
        )

    def _abbreviation_rows(self) -> tuple[RuleRow, ...]:
        words = _alternatives(iter(self._language.abbreviations))
        return ((rf"({words})\.|({words})(?=\s?\d)", self._read_abbreviation),) if words else ()

    def _sign_rows(self) -> tuple[RuleRow, ...]:
        money = _alternatives(sign for sign in self._language.money if not sign.isalpha())
        return (
            (rf"({money})\s?{self._decimal}", self._read_leading_money),
            (r"\+\d{1,3}(?:[ .-]?\(?\d{1,5}\)?){1,7}(?!\w)", self._read_groups),
            (r"[-−](?=\d)", self._read_minus),
            (rf"[{_INVERTED_MARKS}](?=[^\W\d_])", self._read_inverted_mark),
        )

    def _number_rows(self) -> tuple[RuleRow, ...]:
        table = self._language
        months = _alternatives(iter(table.months))
        money = _alternatives(iter(table.money))
        units = _alternatives(iter(table.units))
        suffixes = _alternatives(iter(table.suffixes)) or r"(?!)"
        # Korean particles follow a number without a blank.
        hangul = r"(?![A-Za-z0-9])" if table.code == "ko" else r"(?!\w)"
        return (
            (r"()(\d{4})-(\d{2})-(\d{2})(?!\w|-\d)", self._read_iso_date),
            (r"()(\d{1,2})[./](\d{1,2})[./](\d{4})(?!\w)", self._read_date),
            (rf"(\d{{1,2}})\.? ({months})(?: (\d{{4}}))?(?!\w)", self._read_day_of_month),
            (
                rf"(\d{{1,2}})(?:[:h]|(?<=\d)\.(?=\d\d Uhr))(\d{{2}})(?: ?(?:Uhr|h))?{hangul}(?!:)",
                self._read_time,
            ),
            (rf"(?!{self._integer}(?!\.\d))\d+(?:\.\d+){{2,}}(?![\w.]\d)", self._speller.read_version),
            (
                r"0\d(?: \d\d){4}(?!\d)|(?:0\d+(?:[ /-]\d{2,})+|\d{3}-\d{4}|(?:\d ?)?(?:\(\d{2,4}\) ?)?"
                r"\d{2,4}(?:-\d{2,4}){2,3})(?![-\d])" + hangul,
                self._read_groups,
            ),
            (LONG_DIGIT_GROUPS + hangul, self._read_groups),
            (r"\d(?:-\d{2,4}){3,4}(?![-\d])" + hangul, self._read_groups),
            *(
                ()
                if " " in table.thousands_separators
                else ((r"\d{3}(?: \d{2,3}){2,3}(?![\d-])", self._read_groups),)
            ),
            (r"24/7(?![\w/])", self._read_twenty_four_seven),
            (r"(\d{1,3})/(\d{1,3})(?![\w/])", self._read_fraction),
            *self._language_date_rows(),
            (rf"{self._decimal}\s?%", self._read_percent),
            (rf"{self._decimal}\s?({money}){hangul}", self._read_money),
            (rf"({self._integer})({suffixes})(?!\w)", self._read_suffixed),
            (rf"{self._decimal}\s?({units}){hangul}", self._read_unit),
            (r"(\d{1,2})\.(?= [^\W\d_])", self._read_ordinal),
            (r"\d{1,20}[A-Za-z][A-Za-z0-9]{0,40}", self._read_mixed),
            (rf"{self._decimal}(?: ?[-–] ?(?=\d))", self._read_range),
            (self._decimal, self._read_number),
        )

    def _language_date_rows(self) -> tuple[RuleRow, ...]:
        match self._language.code:
            case "de":
                return ((r"(\d{1,2})\.(\d{1,2})\.(?!\d)", self._read_day_and_month),)
            case "ko":
                return ((r"(6|10)(?=월)", self._read_korean_month),)
        return ()

    # Words

    def _read_word(self, scan: ScanState, match: re.Match[str]) -> int:
        word = unicodedata.normalize("NFC", match.group())
        scan.emit(word, match.start(), match.end())
        self._note_word(scan, word)
        return match.end()

    def _note_word(self, scan: ScanState, word: str) -> None:
        scan.context.note_foreign_word(word)
        if scan.context.previous_word in self._language.code_words:
            scan.context.code_words_left = CODE_WINDOW

    def _read_inverted_mark(self, scan: ScanState, match: re.Match[str]) -> int:
        """¿ and ¡ belong to the word that they stand before."""
        word = WORD.match(scan.view, match.end())
        stop = word.end() if word else match.end()
        scan.emit(scan.view[match.start() : stop], match.start(), stop)
        self._note_word(scan, scan.view[match.end() : stop])
        return stop

    def _read_abbreviation(self, scan: ScanState, match: re.Match[str]) -> int | None:
        start = match.start()
        if start and scan.view[start - 1].isalnum():
            return None
        word = match.group(1) or match.group(2)
        said = self._language.abbreviations[word]
        scan.emit(said, start, match.end())
        self._note_word(scan, said)
        if match.group(1) and not scan.next_visible(match.end()):
            scan.punctuate(".")
        return match.end()

    def _read_telephone_key(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """The key of a telephone."""
        if match.start() and not scan.view[match.start() - 1].isspace():
            return None
        scan.emit(self._language.marks["#"], match.start(), match.end())
        self._note_word(scan, "#")
        return match.end()

    def _read_mark(self, scan: ScanState, match: re.Match[str]) -> int | None:
        said = self._language.marks.get(match.group())
        if said is None or match.group() in ".-_/#":
            return None
        scan.emit(said, match.start(), match.end())
        self._note_word(scan, said)
        return match.end()

    def _read_minus(self, scan: ScanState, match: re.Match[str]) -> int | None:
        if match.start() and not scan.view[match.start() - 1].isspace():
            return None
        scan.emit(self._language.minus_word, match.start(), match.end())
        return match.end()

    # Numbers

    def _number_in_words(self, number: int, kind: str = "") -> str:
        rules = _GENDER_RULES.get(kind, self._language.number_rules)
        max_number = {"k": 99, "h": 12}.get(kind, number)
        if number > max_number or (kind in ("k", "h") and not number):
            rules = self._language.number_rules
        return self._number_formatter.spell_out(number, rules)

    def _digit_word(self, digit: str) -> str:
        return (
            self._language.zero_digit
            if digit == "0" and self._language.zero_digit
            else self._number_in_words(int(digit))
        )

    def _amount_in_words(self, whole: str, fraction: str | None, kind: str = "") -> str:
        """An amount in words; too long a one digit by digit."""
        whole = self._separator.sub("", whole)
        said = (
            self._number_in_words(int(whole), kind)
            if len(whole) <= MAX_NUMBER_DIGITS
            else " ".join(map(self._digit_word, whole))
        )
        if fraction:
            said += f" {self._language.decimal_word} {' '.join(map(self._digit_word, fraction))}"
        return said

    def _gender_and_form(self, noun_entry: str, whole: str, fraction: str | None) -> tuple[str, str]:
        """The gender of a noun and its form after a number."""
        gender, _, forms = noun_entry.partition(" ")
        choices = forms.split("|")
        number = int(self._separator.sub("", whole))
        index = self._language.decimal_form if fraction else self._language.plural(number)
        return gender, choices[min(index, len(choices) - 1)]

    def _amount_with_noun(self, whole: str, fraction: str | None, noun_entry: str) -> str:
        gender, form = self._gender_and_form(noun_entry, whole, fraction)
        return f"{self._amount_in_words(whole, fraction, gender)} {form}"

    def _read_number(self, scan: ScanState, match: re.Match[str]) -> int:
        whole, fraction = match.group(1), match.group(2)
        if whole.isdigit() and not fraction and self._is_code(scan, whole):
            return self._speller.read_digits(scan, match)
        said = self._year_or_amount(whole, fraction, self._gender_of_next_word(scan, match))
        scan.emit(said, match.start(), match.end())
        return finish_number(scan, match.end())

    def _year_or_amount(self, whole: str, fraction: str | None, kind: str = "") -> str:
        if fraction or not re.fullmatch(r"1[1-9]\d\d", whole):
            return self._amount_in_words(whole, fraction, kind)
        rules = self._language.year if self._language.code == "de" else self._language.number_rules
        return self._number_formatter.spell_out(int(whole), rules)

    def _gender_of_next_word(self, scan: ScanState, match: re.Match[str]) -> str:
        """The gender of the word after a number, as far as its end tells."""
        following = scan.next_word(match.end())
        if len(following) < 3:
            return ""
        return next(
            (gender for end, gender in self._language.gender_by_ending.items() if following.endswith(end)), ""
        )

    def _is_code(self, scan: ScanState, digits: str) -> bool:
        leading = len(digits) > 1 and digits[0] == "0"
        announced = scan.context.code_words_left > 0 and len(digits) > 2
        return leading or announced or (len(digits) > 4 and not digits.endswith("000"))

    def _read_range(self, scan: ScanState, match: re.Match[str]) -> int | None:
        if not self._language.range_word or self._is_code(scan, match.group(1)):
            return None
        scan.emit(self._year_or_amount(match.group(1), match.group(2)), match.start(), match.end(1))
        dash = match.start() + len(match.group().rstrip()) - 1
        scan.emit(self._language.range_word, dash, dash + 1)
        return match.end()

    def _read_twenty_four_seven(self, scan: ScanState, match: re.Match[str]) -> int:
        scan.emit(f"{self._number_in_words(24)} {self._number_in_words(7)}", match.start(), match.end())
        return finish_number(scan, match.end())

    def _read_fraction(self, scan: ScanState, match: re.Match[str]) -> int:
        scan.emit(self._amount_in_words(match.group(1), None), match.start(), match.end(1))
        scan.emit(self._language.marks["÷"], match.end(1), match.start(2))
        scan.emit(self._amount_in_words(match.group(2), None), match.start(2), match.end())
        return finish_number(scan, match.end())

    def _read_percent(self, scan: ScanState, match: re.Match[str]) -> int:
        percent = self._language.percent_word
        said = (
            self._amount_with_noun(match.group(1), match.group(2), percent)
            if "|" in percent
            else f"{self._amount_in_words(match.group(1), match.group(2))} {percent}"
        )
        scan.emit(said, match.start(), match.end())
        return finish_number(scan, match.end())

    def _read_unit(self, scan: ScanState, match: re.Match[str]) -> int | None:
        if match.start() and scan.view[match.start() - 1] == "제":  # makes an ordinal in Korean
            return None
        said = self._amount_with_noun(match.group(1), match.group(2), self._language.units[match.group(3)])
        scan.emit(said, match.start(), match.end())
        return finish_number(scan, match.end())

    def _read_money(self, scan: ScanState, match: re.Match[str]) -> int:
        return self._emit_money(scan, match, match.group(1), match.group(2), match.group(3))

    def _read_leading_money(self, scan: ScanState, match: re.Match[str]) -> int:
        return self._emit_money(scan, match, match.group(2), match.group(3), match.group(1))

    def _emit_money(
        self, scan: ScanState, match: re.Match[str], whole: str, fraction: str | None, currency: str
    ) -> int:
        large, small = self._language.money[currency]
        cents = fraction.ljust(2, "0") if fraction and len(fraction) < 3 and small else ""
        if not cents:
            said = self._amount_with_noun(whole, fraction, large)
        else:
            parts = (
                [self._amount_with_noun(whole, None, large)] if int(self._separator.sub("", whole)) else []
            )
            parts += [self._amount_with_noun(cents, None, small)] if int(cents) else []
            said = f" {self._language.money_conjunction} ".join(parts) or self._amount_with_noun(
                whole, None, large
            )
        scan.emit(said, match.start(), match.end())
        return finish_number(scan, match.end())

    def _read_suffixed(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """An ordinal; a suffix with a blank is a word of its own."""
        suffix = match.group(2)
        if suffix.endswith(".") and len(match.group(1)) != 4:  # no year
            return None
        said = self._number_formatter.spell_out(
            int(self._separator.sub("", match.group(1))), self._language.suffixes[suffix]
        )
        scan.emit(said, match.start(), match.end(1) if suffix[0] == " " else match.end())
        return finish_number(scan, match.end(1) if suffix[0] == " " else match.end())

    def _read_ordinal(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """ "der 3. Stock", "am 3. Tag" in German."""
        if (
            not self._language.boundary_rules.ordinal_stops
            or scan.context.previous_word not in GERMAN_ORDINAL_ENDINGS
        ):
            return None
        scan.emit(self._german_ordinal(scan, int(match.group(1))), match.start(), match.end())
        return finish_number(scan, match.end())

    def _german_ordinal(self, scan: ScanState, number: int) -> str:
        ending = GERMAN_ORDINAL_ENDINGS.get(scan.context.previous_word, "-r")
        return self._number_formatter.spell_out(number, f"spellout-ordinal{ending}")

    # Dates and times

    def _day_in_words(self, scan: ScanState, day: int) -> str:
        if day == 1 and self._language.first_day_word:
            return self._language.first_day_word
        if self._language.code == "de":
            return self._german_ordinal(scan, day)
        return self._number_formatter.spell_out(day, self._language.day)

    def _read_day_of_month(self, scan: ScanState, match: re.Match[str]) -> int | None:
        day, month, year = match.groups()
        if not 1 <= int(day) <= 31 or self._language.code == "ko":
            return None
        scan.emit(self._day_in_words(scan, int(day)), match.start(), match.end(1))
        scan.emit(month, match.start(2), match.end(2))
        if year:
            scan.emit(
                self._number_formatter.spell_out(int(year), self._language.year), match.start(3), match.end(3)
            )
        return finish_number(scan, match.end())

    def _read_day_and_month(self, scan: ScanState, match: re.Match[str]) -> int | None:
        day, month = int(match.group(1)), int(match.group(2))
        if not (1 <= month <= 12 and 1 <= day <= 31):
            return None
        scan.emit(self._day_in_words(scan, day), match.start(), match.end(1))
        scan.emit(self._language.months[month - 1], match.start(2), match.end())
        return finish_number(scan, match.end())

    def _read_korean_month(self, scan: ScanState, match: re.Match[str]) -> int:
        scan.emit("유" if match.group() == "6" else "시", match.start(), match.end())
        return finish_number(scan, match.end())

    def _read_date(self, scan: ScanState, match: re.Match[str]) -> int | None:
        return self._emit_date(scan, match, *(int(match.group(place)) for place in (4, 3, 2)))

    def _read_iso_date(self, scan: ScanState, match: re.Match[str]) -> int | None:
        return self._emit_date(scan, match, *(int(match.group(place)) for place in (2, 3, 4)))

    def _emit_date(
        self, scan: ScanState, match: re.Match[str], year: int, month: int, day: int
    ) -> int | None:
        if not (1 <= month <= 12 and 1 <= day <= 31):
            return None
        table = self._language
        said = table.date_template.format(
            day=self._day_in_words(scan, day),
            month=table.months[month - 1],
            year=self._number_formatter.spell_out(year, table.year),
        )
        scan.emit(said, match.start(), match.end())
        return finish_number(scan, match.end())

    def _read_time(self, scan: ScanState, match: re.Match[str]) -> int | None:
        hour, minute = int(match.group(1)), int(match.group(2))
        if hour > 24 or minute > 59:
            return None
        gender, form = self._gender_and_form(self._language.hour_noun, str(hour), None)
        hours = f"{self._number_in_words(hour, gender)} {form}".strip()
        minutes = self._number_in_words(minute)
        if minute < 10 and self._language.minute_zero_word:
            minutes = f"{self._language.minute_zero_word} {minutes}"
        template = self._language.time_template if minute else self._language.whole_hour_template
        scan.emit(template.format(hour=hours, minute=minutes), match.start(), match.end())
        return finish_number(scan, match.end())

    # Codes

    def _read_groups(self, scan: ScanState, match: re.Match[str]) -> int:
        """Phone numbers; French ones in pairs."""
        if match.group().startswith("+"):
            scan.emit(self._language.marks["+"], match.start(), match.start() + 1)
        for number, run in enumerate(re.finditer(r"\d+", match.group())):
            start, stop = match.start() + run.start(), match.start() + run.end()
            if number:
                scan.punctuate(",")
            if self._language.code == "fr" and len(run.group()) == 2 and run.group()[0] != "0":
                scan.emit(self._number_in_words(int(run.group())), start, stop)
            else:
                self._speller.spell(scan, start, stop)
        return finish_number(scan, match.end())

    def _read_mixed(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Letters with digits: the letters as they stand."""
        if match.group().isdigit():
            return None
        for run in _MIXED_RUN.finditer(scan.view, match.start(), match.end()):
            text = run.group()
            if not text.isdigit():
                scan.emit(text, run.start(), run.end())
            elif len(text) < 3 and text[0] != "0":
                scan.emit(self._number_in_words(int(text)), run.start(), run.end())
            else:
                self._speller.spell(scan, run.start(), run.end())
        scan.context.after_number = scan.context.line_start = False
        return match.end()
