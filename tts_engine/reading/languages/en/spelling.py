"""English spelling: names of letters, digits and marks, and which parts of an address are spelled.

Also text that a listener types as it is written: passwords, Windows paths, hosts with a port.
"""

import re
import unicodedata
from dataclasses import dataclass

from ...clause_boundaries import SERVICE_NAMES
from ...kit.patterns import PatternBehind
from ...kit.spelling import Speller, digit_group_sizes
from ...kit.tokenizer import RuleRow, ScanState, any_of
from . import vocabulary
from .quantities import number_words as numbers
from .word_context import note_english_word

_MARKS = {
    ".": "dot",
    "@": "at",
    "-": "dash",
    "_": "underscore",
    "/": "slash",
    "+": "plus",
    ":": "colon",
    "?": "question mark",
    "=": "equals",
    "&": "and",
    "#": "hash",
    "~": "tilde",
    "%": "percent",
    "!": "exclamation mark",
    "$": "dollar sign",
    "*": "asterisk",
    "^": "caret",
}
_USER_NAME_BEHIND = re.compile(
    r"\b(?:user ?name|login|handle|user ID|screen name)(?: is|:)? \Z", re.IGNORECASE
)
_CAMEL_CASE_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[^\W\d_]")
# Symbols of chemical elements, as in CaCO3 and HbA1c; not the syllables of WiFi6.
_ELEMENTS = re.compile(r"(?=.+[a-z])(?=.+[A-Z])(?:[A-Z][a-z]?){2,6}")
_OPEN_SYLLABLES = re.compile(r"(?:[A-Z][aeiouy]){2,6}")
_PART_OF_PASSWORD = re.compile(r"[^\W\d_]+|.")
# At least four letters in syllables that English has, the last open or closed by consonants that end words.
_ONSET = (
    "(?:[bcdfghjklmnpqrstvwyz]|b[lr]|c[hlr]|dr|f[lr]|g[lr]|kn|p[hlr]|qu|s[chklmnptw]|str|spr|t[hrw]|w[hr])"
)
_CODA = "(?:[bcdfgklmnprstwxz]|n[gkdtc]|r[dnmktlpbs]|s[tkhsp]|t?ch|ck|l[lkdtpfm]|m[pb]|ff|ft|pt|zz|g?ht?)"
_SYLLABLES = re.compile(
    rf"(?=.{{4,16}}\Z){_ONSET}?[aeiouy]{{1,2}}(?:{_CODA}?{_ONSET}[aeiouy]{{1,2}})*{_CODA}?s?"
)
_LETTERS_WITH_CLOSED_NAMES = "FLMNSX"  # without a pause, "M as in" is heard as "Emma's in"
_PASSWORD_NOUNS = frozenset(("password", "passcode"))
_PASSWORD_BEHIND = PatternBehind(r"\bpass(?:word|code) is:? [`\"'*]{0,3}\Z", re.IGNORECASE)
_TYPED = re.compile(r"[^\s`\"]{1,40}")
# It belongs to the sentence unless the literal is quoted: the stop of "Blue-82!.", not its "!".
_END_OF_LITERAL = re.compile(r"['*)]*[.,;:!?]?['*)]*\Z")
_PATH_AFTER_PORT = re.compile(r"(?:/[\w.~-]{1,60}){1,12}/?")
# "src/main.rs"
_SHORT_FOLDERS = frozenset(
    short
    for short in vocabulary.STOPLESS_ABBREVIATIONS & vocabulary.ABBREVIATIONS_IN_PROGRAMS
    if not set(short) & set("aeiouy")
)
_IP_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
# "C:\Users" or "\\server" with what follows, in which names may have blanks.
_PATH_BEHIND = PatternBehind(r"(?:\b[A-Za-z]:|(?<!\S)\\\\)[^:*?\"<>|]{0,120}\Z")


@dataclass(frozen=True, slots=True)
class EnglishSpeller(Speller):
    """Speller of English. The words of an address are read in lower case and split at capitals."""

    def digit_name(self, scan: ScanState, digit: str) -> str:
        """Return the word of ``digit``, "oh" for 0 where the style asks for it."""
        return scan.style.zero if digit == "0" else self.digit(digit)

    def letter_name(self, scan: ScanState, letter: str) -> str:
        """Return what makes a voice say the name of ``letter``: a capital, or its respelling."""
        capital = letter.upper()[:1]
        return vocabulary.LETTER_NAMES.get(capital, capital) if scan.respells else capital

    def finish_number(self, scan: ScanState, end: int) -> int:
        """Note that a number ends at ``end``."""
        scan.context.note_number()
        return end

    def read_address_word(self, scan: ScanState, start: int, stop: int) -> None:
        """Read the letters between two marks of an address, as words or letter by letter."""
        for part in _CAMEL_CASE_PART.finditer(scan.view, start, stop):
            text = part.group()
            if text in _SHORT_FOLDERS and "/" in scan.view[max(0, part.start() - 1) : part.end() + 1]:
                scan.emit(vocabulary.ABBREVIATIONS[text][0], part.start(), part.end())
            elif _is_spelled_in_address(text):
                self.spell(scan, part.start(), part.end())
            else:
                scan.emit(text.lower(), part.start(), part.end())

    def note_address(self, scan: ScanState) -> None:
        """Note that an address was read."""
        note_english_word(scan.context, "address")


