"""Grammar of the languages that a table describes: all but English, Chinese and Japanese.

Addresses, codes, dates, times, amounts and ordinals become words; other words stay as written. The rules are
in ``codes.py``, ``dates.py``, ``times.py``, ``compounds.py``, ``roman.py``, ``ordinals.py`` and
``amounts``; every word of a language is in its table.
"""

import re
import unicodedata
from pathlib import Path

from ...language import Language
from ...unicode_scripts import LATIN
from ..address_patterns import SPACED_ADDRESSES, UNSPACED_ADDRESSES
from ..data_files import phrase_words
from ..markup_rules import LINE_START_ROWS, MARKUP_ROWS, PUNCTUATION_ROWS
from ..mathematics.finder import with_mathematics
from ..patterns import RulePattern
from ..tokenizer import SMALL_LETTERS, WORD, WORD_PATTERN, Grammar, RuleRow, ScanState, any_of, compile_rules
from .amounts.amounts import TableAmounts
from .codes import TableCodes
from .compounds import TableCompounds
from .dates import TableDates
from .language_table import LanguageTable, language_table
from .numbers import TableNumberWords
from .paired_forms import TablePairedForms
from .speller import TableSpeller

_INVERTED_MARKS = "¿¡"
# Begins the pattern of abbreviations, so that their many words are not tried at every word.
_STOP_OR_DIGIT_AHEAD = r"(?=[^\s\d.]{1,30}(?: [^\s\d.]{1,4})?(?:\.|\s?\d))"
_DEGREES_AHEAD = re.compile(r"(?: de| di)?:? ?[-−+]?\d{1,2}(?:[.,]\d)? ?[°º]")
_CODE_BEHIND = re.compile(r"\d-?\w{0,8}\Z")  # of "40-17-B#"
_LETTERS_AND_DIGITS = re.compile(r"[^\W_]{1,12}")
_SCORE_BEHIND = re.compile(r"\d{1,3} ?[:–-] ?\d{1,3} \(?\Z")
_WORDS = re.compile(r"[^\W\d_]+")
_SILENT_MARKS = ".-_/#*"  # named in addresses, and as keys of a telephone, only


