"""Rules of codes in a language that a table describes: bank accounts, phone numbers, letters with digits."""

import re

from ...lazy_pattern import LazyPattern
from ..reading_context import CODE_WINDOW
from ..spelling import LONG_DIGIT_GROUPS, MASKED_DIGITS, NAMED_DIGITS
from ..tokenizer import RuleRow, ScanState, any_of
from .language_table import LanguageTable
from .numbers import TableNumberWords
from .speller import TableSpeller

_RUN = re.compile(r"\d+|[^\W\d_]+")
_YEAR = re.compile(r"(?:19|20)\d\d")
_CAPITALS_BEHIND = re.compile(r"(?<!\w)[A-Z]{1,3} \Z")  # the "C" of "3 C 117/24", of a court
_YEARS = re.compile(r"(?:1[5-9]|20)\d\d-(?:1[5-9]|20)\d\d")
_SHOUTED_BEHIND = re.compile(r"(?<!\w)[^\W\d_a-z]{3,}[^\w]{1,3}\Z")
_MIN_INITIALISM = 2
_ROUND_DIGITS = 3
_MAX_CODE_DIGITS = 2  # of a number in a code that was announced, which is read as a number
_MIN_SPELLED_RUNS = 5  # in "RSSMRA80A01H501U", whose letters are read one by one too
_MAX_LETTERED_DIGITS = 3
_NUMBER_AND_LETTER = re.compile(r"\d+[^\W\d_A-Z]")
_MIN_CODE_RUNS = 3  # of letters or digits in "AB-4711-X", whose digits are read one by one
_LETTERS_THAT_ARE_WORDS = "AEIOUY"
# Country, check digits, groups of four letters and digits. Source: ISO 13616.
_BANK_ACCOUNT = r"[A-Z]{2}\d{2}(?: [A-Z0-9]{4}){2,7}(?: [A-Z0-9]{1,3})?|[A-Z]{2}\d{2}[A-Z0-9]{4}\d{7,23}"
_PHONE_NUMBER = (
    r"97[89]-\d{1,5}-\d{1,7}-\d{1,6}-\d",  # a book
    r"0\d{3} \d{3} \d \d{3}",
    r"(?:1[ .-])?\d{3}[ .-]\d{3}-\d{4}",
    r"\d{3}[ .]\d{3}[ .]\d{4}",
    r"\d{2}(?: \d{4}){6}",  # a Polish bank account
    r"[78] \d{3} \d{3}[ -]\d\d[ -]?\d\d",
    r"0 \d{3}(?: \d{2,3}){2,3}",
    r"\d(?: \d\d){3}(?: \d{3}){2}(?: \d\d)?",
    r"0\d(?:[ .]\d\d){4}",
    r"0\d{1,3} [-–] \d{2,4}(?: ?\d{2,4}){1,4}",
    r"0\d+(?:(?: / |[ /-])\d{2,})+",
    r"0\d{1,3}\.\d{5,8}",
    r"\d{3}-\d{4}",
    r"\d{3} \d{6,7}",
    r"444 \d(?: \d{3}|\d \d\d)",
    r"(?:\d ?)?(?:\(\d{2,4}\) ?)?\d{2,4}(?:-\d{2,6}){2,3}",
    r"\d{2}(?: \d{3})?(?: \d\d){2,4}",
)


