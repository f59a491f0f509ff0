"""Rules of words that are not read as they are written: abbreviations, initialisms, addresses.

``read_word`` reads any other word. This is not a pronunciation dictionary.
"""

import re
import unicodedata

from ..address_patterns import TOP_LEVEL_DOMAINS, address_patterns
from ..clause_boundaries import AbbreviationKind
from ..roman_numerals import roman_value
from ..tokenizer import ScanState, any_of, compile_rules, end_sentence_if_capital_follows
from . import number_words as numbers
from . import vocabulary
from .addresses import read_direction, read_state, read_street
from .spelling import ENGLISH_SPELLER, NAME_ROWS, has_vowel
from .units import end_of_unit
from .word_context import is_shouted, note_english_word

_ADDRESS_PATTERNS = address_patterns(top_level_domains=f"{TOP_LEVEL_DOMAINS}|in")
# Initial consonants that no English word begins with.
_UNPRONOUNCEABLE = re.compile(r"(?!SCH|SCR|SHR|SPL|SPR|STR|THR|CHR|PHR)[B-DF-HJ-NP-TV-XZ]{3}")
_ORDINAL_BEHIND = re.compile(r"\d(?:st|nd|rd|th) \Z")
_NUMBER_AHEAD = re.compile(r" ?#? ?(?:\d|[A-Z](?!\w)|[A-Z]{1,4}(?:-[A-Z]{1,3})?[-/]?\d)")
_CAPITALS_OR_VERB_AHEAD = re.compile(r" (?:[A-Z]{2,6}(?!\w)|[a-z])")  # "part no. WRX", "serial no. reads"
# A number, a price or a quotation after "A" shows the article: "A 10% discount", 'A "gold" plan'.
_AMOUNT_AHEAD = re.compile(r" +[\"'(*_~<>+-]*[$£€¥₹]?[\w.]")
_PLURAL_SUFFIX = r"(?:e?s|ren)"
_UNITS_AFTER_PER = vocabulary.UNITS.keys() - {"in", "x"}


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
    stem = lower.removesuffix("'s")
    if stem in vocabulary.RESPELLINGS:
        return vocabulary.RESPELLINGS[stem] + lower[len(stem) :]
    return ""


def _spoken_a(scan: ScanState, end: int) -> str:
    """Return the reading of "A": the article, or the name of the letter."""
    following = scan.next_word(end)
    announced = scan.context.previous_word in vocabulary.NOUNS_BEFORE_LETTERS or scan.context.code_words_left
    beside_letter = len(following) == 1 and following.isupper() and following != "I"
    before_noun_phrase = bool(_AMOUNT_AHEAD.match(scan.view, end))
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
    if word in vocabulary.SPELLED_INITIALISMS:
        return lower not in vocabulary.COMMON_WORDS or not is_shouted(scan, match)
    if not has_vowel(word) or _UNPRONOUNCEABLE.match(word):
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


def _read_dotted_abbreviation(scan: ScanState, match: re.Match[str]) -> int:
    """Read the letters of "U.S." or "Ph.D.", and the meaning of "e.g." and "i.e."."""
    bare = match.group().rstrip(".")
    if bare in vocabulary.ABBREVIATIONS:
        spoken, kind = vocabulary.ABBREVIATIONS[bare]
        scan.emit(spoken, match.start(), match.end())
        note_english_word(scan.context, bare)
        if kind is AbbreviationKind.MAY_END_SENTENCE:
            return _end_of_abbreviation(scan, match, match.group().endswith("."))
        return match.end()
    ENGLISH_SPELLER.spell(scan, match.start(), match.end())
    note_english_word(scan.context, bare)
    if match.group().endswith(".") and scan.next_word(match.end()) in ("", *vocabulary.SENTENCE_STARTERS):
        end_sentence_if_capital_follows(scan, match.end())
    return match.end()


