"""Recognisers of words that are not said as they are written: abbreviations, initialisms, addresses.

Also what is said for an ordinary word: itself. Not a pronunciation dictionary.
"""

import re
import unicodedata

from ..tokenizer import ScanState, compile_rules, end_sentence_if_capital_follows
from . import number_words as numbers
from . import vocabulary
from .codes import has_vowel

_ADDRESS_MARKS = {
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
}
_ADDRESS_PART = re.compile(r"[^\W\d_]+|\d|[^\w]|_")
_CAMEL_CASE_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[^\W\d_]")


def _read_address(scan: ScanState, match: re.Match[str]) -> int:
    """An e-mail address or a URL, without its scheme, mark by mark."""
    scheme = re.match(r"(?:https?|ftp|mailto):(?://)?", match.group(), re.IGNORECASE)
    start = match.start() + (scheme.end() if scheme else 0)
    stop = match.start() + len(match.group().rstrip(".,;:!?'\"/*_"))
    for part in _ADDRESS_PART.finditer(scan.view, start, stop):
        _read_address_part(scan, part)
    scan.context.note_word("address")
    return max(stop, start)


def _read_address_part(scan: ScanState, part: re.Match[str]) -> None:
    text = part.group()
    if text.isdigit():
        scan.spell(part.start(), part.end())
    elif text.isalpha():
        _read_label(scan, part.start(), part.end())
    elif text in _ADDRESS_MARKS:
        scan.emit(_ADDRESS_MARKS[text], part.start(), part.end())


def _read_label(scan: ScanState, start: int, stop: int) -> None:
    for word in _CAMEL_CASE_PART.finditer(scan.view, start, stop):
        text = word.group()
        if _is_spelled_out(text):
            scan.spell(word.start(), word.end())
        else:
            scan.emit(text.lower(), word.start(), word.end())


def _is_spelled_out(text: str) -> bool:
    lower = text.lower()
    if lower in vocabulary.PRONOUNCED_DOMAINS or lower in vocabulary.COMMON_WORDS:
        return len(lower) == 1
    return (
        len(lower) < 3
        or not has_vowel(lower)
        or lower in ("edu", "www")
        or text in vocabulary.SPELLED_INITIALISMS
    )


def read_word(scan: ScanState, match: re.Match[str]) -> int:
    """A word as it stands, or respelled for a reader of spelling."""
    word = unicodedata.normalize("NFC", match.group())
    scan.emit(_spoken_form(scan, word, match.end()), match.start(), match.end())
    scan.context.note_word(word)
    return match.end()


def _spoken_form(scan: ScanState, word: str, end: int) -> str:
    if word == "A":
        return _spoken_a(scan, end)
    lower = word.lower()
    if scan.respells and (respelled := _respelled(scan, lower, end)):
        return respelled
    return lower if word.isupper() and len(word) > 1 and word.isascii() else word


def _respelled(scan: ScanState, lower: str, end: int) -> str:
    if lower == "re" and scan.view[end : end + 1] == "-":
        return "ree"
    if lower == "live" and scan.next_word(end).lower() in vocabulary.NOUNS_AFTER_LIVE:
        return "lyve"
    stem = lower.removesuffix("'s")
    if stem in vocabulary.RESPELLINGS:
        return vocabulary.RESPELLINGS[stem] + lower[len(stem) :]
    return ""


def _spoken_a(scan: ScanState, end: int) -> str:
    """The article, or the letter's name."""
    following = scan.next_word(end)
    announced = scan.context.previous_word in vocabulary.NOUNS_BEFORE_LETTERS or scan.context.code_words_left
    beside_letter = len(following) == 1 and following.isupper() and following != "I"
    in_list = following in ("or", "and", "is", "has", "was", "means", "stands")
    return scan.letter_name("A") if announced or not following or beside_letter or in_list else "a"


def _read_capitals(scan: ScanState, match: re.Match[str]) -> int | None:
    """Initialisms letter by letter, acronyms as words, and shouted words as words."""
    word = match.group()
    if word in vocabulary.PRONOUNCED_ACRONYMS:
        scan.emit(vocabulary.PRONOUNCED_ACRONYMS[word], match.start(), match.end())
    elif _is_initialism(scan, word, match):
        scan.spell(match.start(), match.end())
    else:
        return None
    scan.context.note_word(word)
    return match.end()