ENGLISH_SPELLER = EnglishSpeller(
    _MARKS,
    lambda digit: numbers.DIGITS[int(digit)],
    numbers.amount_words,
    point="point",
    pauses_before_at=True,
)


def phone_group_sizes(digits: str) -> tuple[int, ...]:
    """Return the sizes of the groups in which a phone number of ``digits`` is read."""
    is_national = len(digits) == 11 and digits.startswith("1")
    return (1, 3, 3, 4) if is_national else digit_group_sizes(len(digits))


def has_vowel(word: str) -> bool:
    """Whether ``word`` can be pronounced as a word."""
    return any(letter in "aeiouy" for letter in unicodedata.normalize("NFD", word.lower()))


def reads_as_word(letters: str) -> bool:
    """Whether letters of a code are said as a word: the "blue" and "river" of "blue7river3"."""
    lower = letters.lower()
    if letters not in (lower, letters.upper()):  # the capital of "Tide" would not be heard
        return False
    return lower in vocabulary.SHORT_WORDS_OF_PASSWORDS or bool(_SYLLABLES.fullmatch(lower))


def is_formula(word: str) -> bool:
    """Whether ``word`` is written like a chemical formula: CaCO, HbA."""
    return bool(_ELEMENTS.fullmatch(word)) and not _OPEN_SYLLABLES.fullmatch(word)


def _is_spelled_in_address(text: str) -> bool:
    lower = text.lower()
    if lower in vocabulary.PRONOUNCED_DOMAINS or lower in vocabulary.COMMON_WORDS:
        return len(lower) == 1
    return (
        (len(lower) < 3 and lower not in vocabulary.SHORT_NAMES)
        or not has_vowel(lower)
        or lower in ("edu", "www")
        or text in vocabulary.SPELLED_INITIALISMS
        or (
            text.upper() in vocabulary.SPELLED_INITIALISMS
            and lower not in vocabulary.INITIALISMS_THAT_ARE_WORDS
        )
    )