def _read_abbreviation(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read an abbreviation of the vocabulary with its full stop, or without where it needs none."""
    word, dotted = match.group(1), bool(match.group(2))
    if scan.context.previous_word in ("per", "sq") and word in _UNITS_AFTER_PER:
        return _read_unit_after_per(scan, match)
    if word in vocabulary.STREET_ABBREVIATIONS:
        return read_street(scan, match, dotted)
    if word not in vocabulary.ABBREVIATIONS:
        return None
    spoken, kind = vocabulary.ABBREVIATIONS[word]
    following = scan.next_visible(match.end())
    is_word = word in vocabulary.AMBIGUOUS_ABBREVIATIONS and not (following.islower() or following.isdigit())
    if is_word and kind is AbbreviationKind.MAY_END_SENTENCE:
        return None
    if kind is AbbreviationKind.NUMBERED:
        return _read_numbered_abbreviation(scan, match, spoken, dotted)
    is_title = kind is AbbreviationKind.TITLE and scan.next_visible(match.end(1)).isupper()
    if not dotted and not is_title and word not in vocabulary.STOPLESS_ABBREVIATIONS:
        return None
    if word in vocabulary.LAST_ABBREVIATIONS and (not following or following in ".,;:!?)"):
        spoken = vocabulary.LAST_ABBREVIATIONS[word]
    scan.emit(_form_of_unit(scan, word, match.end()) or spoken, match.start(), match.end())
    note_english_word(scan.context, word)
    before_street = scan.next_word(match.end()) in vocabulary.CAPITALIZED_STREET_WORDS
    if word in vocabulary.NAME_SUFFIXES and before_street:
        scan.context.address_words_left = 2
    elif dotted and kind is AbbreviationKind.MAY_END_SENTENCE:
        end_sentence_if_capital_follows(scan, match.end())
    elif dotted and not following:
        scan.punctuate(".")
    return match.end()


def _read_unit_after_per(scan: ScanState, match: re.Match[str]) -> int:
    """Read the unit of "24p per kWh", and of "per sq ft" and "in sq ft"."""
    after_per = any(word.text == "per" for word in scan.words[-2:])
    unit = vocabulary.UNITS[match.group(1)][0 if after_per else 1]
    scan.emit(unit, match.start(), match.end(1))
    note_english_word(scan.context, unit)
    return end_of_unit(scan, match.end(1))


def _form_of_unit(scan: ScanState, word: str, end: int) -> str:
    """Return "minimum" for the "min." of "min. order", the singular of "per hr.", and "" for other words."""
    previous = scan.context.previous_word
    if scan.context.after_number or word not in vocabulary.UNITS:
        return ""
    following = scan.next_word(end) if scan.view[end : end + 1] == " " else ""
    is_counted = previous in vocabulary.WORDS_BEFORE_UNITS or following in vocabulary.WORDS_AFTER_PRICES - {
        "of"
    }
    if word == "min" and (following.islower() or _AMOUNT_AHEAD.match(scan.view, end)) and not is_counted:
        return "minimum"
    return vocabulary.UNITS[word][0] if previous in vocabulary.WORDS_BEFORE_ONE else ""


def _read_numbered_abbreviation(
    scan: ScanState, match: re.Match[str], spoken: str, dotted: bool
) -> int | None:
    """Read "No. 5" or "ext. 7"; "x7" is an extension after a phone number only."""
    word = match.group(1)
    announced = dotted and scan.view[match.end() : match.end() + 1] == ":"  # "Ref. no.:"
    following = announced or _NUMBER_AHEAD.match(scan.view, match.end())
    if word == "pp" and scan.context.after_number:  # "$95 pp"
        spoken, following = "per person", True
    if word in ("Fl", "fl", "Qtr", "qtr") and _ORDINAL_BEHIND.search(scan.view, 0, match.start()):
        scan.emit(spoken, match.start(), match.end())
        note_english_word(scan.context, spoken)
        return _end_of_abbreviation(scan, match, dotted)
    if word == "x" and not (scan.context.after_phone and following):
        return None
    if word in ("no", "No") and (scan.context.identifier_expected or scan.context.code_just_announced):
        following = following or _CAPITALS_OR_VERB_AHEAD.match(scan.view, match.end())
    if not following and (word in vocabulary.AMBIGUOUS_ABBREVIATIONS or not dotted):
        return None
    if not dotted and word not in vocabulary.STOPLESS_ABBREVIATIONS and word != "x":
        return None
    scan.emit(spoken, match.start(), match.end())
    note_english_word(scan.context, spoken)
    return match.end()


def _end_of_abbreviation(scan: ScanState, match: re.Match[str], dotted: bool) -> int:
    if dotted:
        end_sentence_if_capital_follows(scan, match.end())
    return match.end()


def _read_initial(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the initials of "J. K. Rowling" without a pause after them."""
    if scan.context.previous_word in vocabulary.NOUNS_BEFORE_LETTERS or match.group(1) == "I":
        return None
    scan.emit(match.group(1), match.start(), match.end())
    note_english_word(scan.context, match.group(1))
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
    if value is None:
        return None
    if previous in vocabulary.NOUNS_BEFORE_ROMAN_NUMERALS:
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


def _read_letters_with_ampersand(scan: ScanState, match: re.Match[str]) -> int:
    """Read "AT&T"."""
    for at in range(match.start(), match.end()):
        if scan.view[at] == "&":
            scan.emit("and", at, at + 1)
        else:
            ENGLISH_SPELLER.spell(scan, at, at + 1)
    note_english_word(scan.context, match.group())
    return match.end()


ADDRESS_RULES = compile_rules(
    *ENGLISH_SPELLER.address_rows(_ADDRESS_PATTERNS),
    (rf"[\w-]{{1,60}}\.(?:{any_of(vocabulary.FILE_TYPES)})(?![\w-]|\.\w)", ENGLISH_SPELLER.read_address),
    # "john_doe"
    (r"[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+", ENGLISH_SPELLER.read_address),
)
# "pH", "NaCl"
_MIXED_CASE_ACRONYM = any_of(
    word for word in vocabulary.PRONOUNCED_ACRONYMS if word.isalpha() and not word.isupper()
)
# "B.Sc": the academic degrees, which have full stops inside.
_DEGREE = any_of(word for word in vocabulary.ABBREVIATIONS if re.search(r"\w\w\.|\.\w\w", word))
ABBREVIATION_RULES = compile_rules(
    (rf"(?:{_DEGREE})(?:\.|(?!\w))", _read_dotted_abbreviation),
    (r"(?:[^\W\d_]\.){1,8}[^\W\d_](?:\.|(?!\w))|Ph\.?D\.?(?!\w)", _read_dotted_abbreviation),
    # "N.", "NW": a direction in an address
    (r"([NS][EW]?|[EW])\.?(?![\w'-])", read_direction),
    (r"([A-Z])\.(?= [A-Z])", _read_initial),
    # "No.5", which is no domain; then any word of the vocabulary; then "x7", an extension
    (r"([Nn]o)(\.)(?=\d)", _read_abbreviation),
    (r"([A-Za-z]{1,6})(\.?)(?!\w)(?!'\w)", _read_abbreviation),
    (r"(x)()(?=\d)", _read_abbreviation),
    (r"[A-Z]{2}(?![\w'])", read_state),
    (r"[A-Z]{1,3}&[A-Z]{1,3}(?!\w)", _read_letters_with_ampersand),
    *NAME_ROWS,
)
LETTER_RULES = compile_rules(
    (rf"([^\W\d_]{{2,40}})\(({_PLURAL_SUFFIX})\)(?!\w)", _read_optional_plural),
    (r"[CF](?![\w'-])", _read_temperature_scale),
    (r"([IVXLC]{1,6})('s)?(?![\w'])", _read_roman),
    (r"Rx(?!\w)", _read_initialism),
    (r"[CF]#(?!\w)", _read_sharp),
    # Grades and blood groups; not "A- and B-rated"
    (r"(?:[A-DFO]|AB)-(?![\w-]| (?:and|or) \w+-\w)", _read_minus_grade),
    (rf"(?:{_MIXED_CASE_ACRONYM})(?!\w)", _read_mixed_case_acronym),
    (r"([A-Z]{2,6})('?s)(?![^\W_]|')", _read_inflected_initialism),
    (r"[A-Z]{2,12}(?![^\W_]|'[A-Z])", _read_capitals),
)
