"""Rules of numbers that a listener writes down: phone numbers, PINs, account numbers, codes with letters.

They are read digit by digit with their zeros, with a pause after each group.
Source: NANP and ITU-T E.123 for the grouping of phone numbers.
"""

import re

from ...kit.patterns import PatternBehind
from ...kit.reading_context import CODE_CONTINUATION_WINDOW, ReadingContext
from ...kit.spelling import NAMED_DIGITS
from ...kit.tokenizer import ScanState, any_of, compile_capital_rules, compile_rules
from ...unicode_scripts import GREEK
from . import vocabulary
from .quantities import number_words as numbers
from .spelling import ENGLISH_SPELLER, has_vowel, is_formula, phone_group_sizes, read_password, reads_as_word

_MAX_CODE_GROUP = 6  # letters and digits of a mixed code that are read without a pause
_ALPHANUMERIC_RUN = re.compile(r"[^\W_]+")
_LETTER_OR_DIGIT_RUN = re.compile(r"[^\W\d_]+|\d+")
_WORD_AND_YEAR = re.compile(r"[A-Z]?[a-z]+-(?:1[89]|20)\d\ds?")  # "mid-1990s", "pre-2020"
_PREFIX_AND_NUMBER = re.compile(r"(?:[Ss]ub|[Uu]nder|[Oo]ver)-\d{1,3}")  # "sub-30 min. run"
_SHORT_WORDS = frozenset({"by", "in", "of", "on", "or", "to"})
# "4-digit", and the oil "5W-30"
_GREEK_LETTER = re.compile(f"[{GREEK}]")  # "2σ" has the letter's name
_NAME_AND_YEAR = re.compile(r"[A-Z]{2,5}-?20[0-3]\d")  # "ES2022", "WWDC2025"
_HYPHENATED_COMPOUND = re.compile(
    rf"(?:^|-)(?:[a-z]{{3,}}|{any_of(_SHORT_WORDS)})(?:-|$)|\A\d{{1,2}}W-\d\d\Z"
)
_NUMBER_AND_ACRONYM = re.compile(rf"\d{{1,2}}-(?:{any_of(vocabulary.PRONOUNCED_ACRONYMS)})\d?")  # "16-SEER2"
_MIN_GROUPED_CHARACTERS = 9  # of a mixed code that is read in groups of three or four
_YEAR = re.compile(r"(?:1[89]|20)\d\d")
_TWO_DIGITS = frozenset(map(str, range(1, 100)))  # "caller #12" is twelve
_ROOMS = frozenset(("suite", "room", "apartment", "unit", "box"))
_NUMBER_AND_LETTER = re.compile(r"[1-9]\d?[A-Z]|[A-Z]-?[1-9]\d?")  # "unit #12B", "room B-12"
# An offer's code is made of words: "promo code SAVE20". A run of consonants that no word has shows letters.
_OFFER_BEHIND = PatternBehind(
    r"\b(?:(?:promo(?:tion)?|coupon|voucher|discount|offer|referral|sign-?up|gift|access|invite)"
    r"(?: code)?|(?:use|with) code)"
    r"(?: is|:)? \Z",
    re.IGNORECASE,
)
_WORD_AND_NUMBER = re.compile(r"(?=[A-Z]*[AEIOUY])[A-Z]{4,15}(?:-?\d{1,4})?(?:-?[A-Z]{4,15})?")
_UNPRONOUNCEABLE = re.compile(
    r"\b[BCDFGHJKMNPQRTVWXZ]{3}|(?!STR|SPR|SPL|NGS|GHT|NCH|TCH|NDS|RST|NTS|CKS|MPL|NKS|RTY|RDS|CHR|THR|NST|MPS|RTS)"
    r"[BCDFGHJKLMNPQRSTVWXZ]{3}"
)
# Standards of which a number and letters are part: "UTF-16LE", "SHA-256", "AES-256-GCM", "WPA2"
_STANDARD = re.compile(
    r"(?:UTF|SHA|AES|RSA|HMAC|WPA|DDR|LPDDR|GDDR|PCIe|MPEG|IPv|CAT|Cat|IP|AN)-?\d{1,3}(?:-?[A-Z]{1,4})?"
)
_RANK_BEHIND = PatternBehind(r"#\d{1,3} of \Z")  # "#3 of 214"
_QUEUE_AHEAD = re.compile(r" (?:in (?:the )?(?:line|queue)|of \d)\b")
_CALLED = re.compile(
    rf"\b(?:{any_of(vocabulary.WORDS_BEFORE_PHONES)})[:.]?"
    r"(?: us)?(?: (?:on|at))? (?:[\d -]{3,20}(?:\([^()]{1,20}\))?,? (?:or|and) )?\Z",
    re.IGNORECASE,
)
_TEXTED = PatternBehind(r"\b(?:[Tt]ext|TEXT|[Ss]end|SMS|[Rr]eply)\b[^.!?]{1,40} to \Z")
# "4471 is your verification code", "use 4471 as the PIN", "8812 is your ticket number"
_CODE_AHEAD = re.compile(
    r" (?:(?:is|will be) (?:your|my|our)(?: [\w'-]{1,20}){0,3}|(?:is|will be) the(?: [\w'-]{1,20}){0,2}"
    rf"|as (?:your|the)(?: [\w'-]{{1,20}}){{0,2}}) (?:{any_of(vocabulary.CODE_WORDS)}"
    rf"|(?:{any_of(vocabulary.IDENTIFIED_NOUNS)}) (?:{any_of(vocabulary.NUMBER_NOUNS - {'#'})}))\b",
    re.IGNORECASE,
)
_ENTERED = PatternBehind(r"\b(?:[Ee]nter|[Tt]ype|[Kk]ey|[Pp]unch)(?: in)? \Z")
_AFTER_ENTERED = re.compile(r" (?:to|at|on|when|and|in|into)\b|[.!](?!\d)")
_CHANGE_BEHIND = PatternBehind(r"(?:\A|[ (])\+(?:\d{1,4} [-–])?\Z")  # "PR #88 (+320 -41)"
_SMALL_LETTER = re.compile(r"[a-z]")
_MAC_ADDRESS = r"[0-9A-Fa-f]{2}([:-])(?:[0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}(?!\w)"