def _read_dotted_name(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "m5.large" and "anna.k-82", names in which a full stop is said; not an abbreviation."""
    name = match.group(1)
    is_short = name in vocabulary.ABBREVIATIONS and name not in vocabulary.ABBREVIATIONS_IN_PROGRAMS
    if is_short or name in vocabulary.STREET_ABBREVIATIONS:
        return None
    return ENGLISH_SPELLER.read_address(scan, match)


def _read_user_name(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "my username is anna-82" with its marks."""
    if not _USER_NAME_BEHIND.search(scan.view, max(0, match.start() - 24), match.start()):
        return None
    return ENGLISH_SPELLER.read_address(scan, match)


def _read_spelling_word(scan: ScanState, match: re.Match[str]) -> int:
    """Read "M as in Mary" with a pause after it, so that letters read to a listener stay apart."""
    ENGLISH_SPELLER.spell(scan, match.start(1), match.end(1))
    if match.group(1) in _LETTERS_WITH_CLOSED_NAMES:
        scan.punctuate(",")
    scan.emit(match.group(2), match.start(2), match.end(2))
    scan.emit(match.group(3), match.start(3), match.end(3))
    scan.punctuate(",")
    note_english_word(scan.context, match.group(3))
    return match.end()


def _read_call_words(scan: ScanState, match: re.Match[str]) -> int:
    """Read "Mike-4-Tango" with a pause between its parts."""
    for index, part in enumerate(re.finditer(rf"(?i:{_CALL_WORD})|\d+", match.group())):
        if index:
            scan.punctuate(",")
        start, stop = match.start() + part.start(), match.start() + part.end()
        if part.group().isdigit():
            ENGLISH_SPELLER.spell(scan, start, stop)
        else:
            scan.emit(part.group().replace("-", " "), start, stop)
    note_english_word(scan.context, match.group())
    return match.end()


def _read_key(scan: ScanState, match: re.Match[str]) -> int:
    """Read the Alt of "Alt-F4", a key that is held."""
    word = vocabulary.KEYS_OF_KEYBOARDS[match.group()]
    scan.emit(word, match.start(), match.end())
    note_english_word(scan.context, word)
    return match.end()


def _read_last_key(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the Del of "Ctrl+Alt+Del"."""
    if not _KEYS_BEHIND.search(scan.view, match.start()):
        return None
    word = vocabulary.KEYS_OF_KEYBOARDS.get(match.group(), match.group().lower())
    scan.emit(word, *match.span())
    note_english_word(scan.context, word)
    return match.end()


def _read_email_word(scan: ScanState, match: re.Match[str]) -> int:
    """Read "e-mail" as "email"."""
    scan.emit(match.group().lower().replace("-", ""), match.start(), match.end())
    note_english_word(scan.context, "email")
    return match.end()


def read_password(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "Tk9-vv2!" of "password is `Tk9-vv2!`" with the names of its marks, and return its end."""
    start = match.start()
    typed = _TYPED.match(scan.view, start)
    announced = scan.context.previous_word in _PASSWORD_NOUNS or _PASSWORD_BEHIND.search(scan.view, start)
    if typed is None or not announced:
        return None
    stop = typed.end()
    if scan.view[stop : stop + 1] not in ("`", '"'):
        stop = start + len(_END_OF_LITERAL.sub("", typed.group()))
    for part in _PART_OF_PASSWORD.finditer(scan.view, start, stop):
        if reads_as_word(part.group()):
            scan.emit(part.group().lower(), *part.span())
            scan.punctuate(",")
            continue
        for at in range(*part.span()):
            if scan.view[at].isalnum():
                ENGLISH_SPELLER.spell(scan, at, at + 1)
                continue
            scan.emit(ENGLISH_SPELLER.marks.get(scan.view[at], ""), at, at + 1)
            scan.punctuate(",")
    return stop


def _read_password_with_marks(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "Tide!2026" of "password is Tide!2026"."""
    end = read_password(scan, match)
    if end is not None:
        scan.context.note_number()
    return end


def _read_drive_colon(scan: ScanState, match: re.Match[str]) -> int:
    """Read the colon after the letter of a drive."""
    scan.emit(ENGLISH_SPELLER.marks[":"], match.start(), match.end())
    note_english_word(scan.context, "colon")
    return match.end()


def _read_backslash(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the backslash of a path; elsewhere it is left over from a programming language."""
    if not _PATH_BEHIND.search(scan.view, match.end()):
        return None
    for at in range(match.start(), match.end()):
        scan.emit("backslash", at, at + 1)
    note_english_word(scan.context, "backslash")
    return match.end()


def _read_host_with_port(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "192.168.1.1:8080"."""
    address = _IP_ADDRESS.match(scan.view, match.start())
    if address is None:
        return None
    colon = ENGLISH_SPELLER.read_version(scan, address)
    scan.emit("port", colon, colon + 1)
    ENGLISH_SPELLER.spell(scan, colon + 1, match.end())
    scan.context.note_number()
    return match.end()


def _read_service_with_port(scan: ScanState, match: re.Match[str]) -> int:
    """Read "localhost:8080/v1/jobs" and "redis:6379"."""
    ENGLISH_SPELLER.read_address_word(scan, *match.span(1))
    scan.emit("port", match.end(1), match.start(2))
    ENGLISH_SPELLER.spell(scan, *match.span(2))
    scan.context.note_number()
    path = _PATH_AFTER_PORT.match(scan.view, match.end())
    return ENGLISH_SPELLER.read_address(scan, path) if path else match.end()


_KEYS_BEHIND = PatternBehind(rf"\b(?:{any_of(vocabulary.KEYS_OF_KEYBOARDS)})[-+]\Z")
_CALL_WORD = any_of(vocabulary.CALL_WORDS)
_CALL_PART = rf"(?:(?i:{_CALL_WORD})|\d{{1,4}})"
CALL_WORDS_ROW: RuleRow = (
    rf"(?=\w+-\w+-)(?=[\d-]*[A-Za-z]){_CALL_PART}(?:-{_CALL_PART}){{2,40}}(?![\w-])",
    _read_call_words,
)
_KEY = any_of(vocabulary.KEYS_OF_KEYBOARDS)
# E-mail, keys, and names with marks that are said.
NAME_ROWS: tuple[RuleRow, ...] = (
    (rf"({any_of(SERVICE_NAMES)}):(\d{{2,5}})(?![\w:])", _read_service_with_port),
    (r"(?:(?<=[sde:] )|(?<=[\"'`*]))[A-Za-z]{1,30}(?=[!@#$%^&*+=~?][A-Za-z\d])", _read_password_with_marks),
    (r"[Ee]-mail(?:s|ed|ing)?(?!\w)", _read_email_word),
    (r"(?:(?<=[+])|(?<=\w-))(?:Del|Esc|Tab|Enter|Fn|Shift|Alt|Win)(?![\w'])", _read_last_key),
    (rf"(?:{_KEY})(?=[-+](?:[A-Z][a-z]{{0,8}}|F?\d{{1,2}}|{_KEY})(?!\w))", _read_key),
    (r"([A-Z]) (as in|like in) ([A-Za-z][a-z]{1,20})(?=,? [A-Z\d](?!\w)|[.,;!?]| *$)", _read_spelling_word),
    (r"[A-Za-z0-9]{1,30}(?:[._-][A-Za-z0-9]{1,30}){1,4}(?![\w'])", _read_user_name),
    (r"([A-Za-z][A-Za-z0-9-]{1,30})(?:\.[a-z][a-z0-9-]{1,30}){1,4}(?![\w'])", _read_dotted_name),
)
# Hosts with a port, and Windows paths.
HOST_ROWS: tuple[RuleRow, ...] = ((rf"{_IP_ADDRESS.pattern}:\d{{2,5}}(?![\w:]|\.\d)", _read_host_with_port),)
PATH_ROWS: tuple[RuleRow, ...] = ((r":(?=\\)", _read_drive_colon), (r"\\{1,2}(?=[\w.%$])", _read_backslash))
