"""Rules of words that are not read as they are written: acronyms, initialisms, addresses.

``read_word`` reads any other word. This is not a pronunciation dictionary.
"""

import re
import unicodedata

from ...kit.address_patterns import TOP_LEVEL_DOMAINS, address_patterns
from ...kit.patterns import PatternBehind
from ...kit.table_rules.roman import roman_value
from ...kit.tokenizer import ScanState, any_of, compile_capital_rules, compile_rules
from . import vocabulary
from .quantities import number_words as numbers
from .spelling import ENGLISH_SPELLER, has_vowel
from .word_context import is_shouted, note_english_word

_ADDRESS_PATTERNS = address_patterns(top_level_domains=f"{TOP_LEVEL_DOMAINS}|in")
# Initial consonants that no English word begins with.
_UNPRONOUNCEABLE = re.compile(r"(?!SCH|SCR|SHR|SPL|SPR|STR|THR|CHR|PHR)[B-DF-HJ-NP-TV-XZ]{3}")
# Words and names of four or five letters begin and end with such consonants: "STOP", "JOHN"; not "COPD".
_ONSETS = (
    "[b-df-hj-np-tv-z]|bl|br|ch|chr|cl|cr|dr|dw|fl|fr|gh|gl|gn|gr|gw|kl|kn|kr|kw|ll|mc|ph|pl|pr|ps|qu|rh|sc|sch|scr"
    "|sh|shr|sk|sl|sm|sn|sp|sph|spl|spr|sq|squ|st|str|sw|th|thr|tr|ts|tw|wh|wr"
)
_CODAS = (
    "[b-df-hj-np-tv-z]|bb|bs|bt|ch|cht|cks?|cts?|dds?|ds|ffs?|fts?|ghs?|ght|gg|gn|gs|hl|hm|hn|hr|lbs?|lch|lds?|lf|lks?"
    "|lls?|lms?|ln|lph?|lps|ls|lth?|lts|lve?|mbs?|mm|mn|mph?|mps|ms|nch?|nds?|ngs?|nks?|nns?|ns|nth?|nts|nx|nz|phs?|pp|ps"
    "|pts?|rbs?|rch?|rds?|rfs?|rg|rks?|rls?|rld|rms?|rns?|rps?|rr|rsh?|rst|rth?|rts|rtz|sch?|sh|sks?|sms?|sp|ss|sts?|tch"
    "|ths?|ts|tts?|tz|wd|wks?|wls?|wns?|xt|zz"
)
_SHORT_WORD = re.compile(rf"(?:{_ONSETS})?[aeiouy]+(?:[a-z]*[aeiouy])?(?:{_CODAS})?")
_SHORT_LENGTHS = (4, 5)
# A number, a price or a quotation after "A" shows the article: "A 10% discount", 'A "gold" plan'.
AMOUNT_AHEAD = re.compile(r" +[\"'(*_~<>+-]*[$£€¥₹]?[\w.]")
_STATUS_BEHIND = PatternBehind(
    r"\b(?:status|state|stage|phase|reason|marked|shows?|showing)\b[^.;!?]{0,20}\Z", re.IGNORECASE
)
_NUMERALS_OF_SEQUELS = frozenset(("VI", "VII", "VIII", "IX", "XI", "XII", "XIII", "XIV", "XV", "XVI", "XVII"))
_END_OF_TITLE = re.compile(r" (?:at|on|in|is|was|with|for|starts|begins|plays|showing)\b|[.,;:!?)]|\Z")
_CENTURY_AHEAD = re.compile(r" (?:century|centuries|c\.)")
_PLURAL_SUFFIX = r"(?:e?s|ren)"


def read_word(scan: ScanState, match: re.Match[str]) -> int:
    """Read a word as it is written, or respelled if spelling rules mispronounce it."""
    word = unicodedata.normalize("NFC", match.group())
    scan.emit(_spoken_form(scan, word, match.end()), match.start(), match.end())
    note_english_word(scan.context, word)
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
    return ""


def _spoken_a(scan: ScanState, end: int) -> str:
    """Return the reading of "A": the article, or the name of the letter."""
    following = scan.next_word(end)
    announced = scan.context.previous_word in vocabulary.NOUNS_BEFORE_LETTERS or scan.context.code_words_left
    beside_letter = len(following) == 1 and following.isupper() and following != "I"
    before_noun_phrase = bool(AMOUNT_AHEAD.match(scan.view, end))
    nothing_follows = not following and not before_noun_phrase
    is_letter = announced or nothing_follows or beside_letter or following in vocabulary.WORDS_AFTER_LETTERS
    return ENGLISH_SPELLER.letter_name(scan, "A") if is_letter else "a"