def _is_initialism(scan: ScanState, word: str, match: re.Match[str]) -> bool:
    if not word.isupper():
        return False
    lower = word.lower()
    if word in vocabulary.SPELLED_INITIALISMS:
        return lower not in vocabulary.COMMON_WORDS or not _is_shouted(scan, match)
    if not has_vowel(word) or _UNPRONOUNCEABLE.match(word):
        return True
    known = (
        lower in vocabulary.COMMON_WORDS
        or lower in vocabulary.CODE_WORDS
        or lower in vocabulary.IDENTIFIED_NOUNS
    )
    return len(word) < 4 and not known


_UNPRONOUNCEABLE = re.compile(r"(?!SCH|SCR|SHR|SPL|SPR|STR|THR|CHR|PHR)[B-DF-HJ-NP-TV-XZ]{3}")


def _is_shouted(scan: ScanState, match: re.Match[str]) -> bool:
    """Whether the word beside it is in capitals too."""
    before = re.search(r"([^\W\d_]{2,})\W*\Z", scan.view[max(0, match.start() - 20) : match.start()])
    following = scan.next_word(match.end())
    return bool(before and before.group(1).isupper()) or (len(following) > 1 and following.isupper())


def _read_mixed_case_acronym(scan: ScanState, match: re.Match[str]) -> int | None:
    """Words with capitals inside that have a reading of their own."""
    if match.group() not in vocabulary.PRONOUNCED_ACRONYMS:
        return None
    return _read_capitals(scan, match)


def _read_initialism(scan: ScanState, match: re.Match[str]) -> int:
    scan.spell(match.start(), match.end())
    scan.context.note_word(match.group())
    return match.end()


def _read_sharp(scan: ScanState, match: re.Match[str]) -> int:
    return _read_letter_with_sign(scan, match, "sharp")


def _read_minus(scan: ScanState, match: re.Match[str]) -> int:
    """A grade or a blood group."""
    return _read_letter_with_sign(scan, match, "minus")


def _read_letter_with_sign(scan: ScanState, match: re.Match[str], word: str) -> int:
    scan.spell(match.start(), match.end() - 1)
    scan.emit(word, match.end() - 1, match.end())
    scan.context.note_word(match.group())
    return match.end()


def _read_email_word(scan: ScanState, match: re.Match[str]) -> int:
    scan.emit(match.group().lower().replace("-", ""), match.start(), match.end())
    scan.context.note_word("email")
    return match.end()


def _read_dotted_abbreviation(scan: ScanState, match: re.Match[str]) -> int:
    """U.S., a.m., Ph.D.: the letters; e.g. and i.e. what they mean."""
    bare = match.group().rstrip(".")
    if bare in vocabulary.ABBREVIATIONS:
        scan.emit(vocabulary.ABBREVIATIONS[bare][0], match.start(), match.end())
        scan.context.note_word(bare)
        return match.end()
    scan.spell(match.start(), match.end())
    scan.words[-1].stop = match.end()
    scan.context.note_word(bare)
    if match.group().endswith(".") and scan.next_word(match.end()) in ("", *vocabulary.SENTENCE_STARTERS):
        end_sentence_if_capital_follows(scan, match.end())
    return match.end()


def _read_abbreviation(scan: ScanState, match: re.Match[str]) -> int | None:
    """A word with a full stop that is in the table, or a short form that needs none."""
    word, dotted = match.group(1), bool(match.group(2))
    if word in vocabulary.STREET_ABBREVIATIONS:
        return _read_street(scan, match, dotted)
    if word not in vocabulary.ABBREVIATIONS:
        return None
    spoken, kind = vocabulary.ABBREVIATIONS[word]
    if kind is vocabulary.AbbreviationKind.NUMBERED:
        return _read_numbered_abbreviation(scan, match, spoken, dotted)
    is_title = kind is vocabulary.AbbreviationKind.TITLE and scan.next_visible(match.end(1)).isupper()
    if not dotted and not is_title and word not in ("vs", "approx", "etc", "dept", "appt"):
        return None
    scan.emit(spoken, match.start(), match.end())
    scan.context.note_word(word)
    if dotted and kind is vocabulary.AbbreviationKind.MAY_END_SENTENCE:
        end_sentence_if_capital_follows(scan, match.end())
    elif dotted and not scan.next_visible(match.end()):
        scan.punctuate(".")
    return match.end()