class TableNormalizer:
    """Recognisers of one language.

    A language that does something that no other does has sub-classes of these parts, and one of this class
    that names them.
    """

    numbers_type: type[TableNumberWords] = TableNumberWords
    speller_type: type[TableSpeller] = TableSpeller
    codes_type: type[TableCodes] = TableCodes
    dates_type: type[TableDates] = TableDates
    amounts_type: type[TableAmounts] = TableAmounts
    compounds_type: type[TableCompounds] = TableCompounds
    letter_cues: frozenset[str] = frozenset()  # words after which a capital is a letter and no title

    def __init__(self, table: LanguageTable) -> None:
        self._table = table
        numbers = self._numbers = self.numbers_type(table)
        self._speller = self.speller_type.of_table(table, numbers)
        self._codes = self.codes_type(table, numbers, self._speller)
        self._dates = self.dates_type(table, numbers, self._speller)
        self._amounts = self.amounts_type(table, numbers, self._speller, self._codes)
        self._compounds = self.compounds_type(table, numbers, self._speller, self._codes)
        # What is read by itself after "d'" and its like
        stopped = any_of((*table.abbreviations, *table.month_abbreviations)) or "(?!)"
        spelled = any_of(table.spelled_words) or "(?!)"
        inner = any_of(short for short in table.bare_abbreviations if "." in short[:-1]) or "(?!)"  # "app.to"
        capitals = r"[B-DF-HJ-NP-TV-XZ]{2,5}|[A-Z]{2}|[A-Z]\d{1,4}"
        self._elided = rf"\d|(?:{stopped})\.|(?:{spelled}|{capitals}|{inner})(?!\w)"
        # Before a small letter "1." may be an ordinal.
        initialisms = any_of(table.ordinal_initialisms) or "(?!)"
        self._list_number = rf"(\d{{1,3}})[.)] +(?=\S)(?!(?:{initialisms})(?!\w))" + (
            f"(?![{SMALL_LETTERS}])" if table.stop_ordinals else ""
        )

    def grammar(self) -> Grammar:
        """Return the grammar of the language."""
        patterns = UNSPACED_ADDRESSES if self._table.particles else SPACED_ADDRESSES
        addresses = self._speller.address_rows(patterns)
        return Grammar(
            lines=compile_rules(*LINE_START_ROWS, (self._list_number, self._speller.read_list_number)),
            letters=compile_rules(
                *addresses,
                *TablePairedForms(self._table).rows(),
                *self._amounts.money_letter_rows(),
                *self._amounts.letter_rows(),
                *self._dates.letter_rows(),
                *self._compounds.head_rows(),
                *self._abbreviation_rows(),
                *self._compounds.letter_rows(),
                (rf"[^\W\d_]{{1,20}}'(?={self._elided})", self._read_word),
                (r"(?<= )x(?=\d{1,2}(?![\w.,/-]))", self._read_multiple),
                *self._codes.letter_rows(),
            ),
            digits=compile_rules(
                *addresses,
                *self._codes.section_rows(),
                *self._dates.digit_rows(),
                *self._compounds.digit_rows(),
                (
                    rf"(?!{self._amounts.integer}(?!\.\d))\d+(?:\.\d+){{2,}}(?![\w.-]\d)",
                    self._read_version,
                ),
                *self._codes.digit_rows(),
                *self._amounts.number_rows(),
            ),
            symbols=compile_rules(
                *MARKUP_ROWS,
                *self.own_symbol_rows(),
                (r"[-=]{1,2}>(?= ?[\w\"'$£€(/~`])", self._read_arrow),
                (r"(?<![^\s(])[~≈] ?(?=[$€£%-]?\d)", self._read_about),
                *self._codes.sign_rows(),
                *self._amounts.sign_rows(),
                (patterns.path, self._speller.read_address),
                (rf"[{_INVERTED_MARKS}](?=[^\W\d_])", self._read_inverted_mark),
                *PUNCTUATION_ROWS,
                *([(r"# ?(?=\d)", self._read_number_sign)] if self._table.number_sign else []),
                (
                    r"#(?![A-Za-z0-9#])" if self._table.particles else r"#(?![\w#])",
                    self._read_telephone_key,
                ),
                (r"\*(?![\w*])", self._read_telephone_key),
                (r"§(?=§)", self._skip_mark),
                (r"[^\w\s]", self._read_mark),
            ),
            word=(RulePattern(rf"{WORD_PATTERN}(?:-{WORD_PATTERN})*"), self._read_word),
        )

    def grammar_with_formulas(self, module_file: str) -> Grammar:
        """Return the grammar of the language in whose folder ``module_file`` is, with its mathematics."""
        return with_mathematics(
            module_file, self.grammar(), self._numbers.of_formula, self._speller.letter_name
        )

    def _abbreviation_rows(self) -> tuple[RuleRow, ...]:
        bare, words = any_of(self._table.bare_abbreviations), any_of(self._table.abbreviations)
        # A letter without a stop is the name of something: "S 41".
        longer = any_of(word for word in self._table.abbreviations if len(word) > 1)
        rows: list[RuleRow] = []
        if self._table.numbered_readings:
            numbered = any_of(self._table.numbered_readings)
            rows.append((rf"({numbered})\.? ?(?=\d)", self._read_numbered_abbreviation))
        if self._table.score_readings:
            rows.append((rf"({any_of(self._table.score_readings)})(?!\w)", self._read_after_score))
        if self._table.titles:
            rows.append((rf"({any_of(self._table.titles)})(?!\w)\.?(?= ?[^\W\d_])", self._read_title))
        if bare:
            # After a colon, as in "D:9", a number follows, at once or in the next clause.
            rows.append(
                (
                    rf"({bare})(?:(?<!:){self._table.end}|(?<=°)(?=[A-Z])|(?<=:)(?= ?\d| *$))",
                    self._read_bare_abbreviation,
                )
            )
        if words:
            rows.append(
                (rf"{_STOP_OR_DIGIT_AHEAD}(?:({words})\.|({longer})(?=\s?\d))", self._read_abbreviation)
            )
        return tuple(rows)

    def own_symbol_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules that begin with a sign and that one language only has."""
        return ()

    def _read_word(self, scan: ScanState, match: re.Match[str]) -> int:
        word = unicodedata.normalize("NFC", match.group())
        if not word[1:] and scan.context.previous_word in self._table.letter_words:  # "lett. b)"
            scan.emit(self._speller.letter_name(scan, word), match.start(), match.end())
        else:
            scan.emit(word, match.start(), match.end())
        self._codes.note_word(scan, word)
        return match.end()

    def _read_version(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "2.1.3"; a phone number written with stops is none."""
        is_phone_number = self._speller.pairs_digits and match.group()[0] == "0"
        return None if is_phone_number else self._speller.read_version(scan, match)

    def _read_inverted_mark(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read ¿ or ¡ as part of the word after it, as a voice that takes text needs it."""
        word = WORD.compiled.match(scan.view, match.end())
        stop = word.end() if word else match.end()
        scan.emit(scan.view[match.start() : stop], match.start(), stop)
        self._codes.note_word(scan, scan.view[match.end() : stop])
        return stop

    def _inflected(self, scan: ScanState, spoken: str, at: int) -> str:
        """Return a reading as it is inflected after the words before it.

        After "zgodnie z", after a word with its number ("корп. 2, "), after the first word of a clause that
        governs both parts ("см. п. 7 и "), or else after the last word.
        """
        if not self._table.inflections:
            return spoken
        previous, words = scan.context.previous_word, _WORDS.findall(scan.view[max(0, at - 40) : at].lower())
        after_phrase = self._table.inflections.get("_".join(words[-2:]), {}).get(spoken)
        if previous in self._table.case_joints:
            first = scan.view[:at].lower().split(maxsplit=2)[:2]
            previous = "".join(first[:1])
            after_phrase = after_phrase or self._table.inflections.get("_".join(first), {}).get(spoken)
        if previous == "0":
            previous = words[-1] if words else scan.context.word_before_number
            # "в 21:35, терм. B", but "w 90. min."
            is_apart = not words or "," in scan.view[max(0, at - 12) : at]
            if is_apart and previous in self._table.function_words:
                previous = "0"
        return after_phrase or self._table.inflected(spoken, previous)

    def _read_bare_abbreviation(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read an abbreviation that is written without a full stop."""
        written, before = match.group(1), scan.view[match.start() - 1 : match.start()]
        if before.isalnum() or (before == "/" and scan.view.startswith("/", match.end())):
            return None  # of "/etc/app"
        if written[-1] == ":" and scan.context.sentence_start:
            return None  # of an answer: "D: 12"
        spoken = self._table.bare_abbreviations[written]
        if written in self._table.abbreviations and scan.view.startswith(".", match.end()):
            return None
        spoken = self._inflected(scan, spoken, match.start())
        scan.emit(spoken, match.start(), match.end())
        self._codes.note_word(scan, spoken)
        return self._speller.join_suffix(scan, match.end())

    def _read_after_score(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "n. V." of "3:2 n. V."."""
        before = max(0, match.start() - 10)
        if not _SCORE_BEHIND.search(scan.view, before, match.start()):
            return None
        scan.emit(self._table.score_readings[match.group(1)], *match.span())
        self._codes.note_word(scan, scan.words[-1].text)
        if match.group().endswith(".") and not scan.next_visible(match.end()):
            scan.punctuate(".")
        return match.end()

    def _read_title(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the title before a name, or "M. et Mme"; after "taille" the M is a letter."""
        title, name = match.group(1), scan.next_word(match.end())
        is_name = (
            name[0].isupper() or "'" in name or (title[-1] == "." and name in self._table.function_words)
        )
        if not is_name or scan.context.after_number or scan.context.previous_word in self.letter_cues:
            return None
        spoken, _, before_feminine = self._table.titles[title].partition("|")
        spoken = self._inflected(scan, spoken, match.start())
        if before_feminine and name.endswith("a"):
            spoken = before_feminine
        scan.emit(spoken, *match.span())
        self._codes.note_word(scan, spoken)
        return match.end()

    def _read_abbreviation(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read an abbreviation with its full stop, or without it before a number."""
        start = match.start()
        if start and scan.view[start - 1].isalnum():
            return None
        written = match.group(1) or match.group(2)
        noun = self._table.units.get("min") if written in ("min", "Min") else None
        is_counted = noun and scan.context.after_number and scan.view[start - 1 : start] == " "
        is_numbered = written in self._table.numbered_abbreviations and not is_counted
        if is_numbered and not scan.next_visible(match.end()).isdigit():
            return None
        spoken = self._inflected(scan, self._table.abbreviations[written], start)
        if noun and is_counted:  # "1 u 40 min."
            is_many = scan.view[start - 2].isdigit()  # "w 90. min."
            spoken = noun.forms[-1] if is_many else self._inflected(scan, noun.forms[0], start)
        if _DEGREES_AHEAD.match(scan.view, match.end()):
            spoken = self._table.degree_readings.get(spoken, spoken)
        scan.emit(spoken, start, match.end())
        self._codes.note_word(scan, spoken)
        if match.group().endswith(".") and not scan.next_visible(match.end()):
            scan.punctuate(".")
        return self._speller.join_suffix(scan, match.end())

    def _read_numbered_abbreviation(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "ch." of "ch. 204"."""
        if match.start() and scan.view[match.start() - 1].isalnum():
            return None
        token = _LETTERS_AND_DIGITS.match(scan.view, match.start())
        if token and token.group() in self._table.bare_abbreviations:
            return None  # "h24"
        spoken = self._table.numbered_readings[match.group(1)]
        spoken = self._table.inflected(spoken, scan.context.previous_word)
        scan.emit(spoken, *match.span())
        self._codes.note_word(scan, spoken)
        return match.end()

    def _read_number_sign(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read the "#" of "#4711"."""
        scan.emit(self._table.number_sign, match.start(), match.start() + 1)
        self._codes.note_word(scan, self._table.number_sign)
        return match.end()

    def _read_telephone_key(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read a lone # as the telephone key; a lone * is one before a hyphen and after a word for it."""
        key, previous = match.group(), scan.context.previous_word
        ends_code = key == "#" and _CODE_BEHIND.search(scan.view, max(0, match.start() - 10), match.start())
        if match.start() and not (scan.view[match.start() - 1].isspace() or ends_code):
            return None
        is_star = scan.view.startswith("-", match.end()) or previous in self._table.key_cues
        if key not in self._table.marks or (key == "*" and not is_star):
            return None
        scan.emit(self._table.marks[key], match.start(), match.end())
        self._codes.note_word(scan, key)
        return match.end()

    def _read_arrow(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "->" as the arrow."""
        return self._read_mark_as(scan, match, "→")

    def _read_multiple(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "x" of "pizza x2"."""
        return None if scan.context.after_number else self._read_mark_as(scan, match, "×")

    def _read_about(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "~" of "~20 min"."""
        return self._read_mark_as(scan, match, "≈")

    def _read_mark_as(self, scan: ScanState, match: re.Match[str], mark: str) -> int | None:
        name = self._table.marks.get(mark)
        if name is None:
            return None
        scan.emit(self._inflected(scan, name, match.start()), *match.span())
        self._codes.note_word(scan, name)
        return match.end()

    def _skip_mark(self, scan: ScanState, match: re.Match[str]) -> int:
        """Skip the first sign of "§§"."""
        return match.end()

    def _read_mark(self, scan: ScanState, match: re.Match[str]) -> int | None:
        name = self._table.marks.get(match.group())
        if name is None or match.group() in _SILENT_MARKS:
            return None
        name = self._inflected(scan, name, match.start())
        scan.emit(name, match.start(), match.end())
        self._codes.note_word(scan, name)
        return match.end()


def table_language(
    module_file: str,
    name: str,
    rules: type[TableNormalizer] = TableNormalizer,
    *,
    scripts: tuple[str, ...] = (LATIN,),
    is_latin: bool = True,
) -> Language:
    """Return the record of the language in whose folder, named by its code, ``module_file`` is."""
    return Language(
        code=Path(module_file).parent.name,
        name=name,
        grammar=lambda: rules(language_table(module_file)).grammar_with_formulas(module_file),
        boundary_rules=lambda: language_table(module_file).boundary_rules,
        phrases=lambda: phrase_words(module_file),
        scripts=scripts,
        is_latin=is_latin,
    )