def is_counted(word: str) -> bool:
    """Whether a number before ``word`` counts it: ``word`` is a unit or looks like a plural."""
    plural = len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is"))
    return word in vocabulary.COUNTED_NOUNS or (plural and word.islower() and word != "does")


def _read_phone(scan: ScanState, match: re.Match[str]) -> int:
    if match.group().startswith("+"):
        scan.emit("plus", match.start(), match.start() + 1)
    for index, run in enumerate(_ALPHANUMERIC_RUN.finditer(match.group())):
        if index:
            scan.punctuate(",")
        start, stop = match.start() + run.start(), match.start() + run.end()
        _read_phone_group(scan, start, stop)
    scan.context.note_number()
    scan.context.after_phone = True
    return match.end()


def _read_phone_group(scan: ScanState, start: int, stop: int) -> None:
    """Read a group of a phone number; "800" and "0800" are said as the number of hundreds."""
    digits = scan.view[start:stop]
    if digits in ("800", "0800"):
        ENGLISH_SPELLER.spell(scan, start, stop - 3)
        scan.emit("eight hundred", stop - 3, stop)
    else:
        ENGLISH_SPELLER.spell_in_groups(scan, start, stop, phone_group_sizes(digits))


def _read_local_phone(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "555.0142" and, after "call" or "dial", other digits in groups."""
    called = _CALLED.search(scan.view, max(0, match.start() - 60), match.start())
    is_count = len(match.group()) == 3 and is_counted(scan.next_word(match.end()))
    is_phone = (called and not is_count) or re.match(r"555\.\d{4}", match.group())
    return _read_phone(scan, match) if is_phone else None


def _read_short_number(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the number of "text STOP to 9999"."""
    if is_counted(scan.next_word(match.end())) or not _TEXTED.search(scan.view, match.start()):
        return None
    return _read_phone(scan, match)


def _read_named_afterwards(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the number of "4471 is your verification code" and of "enter 4471 to confirm"."""
    is_entered = _AFTER_ENTERED.match(scan.view, match.end()) and _ENTERED.search(scan.view, match.start())
    return read_code(scan, match) if is_entered or _CODE_AHEAD.match(scan.view, match.end()) else None


def _read_vanity_number(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read 1-800-GOT-JUNK: the letters are words if they can be pronounced."""
    digits, words = match.group(1), match.group(2)
    if not all(map(has_vowel, words.split("-"))):
        return None
    start = match.start()
    for index, run in enumerate(_ALPHANUMERIC_RUN.finditer(scan.view, start, start + len(digits))):
        if index:
            scan.punctuate(",")
        _read_phone_group(scan, run.start(), run.end())
    scan.punctuate(",")
    for word in _ALPHANUMERIC_RUN.finditer(scan.view, match.start(2), match.end(2)):
        scan.emit(word.group().lower(), word.start(), word.end())
    scan.context.note_number()
    scan.context.after_phone = True
    return match.end()


def read_code(scan: ScanState, match: re.Match[str]) -> int:
    """Read digits and letters with a pause at each separator and inside long runs."""
    if scan.context.after_code:
        scan.punctuate(",")
    for index, run in enumerate(_ALPHANUMERIC_RUN.finditer(scan.view, match.start(), match.end())):
        if index:
            scan.punctuate(",")
        ENGLISH_SPELLER.spell_in_groups(scan, run.start(), run.end())
    _note_code(scan.context)
    return match.end()


def read_groups(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read a postcode, an IBAN or another code of capitals and digits with a pause at each blank."""
    text = match.group()
    if not any(map(str.isdigit, text)):
        return None
    for index, run in enumerate(_ALPHANUMERIC_RUN.finditer(scan.view, match.start(), match.end())):
        if index:
            scan.punctuate(",")
        ENGLISH_SPELLER.spell(scan, run.start(), run.end())
    _note_code(scan.context)
    return match.end()


def _read_room(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the number of "room 3-114", of a floor and a door."""
    return read_code(scan, match) if scan.context.previous_word in _ROOMS else None


def _read_plate(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the licence plate of "plate AB12 CDE"."""
    announced = scan.context.previous_word in vocabulary.WORDS_BEFORE_PLATES
    return read_groups(scan, match) if announced else None


def _read_vehicle_number(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read a VIN in its parts: the maker, the model in two halves, and the serial part in two halves."""
    text = match.group()
    if text.isdigit() or text.isalpha():
        return None
    ENGLISH_SPELLER.spell_in_groups(scan, match.start(), match.end(), (3, 3, 3, 4, 4))
    _note_code(scan.context)
    return match.end()


def _read_slashed_code(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "policy no. A-113/22" with its slash."""
    context = scan.context
    if not (context.code_words_left or context.identifier_expected) or _SMALL_LETTER.search(match.group()):
        return None
    for run in re.finditer(r"[^\W_]+|/", match.group()):
        start, stop = match.start() + run.start(), match.start() + run.end()
        if run.group() == "/":
            scan.emit("slash", start, stop)
            continue
        if scan.view[start - 1] == "-" and start > match.start():
            scan.punctuate(",")
        ENGLISH_SPELLER.spell_in_groups(scan, start, stop)
    _note_code(context)
    return match.end()


def _note_code(context: ReadingContext) -> None:
    """Note a code. A number right after it may be more of the code; later numbers are not."""
    left = min(context.code_words_left, CODE_CONTINUATION_WINDOW)
    context.note_number()
    context.code_words_left, context.after_code = left, True


def _read_announced_code(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read a number after "code", "PIN" or "order number" digit by digit, unless it counts something."""
    context, text = scan.context, match.group()
    runs = [run for run in re.split(r"[ -]", text) if run]
    count = sum(map(len, runs))
    if not context.code_words_left and not (context.identifier_expected and count > 2):
        return None
    if context.previous_word in vocabulary.WORDS_BEFORE_PAIRED_DIGITS and count == 3:
        return None
    if _YEAR.fullmatch(text) and context.previous_word in vocabulary.WORDS_BEFORE_YEARS:
        return None
    is_end = context.previous_word in ("to", "minus", "plus")  # "8–12"
    if (count < 3 and is_end) or (count < 4 and _RANK_BEHIND.search(scan.view, match.start())):
        return None
    if count < 4 and _QUEUE_AHEAD.match(scan.view, match.end()):
        return None
    if text in _TWO_DIGITS and context.previous_word in ("#", "number", "no", "nr", "num"):
        return None
    if count < 5 and _CHANGE_BEHIND.search(scan.view, match.start()):
        return None
    following = scan.next_word(match.end()).lower()
    if len(runs) == 1 and not text.startswith("0"):
        is_announced = context.previous_word in vocabulary.WORDS_BEFORE_CODES
        if following in vocabulary.COUNTED_NOUNS or (
            count < (3 if is_announced else 5) and is_counted(following)
        ):
            return None
        is_room = count == 4 and context.previous_word in _ROOMS
        if not context.code_words_left and (count == 3 or is_room) and text.endswith("00"):
            return None
    return read_code(scan, match)


def _read_mixed(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read letters with digits: a code one by one, a name such as MP3 or Covid-19 as people say it."""
    text = match.group()
    if not any(map(str.isdigit, text)) or not any(map(str.isalpha, text)) or _GREEK_LETTER.search(text):
        return None
    code_expected = scan.context.code_words_left or scan.context.identifier_expected
    if scan.context.code_words_left and not _HYPHENATED_COMPOUND.search(text):
        end = read_password(scan, match)
        if end is not None:
            _note_code(scan.context)
            return end
    if _OFFER_BEHIND.search(scan.view, match.start()) and _is_word_and_number(text):
        return _read_offer_code(scan, match)
    if _WORD_AND_YEAR.fullmatch(text) and not code_expected:
        return None
    runs = list(_LETTER_OR_DIGIT_RUN.finditer(scan.view, match.start(), match.end()))
    if _is_code(scan, text, len(runs)):
        _read_mixed_code(scan, runs)
        _note_code(scan.context)
    else:
        for run in runs:
            _read_run_of_name(scan, run)
        scan.context.note_number()
    scan.context.after_number = bool(_PREFIX_AND_NUMBER.fullmatch(text))
    return match.end()


def _is_word_and_number(text: str) -> bool:
    return bool(_WORD_AND_NUMBER.fullmatch(text)) and not _UNPRONOUNCEABLE.search(text)


def _read_offer_code(scan: ScanState, match: re.Match[str]) -> int:
    """Read "SAVE20" and "SPRING-2026" as words and numbers."""
    for run in _LETTER_OR_DIGIT_RUN.finditer(scan.view, match.start(), match.end()):
        if run.group().isalpha():
            scan.emit(run.group().lower(), run.start(), run.end())
        elif len(run.group()) == 4 and run.group()[:2] in ("19", "20"):
            scan.emit(numbers.year(int(run.group())), run.start(), run.end())
        else:
            _read_digits_of_name(scan, run)
    _note_code(scan.context)
    return match.end()


def _is_code(scan: ScanState, text: str, runs: int) -> bool:
    code_expected = scan.context.code_words_left or scan.context.identifier_expected
    if _NAME_AND_YEAR.fullmatch(text) and not code_expected:
        return False
    if _HYPHENATED_COMPOUND.search(text) or _NUMBER_AND_ACRONYM.fullmatch(text) or _STANDARD.fullmatch(text):
        return False
    if _NUMBER_AND_LETTER.fullmatch(text) and scan.context.previous_word in _ROOMS | {"#", "number", "or"}:
        return False
    is_model = scan.context.previous_word == "model"  # "model XR-500" is a name
    if scan.context.code_words_left or (scan.context.identifier_expected and len(text) > 3 and not is_model):
        return True
    return runs > 3 or sum(map(str.isdigit, text)) > 3 or (runs > 2 and "-" in text)


def _read_mixed_code(scan: ScanState, runs: list[re.Match[str]]) -> None:
    if scan.context.after_code:
        scan.punctuate(",")
    start, stop = runs[0].start(), runs[-1].end()
    words = [run.group() for run in runs if reads_as_word(run.group())]
    if len(words) == 1 and words[0].isupper():  # "SAVE20" may be letters
        words = []
    is_long = stop - start >= _MIN_GROUPED_CHARACTERS and len(runs) > 3
    if is_long and scan.view[start:stop].isalnum() and not words:
        ENGLISH_SPELLER.spell_in_groups(scan, start, stop)
        return
    size = 0
    for index, run in enumerate(runs):
        # "K4T9ZQ" is read as K4, T9, ZQ
        separated = index > 0 and (
            runs[index - 1].end() < run.start()
            or (len(runs) > 3 and run.group().isalpha() and runs[index - 1].group().isdigit())
        )
        if separated or size >= 4 or size + len(run.group()) > _MAX_CODE_GROUP:
            scan.punctuate(",")
            size = 0
        size += len(run.group())
        if run.group().isdigit():
            ENGLISH_SPELLER.spell_in_groups(scan, run.start(), run.end())
        elif _is_code_noun(run.group()) or run.group() in words:
            _emit_word(scan, run)
        else:
            ENGLISH_SPELLER.spell(scan, run.start(), run.end())


def _read_run_of_name(scan: ScanState, run: re.Match[str]) -> None:
    text = run.group()
    if text.isdigit():
        _read_digits_of_name(scan, run)
    elif _is_spelled_in_name(text):
        ENGLISH_SPELLER.spell(scan, run.start(), run.end())
    else:
        _emit_word(scan, run)


def _read_digits_of_name(scan: ScanState, run: re.Match[str]) -> None:
    digits = run.group()
    if len(digits) == 4 and digits[:2] == "20":
        scan.emit(numbers.year(int(digits)), run.start(), run.end())
    elif len(digits) == 3 and digits[0] != "0":
        scan.emit(numbers.house_number(int(digits)), run.start(), run.end())
    elif len(digits) > 2 or digits.startswith("0"):
        ENGLISH_SPELLER.spell_in_groups(scan, run.start(), run.end())
    else:
        scan.emit(numbers.cardinal(int(digits)), run.start(), run.end())


def _is_spelled_in_name(text: str) -> bool:
    if _is_code_noun(text):
        return False
    if len(text) < 3:
        is_word = (
            text[-1].islower() and text[0].isupper() and text.lower() in vocabulary.COMMON_WORDS
        )  # "Go5G"
        return text not in _SHORT_WORDS and not is_word
    return (
        not has_vowel(text)
        or (text[0].islower() and text[1:].isupper())  # "pCO2"
        or is_formula(text)
        or (text.isupper() and (len(text) < 4 or text in vocabulary.SPELLED_INITIALISMS))
    )


def _is_code_noun(text: str) -> bool:
    """Whether ``text`` is a word such as "ORDER" in a code."""
    lower = text.lower()
    return len(text) > 3 and (lower in vocabulary.IDENTIFIED_NOUNS or lower in vocabulary.CODE_WORDS)


def _emit_word(scan: ScanState, run: re.Match[str]) -> None:
    text = run.group()
    scan.emit(text if text[1:].islower() else text.lower(), run.start(), run.end())


def _read_house_of_queens(scan: ScanState, match: re.Match[str]) -> int:
    """Read the "12-34" of "12-34 56th Rd."."""
    for group in (1, 2):
        scan.emit(numbers.house_number(int(match.group(group))), *match.span(group))
    scan.context.note_number()
    scan.context.address_words_left = 4
    return match.end()


def _read_chord(scan: ScanState, match: re.Match[str]) -> int:
    """Read "Am7", "F#m7" and "Ebmaj7"."""
    letter, sign, ending, number = match.groups()
    ENGLISH_SPELLER.spell(scan, match.start(), match.start(1) + len(letter))
    if sign:
        scan.emit("sharp" if sign in "#♯" else "flat", *match.span(2))
    if ending:
        scan.emit(vocabulary.ENDINGS_OF_CHORDS[ending], *match.span(3))
    scan.emit(numbers.cardinal(int(number)), *match.span(4))
    scan.context.note_number()
    return match.end()


def _read_isotope(scan: ScanState, match: re.Match[str]) -> int:
    """Read "¹⁴C", which is folded to "^1^4C"."""
    number = int(match.group(1).replace("^", ""))
    words = f"{vocabulary.ELEMENTS_OF_ISOTOPES[match.group(2)]} {numbers.house_number(number)}"
    scan.emit(words, *match.span())
    scan.context.note_number()
    return match.end()


def _read_letter_code(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read ABCD-EFGH where a code is expected."""
    return read_code(scan, match) if scan.context.code_words_left else None


_TOLL_FREE = r"(?:1[-. ])?8(?:00|33|44|55|66|77|88)[-. ]"
_SLASHED_CODE = (
    r"(?=\S*\d)[^\W_]{1,40}(?:-[^\W_]{1,40}){0,5}(?:/[^\W_]{1,40}(?:-[^\W_]{1,40}){0,5}){1,4}(?![\w'])"
)
# Digits whose grouping, or what follows them, shows that they are a code or a phone number.
GROUPED_DIGIT_RULES = compile_rules(
    (_MAC_ADDRESS, read_code),
    (r"\d{1,2}-\d{2,4}(?![\w-])", _read_room),
    # NANP: "1 (415) 555-0142", "415.555.0142"
    (r"1[-. ]?\(\d{3}\)[-. ]?\d{3}[-. ]\d{4}(?!\w|-\d)", _read_phone),
    (r"(?:1[-. ])?\d{3}[-. ]\d{3}[-. ]\d{4}(?!\w|-\d)", _read_phone),
    (
        rf"({_TOLL_FREE}(?:\d{{3}}[-. ])?)([A-Z]{{2,12}}(?:-[A-Z]{{2,12}}){{0,3}})(?![\w'-])",
        _read_vanity_number,
    ),
    # VIN, licence plate
    (r"[A-HJ-NPR-Z\d]{17}(?!\w)", _read_vehicle_number),
    (r"\d[A-Z\d]{0,3}[ -][A-Z\d]{2,4}(?!\w)", _read_plate),
    # Air waybill; a house of Queens: "12-34 56th Rd."
    (r"\d{3}-\d{4} \d{4}(?!\w|-\d)", read_code),
    (
        r"(\d{1,3})-(\d{2})(?= \d{1,3}(?:st|nd|rd|th) (?:[A-Z][a-z]+|St|Ave|Rd|Dr|Pl|Ln))",
        _read_house_of_queens,
    ),
    # Card number, number of a SIM
    (r"\d{4}([ -])\d{4}(?:\1\d{4}){1,4}(?:\1\d{1,4})?(?!\w|-\d)", read_code),
    # Social security number
    (r"\d{3}-\d{2}-\d{4}(?!\w|-\d)", read_code),
    (r"\d{3}-\d{4}(?!\w|-\d)", _read_phone),
    # United Kingdom: "0800 123 4567"; Germany: "030 1234567", "030/1234567"
    (r"0\d{2,4}(?: \d{3,4}){2,3}(?![\w-])|0\d{2,4}[ /]\d{5,8}(?![\w-])", _read_phone),
    # Australia: "02 9876 5432", "1300 123 456"; France: "01 23 45 67 89"; India: "98765 43210"
    (
        r"0\d \d{4} \d{4}(?!\w)|1[38]00 \d{3} \d{3}(?!\w)|0\d(?:[ .]\d\d){4}(?![\w.])|[6-9]\d{4} \d{5}(?!\w)",
        _read_phone,
    ),
    # "555.0142", "dial 112", "text STOP to 9999"
    (r"\d{3}(?:[ .-]\d{3,4})?(?![\w/%°:-]|[.,]\d)", _read_local_phone),
    (r"(?:\d{4}|\d{3}-\d{2,3})(?![\w/%°:-]|[.,]\d)", _read_short_number),
    (NAMED_DIGITS, _read_named_afterwards),
)
# After dates, money and amounts.
FALLBACK_RULES = compile_rules(
    (_SLASHED_CODE, _read_slashed_code),
    # ZIP+4
    (r"\d{5}-\d{4}(?!\w)", read_code),
    (r"\d+(?:-\d+){2,}(?![\w-])|\d(?:-\d){1,11}(?=-[#*](?!\w))", read_code),
    (r"\d{2,}(?:[ -]\d{2,})*(?:(?<=\d\d[ -]\d{6})[ -]\d)?(?![\w/%°]|[-–,.:]\w)", _read_announced_code),
    (r"[^\W_]{1,40}(?:-[^\W_]{1,40}){0,9}(?![\w'])", _read_mixed),
)
_CHORD_RULES = compile_capital_rules(
    (rf"([A-G])([#♯♭b]?)({any_of(vocabulary.ENDINGS_OF_CHORDS)})(2|4|6|7|9|11|13)(?!\w)", _read_chord),
    (r"([A-G])([#♯♭b])()(6|7|9|11|13)(?!\w)", _read_chord),
)
LETTER_RULES = (
    *_CHORD_RULES,
    *compile_rules(
        (_MAC_ADDRESS, read_code),
        (_SLASHED_CODE, _read_slashed_code),
        # Postcode of the United Kingdom, IBAN, VIN, licence plate
        (r"[A-Z]{1,2}\d[A-Z\d]? \d[A-Z]{2}(?!\w)", read_groups),
        (r"[A-Z]{2}\d{2}(?: [A-Z\d]{4}){2,7}(?: [A-Z\d]{1,4})?(?!\w)", read_groups),
        (r"[A-HJ-NPR-Z\d]{17}(?!\w)", _read_vehicle_number),
        (r"[A-Z\d]{2,4}[ -][A-Z\d]{2,4}(?!\w)", _read_plate),
        (r"[A-Z]{2,8}(?:-[A-Z]{2,8}){1,6}(?![\w'-])", _read_letter_code),
        (r"(?=\w*[\d-])[^\W_]{1,40}(?:-[^\W_]{1,40}){0,9}(?![\w'])", _read_mixed),
    ),
)
SYMBOL_RULES = compile_rules(
    (rf"((?:\^\d){{1,3}})({any_of(vocabulary.ELEMENTS_OF_ISOTOPES)})(?![a-z])", _read_isotope),
    (r"\+(?=(?:[ .()-]{0,2}\d){7})\d{1,3}(?:[ .-]?\(?\d{1,5}\)?){1,7}(?!\w)", _read_phone),
    (r"\(\d{3}\)[-. ]?\d{3}[-. ]?\d{4}(?!\w|-\d)", _read_phone),
    (r"\(0\d{1,4}\) ?\d{3,4}(?: \d{3,4}){1,2}(?![\w-])", _read_phone),
    (
        r"(\(8(?:00|33|44|55|66|77|88)\)[-. ])([A-Z]{2,12}(?:-[A-Z]{2,12}){0,3})(?![\w'-])",
        _read_vanity_number,
    ),
)