_STOPLESS_NUMBERED = frozenset(
    {"ext", "Ext", "EXT", "Apt", "apt", "Ste", "Rm", "pp", "Acct", "acct", "Ref", "ref"}
)
_ALSO_WORDS = frozenset({"No", "no", "Art", "Sec", "Fl", "Fig", "fig", "p", "x", "ch", "Ch", "Vol"})


def _read_numbered_abbreviation(
    scan: ScanState, match: re.Match[str], spoken: str, dotted: bool
) -> int | None:
    word = match.group(1)
    following = _NUMBER_AHEAD.match(scan.view, match.end())
    if word == "x" and not (scan.context.after_phone and following):
        return None
    if not following and (word in _ALSO_WORDS or not dotted):
        return None
    if not dotted and word not in _STOPLESS_NUMBERED and word != "x":
        return None
    scan.emit(spoken, match.start(), match.end())
    scan.context.note_word(spoken)
    return match.end()


_NUMBER_AHEAD = re.compile(r" ?#? ?(?:\d|[A-Z](?!\w))")


def _read_street(scan: ScanState, match: re.Match[str], dotted: bool) -> int | None:
    """St. and Dr. are Saint and Doctor before a name, Street and Drive after one."""
    word = match.group(1)
    following = scan.next_visible(match.end())
    if word == "Hwy" and following.isdigit():
        scan.emit(vocabulary.STREET_ABBREVIATIONS[word], match.start(), match.end())
        scan.context.note_word("highway")
        return match.end()
    after_name = scan.context.previous_capitalized or scan.context.address_words_left > 0
    if word in ("St", "Dr") and following.isupper() and not after_name:
        scan.emit(vocabulary.ABBREVIATIONS[word][0], match.start(), match.end())
        scan.context.note_word("saint")
        return match.end()
    if not (dotted or after_name):
        return None
    scan.emit(vocabulary.STREET_ABBREVIATIONS[word], match.start(), match.end())
    scan.context.note_word("street")
    scan.context.address_words_left, scan.context.previous_capitalized = 0, False
    if dotted:
        end_sentence_if_capital_follows(scan, match.end())
    return match.end()


def _read_slash_abbreviation(scan: ScanState, match: re.Match[str]) -> int:
    word = {"w/": "with", "w/o": "without", "c/o": "care of"}[match.group()]
    scan.emit(word, match.start(), match.end())
    scan.context.note_word(word)
    return match.end()


def _read_state(scan: ScanState, match: re.Match[str]) -> int | None:
    """A state's letters before a ZIP code, or after a name where they are no word or initialism too."""
    letters, context = match.group(), scan.context
    name = vocabulary.STATES.get(letters)
    before_zip = _ZIP_AHEAD.match(scan.view, match.end()) and not (
        letters == "ID" and context.identifier_expected
    )
    likely = (
        vocabulary.UNAMBIGUOUS_STATES
        if not context.after_comma or _is_shouted(scan, match)
        else vocabulary.STATES_AFTER_CITIES
    )
    if name is None or not (before_zip or (context.previous_capitalized and letters in likely)):
        return None
    scan.emit(name, match.start(), match.end())
    scan.context.note_word("zip" if before_zip else name)
    return match.end()


_ZIP_AHEAD = re.compile(r" \d{5}(?!\d)")


def _read_direction(scan: ScanState, match: re.Match[str]) -> int | None:
    """123 E. 45th St, and Pennsylvania Ave NW."""
    letters, context = match.group(1), scan.context
    in_address = context.address_words_left > 0 and bool(scan.next_word(match.end()) or context.after_number)
    if not (in_address or (len(letters) == 2 and context.previous_word == "street")):
        return None
    left = context.address_words_left
    scan.emit(vocabulary.DIRECTIONS[letters], match.start(), match.end())
    context.note_word(letters)
    context.address_words_left = left
    return match.end()