def _read_optional_plural(scan: ScanState, match: re.Match[str]) -> int:
    """Read "name(s)" as "names", and "1 item(s)" as "one item"."""
    after_one = bool(scan.words) and scan.words[-1].text == "one" and scan.context.after_number
    word = match.group(1) + ("" if after_one else match.group(2))
    scan.emit(word, match.start(), match.end())
    note_english_word(scan.context, match.group(1))
    return match.end()


def _read_capitals(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read an acronym as a word and an initialism letter by letter; decline other words in capitals."""
    word = match.group()
    if word in vocabulary.PRONOUNCED_ACRONYMS:
        scan.emit(vocabulary.PRONOUNCED_ACRONYMS[word], match.start(), match.end())
    elif _is_initialism(scan, word, match):
        ENGLISH_SPELLER.spell(scan, match.start(), match.end())
    else:
        return None
    note_english_word(scan.context, word)
    return match.end()


def _is_initialism(scan: ScanState, word: str, match: re.Match[str]) -> bool:
    if not word.isupper():
        return False
    lower = word.lower()
    if word == "DO" and scan.context.after_comma:  # "Dr. Lindqvist, DO, has"
        return scan.next_visible(match.end()) in ",."
    if word in vocabulary.STATION_WORDS:
        return scan.context.previous_word in vocabulary.VERBS_BEFORE_STATIONS
    if word in vocabulary.SPELLED_INITIALISMS:
        return lower not in vocabulary.COMMON_WORDS or not is_shouted(scan, match)
    if not has_vowel(word) or _UNPRONOUNCEABLE.match(word):
        return True
    if len(word) in _SHORT_LENGTHS and word.isascii() and not _SHORT_WORD.fullmatch(lower):
        return True
    known = (
        lower in vocabulary.COMMON_WORDS
        or lower in vocabulary.CODE_WORDS
        or lower in vocabulary.IDENTIFIED_NOUNS
    )
    return len(word) < 4 and not known


def _read_mixed_case_acronym(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read a word with capitals inside that has a reading of its own."""
    if match.group() not in vocabulary.PRONOUNCED_ACRONYMS:
        return None
    return _read_capitals(scan, match)


def _read_inflected_initialism(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "CEOs" and "AWS's": the ending belongs to the name of the last letter."""
    letters, ending = match.groups()
    if ending != "'s" and letters.lower() in vocabulary.COMMON_WORDS | vocabulary.CODE_WORDS:
        return None
    if letters in vocabulary.PRONOUNCED_ACRONYMS or not _is_initialism(scan, letters, match):
        return None
    ENGLISH_SPELLER.spell(scan, match.start(), match.end(1))
    scan.words[-1].text += "'s"
    scan.words[-1].stop = match.end()
    note_english_word(scan.context, letters)
    return match.end()


def _read_initialism(scan: ScanState, match: re.Match[str]) -> int:
    ENGLISH_SPELLER.spell(scan, match.start(), match.end())
    note_english_word(scan.context, match.group())
    return match.end()


def _read_element(scan: ScanState, match: re.Match[str]) -> int:
    """Read the "Na" of "Na 141", a value of the blood."""
    word = vocabulary.ELEMENTS_OF_ISOTOPES[match.group()]
    scan.emit(word, *match.span())
    note_english_word(scan.context, word)
    return match.end()


def _read_sharp(scan: ScanState, match: re.Match[str]) -> int:
    """Read "C#"."""
    return _read_letter_with_sign(scan, match, "sharp")


def _read_minus_grade(scan: ScanState, match: re.Match[str]) -> int:
    """Read "B-", a grade or a blood group."""
    return _read_letter_with_sign(scan, match, "minus")


def _read_letter_with_sign(scan: ScanState, match: re.Match[str], word: str) -> int:
    ENGLISH_SPELLER.spell(scan, match.start(), match.end() - 1)
    scan.emit(word, match.end() - 1, match.end())
    note_english_word(scan.context, match.group())
    return match.end()


def _read_temperature_scale(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the F of "70 degrees F"."""
    if scan.context.previous_word not in ("degree", "degrees"):
        return None
    word = {"C": "Celsius", "F": "Fahrenheit"}[match.group()]
    scan.emit(word, match.start(), match.end())
    note_english_word(scan.context, word)
    return match.end()


def _read_roman(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the number of "Chapter IV" or "King Charles III's"; II and III may follow any name."""
    previous, numeral = scan.context.previous_word, match.group(1)
    value = roman_value(numeral)
    if value is None or numeral in ("C", "L"):  # "Schedule C", "Version C": letters
        return None
    if len(numeral) > 1 and _CENTURY_AHEAD.match(scan.view, match.end(1)):
        words = numbers.ordinal(value)
    elif previous in vocabulary.NOUNS_BEFORE_ROMAN_NUMERALS or _is_sequel(scan, match):
        words = numbers.cardinal(value)
    elif (previous in vocabulary.RULER_NAMES and (scan.context.previous_capitalized or len(numeral) > 1)) or (
        scan.context.previous_capitalized and numeral in ("II", "III")
    ):
        words = f"the {numbers.ordinal(value)}"
    else:
        return None
    scan.emit(words + (match.group(2) or ""), match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _read_roman_range(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "I–IV" of "movements I–IV"."""
    values = [roman_value(numeral) for numeral in match.groups()]
    noun = scan.context.previous_word
    if None in values or not {noun, noun.removesuffix("s")} & vocabulary.NOUNS_BEFORE_ROMAN_NUMERALS:
        return None
    scan.emit(numbers.cardinal(values[0] or 0), *match.span(1))
    scan.emit("to", match.end(1), match.start(2))
    scan.emit(numbers.cardinal(values[1] or 0), *match.span(2))
    scan.context.note_number()
    return match.end()


def _read_part_with_letter(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "IIIB" of "stage IIIB" and the "IVA" of "Title IVA"."""
    value = roman_value(match.group(1))
    if value is None or scan.context.previous_word not in vocabulary.NOUNS_BEFORE_ROMAN_NUMERALS:
        return None
    scan.emit(numbers.cardinal(value), *match.span(1))
    ENGLISH_SPELLER.spell(scan, *match.span(2))
    scan.context.note_number()
    return match.end()


def _is_sequel(scan: ScanState, match: re.Match[str]) -> bool:
    """Whether "VII" or "IV" follows the name of a work, as in "Rocky IV at 9"; not "an IV drip"."""
    context, numeral = scan.context, match.group(1)
    if not context.previous_capitalized or context.previous_word in vocabulary.RULER_NAMES:
        return False
    return numeral in _NUMERALS_OF_SEQUELS or (
        numeral == "IV" and bool(_END_OF_TITLE.match(scan.view, match.end()))
    )


def _read_letters_with_ampersand(scan: ScanState, match: re.Match[str]) -> int:
    """Read "AT&T"."""
    for at in range(match.start(), match.end()):
        if scan.view[at] == "&":
            scan.emit("and", at, at + 1)
        else:
            ENGLISH_SPELLER.spell(scan, at, at + 1)
    note_english_word(scan.context, match.group())
    return match.end()


def _read_name_with_underscores(scan: ScanState, match: re.Match[str]) -> int:
    """Read "john_doe" with its marks, and "status is IN_TRANSIT" as words."""
    is_status = match.group().isupper() and _STATUS_BEHIND.search(scan.view, match.start())
    if not is_status:
        end = ENGLISH_SPELLER.read_address(scan, match)
        note_english_word(scan.context, match.group().rpartition("_")[2].lower())  # "user_id=4471"
        return end
    for part in re.finditer("[A-Z0-9]+", match.group()):
        start, stop = match.start() + part.start(), match.start() + part.end()
        scan.emit(part.group().lower(), start, stop)
    note_english_word(scan.context, "status")
    return match.end()


def _read_prefixed_initialism(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the small letters and the capitals of "mRNA", "eSIM" and "gRPC"."""
    capitals = match.group(2)
    if capitals == "OS" or capitals.lower() in vocabulary.COMMON_WORDS or capitals in vocabulary.DIRECTIONS:
        return None
    ENGLISH_SPELLER.spell(scan, *match.span(1))
    if capitals in vocabulary.PRONOUNCED_ACRONYMS:
        scan.emit(vocabulary.PRONOUNCED_ACRONYMS[capitals], *match.span(2))
    else:
        ENGLISH_SPELLER.spell(scan, *match.span(2))
    if match.group(3):
        scan.words[-1].text += "'s"
        scan.words[-1].stop = match.end()
    note_english_word(scan.context, capitals)
    return match.end()


def _read_joined_words(scan: ScanState, match: re.Match[str]) -> int:
    """Read "NullPointerException" and "getUserById" word by word."""
    ENGLISH_SPELLER.read_address_word(scan, *match.span())
    note_english_word(scan.context, "error" if match.group().endswith("Error") else "name")
    return match.end()


def _read_letter_range(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "A-F" of "rows A-F" and of "platform 3 A-C"; one thing named "A-F" has no range."""
    low, high = match.groups()
    noun = scan.context.previous_word
    is_plural = noun.endswith("s") and noun[:-1] in vocabulary.NOUNS_BEFORE_LETTERS
    is_part = scan.context.after_number and scan.context.word_before_number in vocabulary.NOUNS_BEFORE_LETTERS
    if low >= high or not (is_plural or is_part or noun == "seats"):
        return None
    ENGLISH_SPELLER.spell(scan, *match.span(1))
    scan.emit("to", match.end(1), match.start(2))
    ENGLISH_SPELLER.spell(scan, *match.span(2))
    note_english_word(scan.context, high)
    return match.end()


ADDRESS_RULES = compile_rules(
    *ENGLISH_SPELLER.address_rows(_ADDRESS_PATTERNS),
    (r"[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+", _read_name_with_underscores),
)
# "pH", "NaCl"
_MIXED_CASE_ACRONYM = any_of(
    word for word in vocabulary.PRONOUNCED_ACRONYMS if word.isalpha() and not word.isupper()
)


def _read_letters(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "npm", "cc" and "Pb", which no one can pronounce, letter by letter."""
    if match.group().lower() in vocabulary.INTERJECTIONS:
        return None
    return _read_initialism(scan, match)


_CAPITAL_WORD_RULES = compile_capital_rules(
    (r"[A-Z]{1,3}&[A-Z]{1,3}(?!\w)", _read_letters_with_ampersand),
    (r"[CF](?![\w'-])", _read_temperature_scale),
    (r"([IVX]{1,5}) ?[-–] ?([IVX]{1,5})(?![\w'])", _read_roman_range),
    (r"([A-Z])-([A-Z])(?![\w'-])", _read_letter_range),
    (r"([IVXLC]{1,6})('s)?(?![\w'])", _read_roman),
    (r"([IVX]{1,4})([A-Ca-c])(?![\w'])", _read_part_with_letter),
    (r"Rx(?!\w)", _read_initialism),
    (r"(?:Na|Ca)(?= \d{1,3}(?:\.\d{1,2})?(?![\w.,:/]\d|\w))", _read_element),
    (r"[CF]#(?!\w)", _read_sharp),
    # Grades and blood groups; not "A- and B-rated"
    (r"(?:[A-DFO]|AB)-(?![\w-]| (?:and|or) \w+-\w)", _read_minus_grade),
)
_INITIALISM_RULES = compile_capital_rules(
    (r"([A-Z]{2,6})('?s)(?![^\W_]|')", _read_inflected_initialism),
    (r"[A-Z]{2,12}(?![^\W_]|'[A-Z])", _read_capitals),
)
LETTER_RULES = (
    *compile_rules(
        (r"[B-DF-HJ-NP-TV-XZb-df-hj-np-tv-xz][b-df-hj-np-tv-xz]{1,4}(?![\w'])", _read_letters),
        (rf"([^\W\d_]{{2,40}})\(({_PLURAL_SUFFIX})\)(?!\w)", _read_optional_plural),
    ),
    *_CAPITAL_WORD_RULES,
    *compile_rules(
        (rf"(?:{_MIXED_CASE_ACRONYM})(?!\w)", _read_mixed_case_acronym),
        (r"([a-z]{1,2})([A-Z]{2,5})('?s)?(?![\w'])", _read_prefixed_initialism),
        (r"(?:[A-Z][a-z]+(?:[A-Z][a-z]+){2,6}|[a-z]{3,20}(?:[A-Z][a-z]+){1,6})(?![\w'])", _read_joined_words),
    ),
    *compile_capital_rules(
        (
            r"[A-Z][a-z]{2,20}(?:Errors?|Exceptions?|Warnings?|Handler|Service|Controller|Manager|Factory|Provider)(?![\w'])",
            _read_joined_words,
        ),
        # "HTTPServer", "JSONDecodeError"
        (
            rf"[A-Z]{{2,6}}(?:(?:{any_of(vocabulary.WORDS_OF_PROGRAMS)})|[A-Z][a-z]{{2,20}}(?=[A-Z]))"
            r"(?:[A-Z][a-z]{1,20}){0,5}(?![\w'])",
            _read_joined_words,
        ),
    ),
    *_INITIALISM_RULES,
)