class TableCodes:
    """Recognisers of codes of one language."""

    def __init__(self, table: LanguageTable, numbers: TableNumberWords, speller: TableSpeller) -> None:
        self._table, self._numbers, self._speller = table, numbers, speller
        # Particles follow a code without a blank, so that letters of another script end it.
        self._letter = "[A-Za-z]" if table.particle_letters else r"[^\W\d_]"
        self._end = table.end
        self._code_endings = tuple(table.code_endings)
        # The "salle B" of "salle B 2.14"
        self._section_behind = re.compile(rf"(?<!\w)(?i:{any_of(table.section_words) or '(?!)'}) [A-Z] \Z")
        cues = any_of(table.compass_cues) or "(?!)"
        # "vent de NO", "15 km NO von Wien"
        self._compass_behind = re.compile(
            rf"(?<!\w)(?i:{cues})(?: [^\W\d_]{{1,6}}| \d{{1,3}}| k?m/[huсч]){{0,5}} \Z"
            r"|\d ?(?:km|mi|m|км|м) \Z"
        )
        self._money_ahead = LazyPattern(rf"\s?(?:{any_of(table.money)}){table.end}")

    def letter_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of codes that begin with a letter."""
        letter, end = self._letter, self._end
        no_suffix = "" if self._speller.suffix_mark == "'" else r"|'[^\W\d_]"
        upper = "[A-Z0-9]" if self._table.particles else r"[^\W_a-z]"
        head = rf"[A-Z]{{2,6}}(?=-{letter}*[a-z])" if self._speller.spelled_heads else r"(?!)"
        part = rf"{upper}{{1,12}}"
        slashed = rf"(?=[^\s]{{0,30}}/)(?=[^\s\d]{{1,14}}\d){part}(?:[-/]{part}){{1,5}}(?![\w/])"
        phrases = self._table.code_phrases or "(?!)"
        hyphenated = ("-".join(point) for point in self._table.compass if len(point) > 1)
        compass = f"(?:{any_of((*self._table.compass, *hyphenated)) or '(?!)'})"
        if compass.isascii():  # tried at capitals only
            compass = f"(?=[A-Z]){compass}"
        return (
            (rf"{compass}(?![\w-])", self._read_compass),
            (r"(?:UTC|GMT)[-–](?=\d{1,2}(?:\D|\Z))", self._read_offset_of_zone),
            (rf"(?i:{phrases})(?= (?:[*.x]{{1,4}} ?)?\d{{3,6}}(?![.,]?\d))", self._read_code_phrase),
            (slashed if self._table.reference_slashes else "(?!)", self._read_slashed),
            (rf"(?=[A-Z])(?:{_BANK_ACCOUNT})(?![A-Za-z0-9])", self._read_bank_account),
            (rf"[A-Z]{{2}}\d\d [A-Z0-9]{{4}}(?! ?[A-Z0-9]){end}", self._read_part_of_account),
            (rf"[vV]\d{{1,3}}(?:\.\d{{1,3}}){{1,3}}(?!\.\d){end}", self._read_lettered_version),
            (
                rf"{letter}{{1,20}}-?\d(?:{letter}|\d){{0,30}}(?:-{upper}{{1,20}}){{0,6}}{end}",
                self._read_mixed,
            ),
            (
                rf"(?=[\w-]{{1,40}}\d)[^\W\d_a-z]{{1,20}}(?:-{upper}{{1,20}}){{1,6}}{end}",
                self._read_mixed,
            ),
            (rf"{letter}{{1,4}}(?:-{letter}{{1,4}}){{1,3}}(?![\w-])", self._read_capital_groups),
            (head, self._read_capitals),
            (rf"{letter}{{2,5}}(?!-[^\W\d_]{no_suffix}){end}", self._read_capitals),
            (r"(?=[A-Z])(?:[A-Z]\.){2,8}(?!\w)", self._read_dotted_capitals),
            (rf"(?=[A-Z])[A-Z](?!['-]){end}(?:\.(?= ?\d))?", self._read_lone_capital),
        )

    def digit_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of phone numbers and other codes of digits."""
        read, end = self._speller.read_digit_groups, self._end
        rows: list[RuleRow] = [
            (r"\d{3,4}(?:[ .-]\d{2,5}){1,6}(?![-\d])" + end, self._read_announced_groups),
            (r"\d{4}(?: \d{4}){2,4}" + end, read),
            (r"0 ?\d{2,4} ?/ ?\d{1,3}(?: \d{2,3}){1,4}(?![-\d])" + end, read),  # "0 30/12 34 56"
            (rf"(?:{'|'.join(_PHONE_NUMBER)})(?![-\d]){end}", read),
            (r"\d{1,3}(?:\.\d{3}){2}(?:/\d{4})?-\d{1,2}(?!-|[.,]?\d)" + end, read),
            (r"\d{3,8}-\d(?!-|[.,]?\d)" + end, self._read_announced_groups),
            (LONG_DIGIT_GROUPS + end, read),
            (r"\d{5}\.\d{5,6}(?:[ .]\d{1,14}){2,6}(?![-.\d])" + end, read),
            (r"\d{1,6}(?:-\d{2,7}){2,4}(?![-\d])" + end, read),
            (r"\d(?:-\d){2,8}(?![-\d])" + end, read),
        ]
        rows.append((r"(?=(?:\D?\d){5})\d{1,7}(?:[-/]\d{1,7}){1,6}(?![-/]?\d)" + end, self._read_reference))
        if " " not in self._table.thousands_separators:
            rows.append((r"\d{3}(?: \d{2,3}){2,3}(?![\d-])", read))
        if self._table.code_names:
            rows.insert(0, (rf"{NAMED_DIGITS}(?={self._table.code_names})", read))
        if self._table.postcode:
            rows.insert(0, (self._table.postcode + end, self._read_postcode))
        return tuple(rows)

    def section_rows(self) -> tuple[RuleRow, ...]:
        """Return the rule of the numbers of rooms and sections, such as "2.04"."""
        lettered = (rf"(?:(?<=§)|(?<=§ ))\d{{1,4}}[a-z]{self._end}", self._read_mixed)  # "§ 312g" is no gram
        if not self._table.section_words:
            return (lettered,)
        return (lettered, (r"\d{1,3}(?:\.\d{1,3}){1,3}(?!\w)", self._read_section))

    def sign_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of phone numbers that begin with a sign."""
        read = self._speller.read_digit_groups
        return (
            (rf"(?=\+(?:[ .()-]{{0,2}}\d){{7}})\+\d{{1,3}}(?:[ .-]?\(?\d{{1,9}}\)?){{1,7}}{self._end}", read),
            (rf"\(\d{{2,4}}\) ?\d{{3,5}}(?:-\d{{2,4}}){{1,2}}{self._end}", read),
            (MASKED_DIGITS, read),
        )

    def mixed_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of codes that begin with a digit: "9a-c", "12b", "5G", "34ABC12"."""
        tail = rf"{self._letter}(?:{self._letter}|\d){{0,40}}|-[A-Z](?![a-z])"
        return (
            (rf"(?P<number>\d{{1,4}})(?P<low>[a-z])[-–](?P<high>[a-z])(?!-){self._end}", self._read_lettered),
            (rf"\d{{1,20}}(?:{tail})(?:-[A-Z0-9]{{1,20}}){{0,6}}{self._end}", self._read_mixed),
        )

    def is_code(self, scan: ScanState, digits: str) -> bool:
        """Whether a number is a code: it begins with zero, was announced, or is long and not round."""
        has_leading_zero = len(digits) > 1 and digits[0] == "0"
        announced = scan.context.code_words_left > 0 and len(digits) > 2
        if announced and scan.context.previous_word in self._table.date_cues:
            announced = not _YEAR.fullmatch(digits)  # "CNH desde 2011"
        if len(digits) == 3 and announced and not has_leading_zero:
            announced = not self._is_numbered(scan)
        return has_leading_zero or announced or (len(digits) > 4 and not digits.endswith("000"))

    def _is_numbered(self, scan: ScanState) -> bool:
        """Whether the number is that of "linia nr 175"; that of "kod nr 175" is a code."""
        if not scan.words or not self._table.numbering_words:
            return False
        written = scan.view[scan.words[-1].start : scan.words[-1].stop].lower()
        noun = scan.words[-2].text.lower() if len(scan.words) > 1 else ""
        return written in self._table.numbering_words and noun not in self._table.code_words

    def note_word(self, scan: ScanState, word: str) -> None:
        """Note a word that was read; it may announce a code."""
        scan.context.note_word(word)
        self.note_announcement(scan, scan.context.previous_word)

    def note_announcement(self, scan: ScanState, word: str) -> None:
        """Note that a code follows if ``word``, which may end in a particle, announces one."""
        words, particles = self._table.code_words, self._table.particle_letters
        has_ending = self._code_endings and word.endswith(self._code_endings)
        if word in words or has_ending or (word[-1:] in particles and word[:-1] in words):
            scan.context.code_words_left = CODE_WINDOW

    def _read_announced_groups(self, scan: ScanState, match: re.Match[str]) -> int | None:
        is_code = scan.context.code_words_left and not self._money_ahead.match(scan.view, match.end())
        return self._speller.read_digit_groups(scan, match) if is_code else None

    def _read_section(self, scan: ScanState, match: re.Match[str]) -> int | None:
        is_lettered = self._section_behind.search(scan.view, max(0, match.start() - 24), match.start())
        if scan.context.previous_word not in self._table.section_words and not is_lettered:
            return None
        parts = match.group().split(".")
        if any(part[0] == "0" and len(part) > 1 for part in parts):
            return self._speller.read_version(scan, match)
        words = f" {self._speller.point} ".join(self._numbers.number(int(part)) for part in parts)
        return self._speller.emit_number(scan, words, *match.span())

    def _read_lettered_version(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "v2.4"."""
        self._speller.spell(scan, match.start(), match.start() + 1)
        return self._speller.read_version(scan, match)

    def _read_reference(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "33-2024/1187" with its slashes; one separator is enough where a code was announced."""
        runs = list(re.finditer(r"\d+", match.group()))
        has_slash = "/" in match.group()
        is_announced = scan.context.code_words_left or (
            has_slash and _CAPITALS_BEHIND.search(scan.view, max(0, match.start() - 5), match.start())
        )
        is_range = not has_slash and _YEARS.fullmatch(match.group())
        if is_range or not (is_announced or (has_slash and len(runs) > 2)):
            return None
        if has_slash and self._table.slash_word(scan.context.previous_word, scan.next_word(match.end())):
            return None  # "TA 120/80 mmHg"
        for run in runs:
            start, stop, digits = match.start() + run.start(), match.start() + run.end(), run.group()
            if scan.view[start - 1] == "/" and run.start():
                scan.emit(self._table.marks["/"], start - 1, start)
            is_short = len(digits) < 3 and digits[0] != "0"
            if is_short or (has_slash and _YEAR.fullmatch(digits)):
                scan.emit(self._numbers.number(int(digits)), start, stop)
            else:
                self._speller.spell(scan, start, stop)
        return self._speller.finish_number(scan, match.end())

    def _read_bank_account(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read an IBAN in groups of four characters."""
        places = [place for place in range(match.start(), match.end()) if scan.view[place] != " "]
        for index, place in enumerate(places):
            if index and index % 4 == 0:
                scan.punctuate(",")
            self._speller.spell(scan, place, place + 1)
        return self._speller.finish_number(scan, match.end())

    def _read_code_phrase(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "endet auf" of "endet auf 4711"."""
        if match.start() and scan.view[match.start() - 1].isalnum():
            return None
        for word in re.finditer(r"\S+", match.group()):
            scan.emit(word.group(), match.start() + word.start(), match.start() + word.end())
            scan.context.note_word(word.group())
        scan.context.code_words_left = CODE_WINDOW
        return match.end()

    def _read_part_of_account(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the first two groups of an account that was announced: "IBAN beginnt mit DE44 5001"."""
        return self._read_bank_account(scan, match) if scan.context.code_words_left else None

    def _read_postcode(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "1017 GL"."""
        self._speller.spell(scan, *match.span())
        return self._speller.finish_number(scan, match.end())

    def _read_mixed(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read letters with digits: short letters spelled, long numbers digit by digit."""
        runs = list(_RUN.finditer(scan.view, match.start(), match.end()))
        spells_digits = len(runs) >= _MIN_CODE_RUNS
        is_announced = scan.context.code_words_left > 0 and not self._is_numbered(scan)
        max_digits = _MAX_CODE_DIGITS if is_announced else self._table.max_mixed_digits
        if not is_announced and _NUMBER_AND_LETTER.fullmatch(match.group()):  # "§ 573c"
            max_digits = _MAX_LETTERED_DIGITS
        for run in runs:
            text = run.group()
            is_round = len(text) == _ROUND_DIGITS and text[-1] == "0" and len(runs[0].group()) == 1  # "A380"
            is_short = len(text) <= max_digits or is_round
            if text.isdigit() and is_short and text[0] != "0" and not spells_digits:
                scan.emit(self._numbers.number(int(text)), run.start(), run.end())
            elif (
                text.isdigit()
                or self._speller.spells_in_code(text)
                or (len(runs) >= _MIN_SPELLED_RUNS and text.isupper())
            ):
                self._speller.spell(scan, run.start(), run.end())
            else:
                scan.emit(text, run.start(), run.end())
        if runs[-1].group().isdigit():
            return self._speller.finish_number(scan, match.end())
        scan.context.after_number = scan.context.line_start = False
        return self._speller.join_suffix(scan, match.end())

    def _read_lettered(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "9a-c"."""
        if match["low"] >= match["high"]:
            return None
        scan.emit(self._numbers.number(int(match["number"])), *match.span("number"))
        self._speller.spell(scan, *match.span("low"))
        scan.emit(self._table.range_word, match.end("low"), match.start("high"))
        self._speller.spell(scan, *match.span("high"))
        scan.context.after_number = scan.context.line_start = False
        return match.end()

    def _read_slashed(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "AB/1204/25" with its slashes."""
        if any(part.isdigit() and len(part) > 8 for part in re.split("[-/]", match.group())):
            return None
        for part in re.finditer(r"[^\W\d_]+|\d+|/", match.group()):
            start, stop, text = match.start() + part.start(), match.start() + part.end(), part.group()
            is_short = text.isdigit() and len(text) < 3 and text[0] != "0"
            if text == "/":
                scan.emit(self._table.marks["/"], start, stop)
            elif is_short or (text.isdigit() and _YEAR.fullmatch(text)):
                scan.emit(self._numbers.number(int(text)), start, stop)
            else:
                self._speller.spell(scan, start, stop)
        return self._speller.finish_number(scan, match.end())

    def _read_offset_of_zone(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read the "UTC-" of "UTC-5"."""
        self._speller.spell(scan, match.start(), match.end() - 1)
        scan.emit(self._table.minus_word, match.end() - 1, match.end())
        self.note_word(scan, "-")
        return match.end()

    def _read_compass(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "NO" of "vent de NO" and of "15 km NO von Wien"."""
        if not self._compass_behind.search(scan.view, max(0, match.start() - 30), match.start()):
            return None
        word = self.direction(scan, match.group().replace("-", ""))
        scan.emit(word, *match.span())
        self.note_word(scan, word)
        return self._speller.join_suffix(scan, match.end())

    def direction(self, scan: ScanState, letters: str) -> str:
        """Return the name of a direction after the word that was read last."""
        return self._table.compass[letters]

    def _is_short_initialism(self, scan: ScanState, match: re.Match[str]) -> bool:
        """Whether two capitals are no word of the language, and none beside them is in capitals: "l'OM"."""
        word = match.group()
        known = self._table.short_words | self._table.function_words
        if len(word) != _MIN_INITIALISM or not self._table.short_words or word.lower() in known:
            return False
        beside = _SHOUTED_BEHIND.search(scan.view, max(0, match.start() - 24), match.start())
        following = scan.next_word(match.end())
        return not beside and not (len(following) > _MIN_INITIALISM and following.isupper())

    def _read_capital_groups(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "USB-C" letter by letter, and "A-F" as a range."""
        if not match.group().isupper():
            return None
        low, _, high = match.group().partition("-")
        if len(low) > 1 or len(high) > 1 or scan.context.code_words_left:
            return self._read_mixed(scan, match)
        steps = ord(high) - ord(low)
        if steps < 1 or (steps == 1 and not scan.context.after_number):
            return self._read_mixed(scan, match)
        self._speller.spell(scan, match.start(), match.start() + 1)
        scan.emit(self._table.range_word, match.start() + 1, match.end() - 1)
        self._speller.spell(scan, match.end() - 1, match.end())
        scan.context.after_number = scan.context.line_start = False
        return match.end()

    def _read_capitals(self, scan: ScanState, match: re.Match[str]) -> int | None:
        word = match.group()
        numbers_beside = scan.context.after_number + scan.view[match.end() + 1 : match.end() + 2].isdigit()
        is_part_of_code = 0 < len(word) - 1 <= numbers_beside
        is_spelled = is_part_of_code or self._speller.spells_capitals(word)
        if not word.isupper() or not (is_spelled or self._is_short_initialism(scan, match)):
            return None
        self._speller.spell(scan, match.start(), match.end())
        self.note_word(scan, match.group())
        return self._speller.join_suffix(scan, match.end())

    def _read_dotted_capitals(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "S.A." letter by letter."""
        if not self._table.names_capitals:
            return None
        self._speller.spell(scan, *match.span())
        self.note_word(scan, match.group())
        return self._speller.end_sentence(scan, match.end())

    def _read_lone_capital(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "B" of "classe B"; a vowel that begins a sentence is a word."""
        letter = match.group()[0]
        may_be_word = (
            scan.context.sentence_start and letter in _LETTERS_THAT_ARE_WORDS and not self._table.particles
        )
        if not self._table.names_capitals or may_be_word:
            return None
        self._speller.spell(scan, *match.span())
        self.note_word(scan, letter)
        return match.end()