def _read_initial(scan: ScanState, match: re.Match[str]) -> int | None:
    """J. K. Rowling: no pause after an initial."""
    if scan.context.previous_word in vocabulary.NOUNS_BEFORE_LETTERS or match.group(1) == "I":
        return None
    scan.emit(match.group(1), match.start(), match.end())
    scan.context.note_word(match.group(1))
    return match.end()


def _read_temperature_scale(scan: ScanState, match: re.Match[str]) -> int | None:
    """70 degrees F."""
    if scan.context.previous_word not in ("degree", "degrees"):
        return None
    word = {"C": "Celsius", "F": "Fahrenheit"}[match.group()]
    scan.emit(word, match.start(), match.end())
    scan.context.note_word(word)
    return match.end()


def _read_roman(scan: ScanState, match: re.Match[str]) -> int | None:
    """Chapter IV, King Charles III; a name with II or III is somebody's."""
    previous = scan.context.previous_word
    if previous in vocabulary.NOUNS_BEFORE_ROMAN_NUMERALS:
        words = numbers.cardinal(numbers.roman_value(match.group()))
    elif (
        previous in vocabulary.RULER_NAMES and (scan.context.previous_capitalized or len(match.group()) > 1)
    ) or (scan.context.previous_capitalized and match.group() in ("II", "III")):
        words = f"the {numbers.ordinal(numbers.roman_value(match.group()))}"
    else:
        return None
    scan.emit(words, match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _read_letters_with_ampersand(scan: ScanState, match: re.Match[str]) -> int:
    for at in range(match.start(), match.end()):
        if scan.view[at] == "&":
            scan.emit("and", at, at + 1)
        else:
            scan.spell(at, at + 1)
    scan.context.note_word(match.group())
    return match.end()


_DOMAIN = rf"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{{0,62}}[A-Za-z0-9])?\.){{1,8}}(?:{vocabulary.TOP_LEVEL_DOMAINS})"
ADDRESS_RULES = compile_rules(
    (r"(?:https?|ftp)://[^\s<>()\[\]\"]{1,300}", _read_address),
    (
        r"(?:mailto:)?[A-Za-z0-9][\w.+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?!\w)",
        _read_address,
    ),
    (
        rf"(?:www\.[^\s<>()\[\]\"]{{1,200}}|{_DOMAIN}(?![\w-]|\.\w)(?:[:/?#][^\s<>()\[\]\"]{{0,200}})?)",
        _read_address,
    ),
    (rf"[\w-]{{1,60}}\.(?:{vocabulary.FILE_TYPES})(?![\w-]|\.\w)", _read_address),
    (r"[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+", _read_address),
)
ABBREVIATION_RULES = compile_rules(
    (r"(?:[^\W\d_]\.){1,8}[^\W\d_](?:\.|(?!\w))|Ph\.?D\.?(?!\w)", _read_dotted_abbreviation),
    (r"([NS][EW]?|[EW])\.?(?![\w'-])", _read_direction),
    (r"([A-Z])\.(?= [A-Z])", _read_initial),
    (r"([Nn]o)(\.)(?=\d)", _read_abbreviation),
    (r"([A-Za-z]{1,6})(\.?)(?!\w)(?!'\w)", _read_abbreviation),
    (r"(x)()(?=\d)", _read_abbreviation),
    (r"w/o(?!\w)|w/(?!\w)|c/o(?!\w)", _read_slash_abbreviation),
    (r"[A-Z]{2}(?![\w'])", _read_state),
    (r"[A-Z]{1,3}&[A-Z]{1,3}(?!\w)", _read_letters_with_ampersand),
    (r"[Ee]-mail(?:s|ed|ing)?(?!\w)", _read_email_word),
)
LETTER_RULES = compile_rules(
    (r"[CF](?![\w'-])", _read_temperature_scale),
    (r"[IVXLC]{1,6}(?![\w'])", _read_roman),
    (r"Rx(?!\w)", _read_initialism),
    (r"[CF]#(?!\w)", _read_sharp),
    (r"(?:[A-DFO]|AB)-(?![\w-]| (?:and|or) \w+-\w)", _read_minus),
    (r"(?:JPEG|JPG|SaaS|VoIP|Ok|ok|PayPal)(?!\w)", _read_mixed_case_acronym),
    (r"[A-Z]{2,12}(?![^\W_]|'[A-Z])", _read_capitals),
)
