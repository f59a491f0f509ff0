"""Rules of abbreviations: "Dr.", "No. 5", "e.g.", "gov't", and what follows them."""

import re

from ...clause_boundaries import AbbreviationKind
from ...kit.patterns import PatternBehind
from ...kit.tokenizer import (
    ScanState,
    any_of,
    compile_capital_rules,
    compile_rules,
    end_sentence_if_capital_follows,
)
from . import vocabulary
from .addresses import read_direction, read_province, read_state, read_street, read_turn
from .quantities.number_words import amount_words
from .quantities.units import end_of_unit
from .spelling import ENGLISH_SPELLER, NAME_ROWS
from .word_context import note_english_word, read_as
from .words import AMOUNT_AHEAD

_PATH_BEHIND = re.compile(r"\\\Z|(?<![\w.)])/\Z")
_ORDINAL_BEHIND = re.compile(r"\d(?:st|nd|rd|th)[ -]\Z")
_NUMBER_AHEAD = re.compile(
    r" #(?!\w)| ?#? ?(?:\d|[*•]{2,12}\d|[A-Z](?!\w)|[IVXLC]{2,6}(?!\w)|[A-Z]{1,4}(?:-[A-Z]{1,3})?[-/]?\d)"
)
_CAPITALS_OR_VERB_AHEAD = re.compile(r" (?:[A-Z]{2,6}(?!\w)|[a-z])")  # "part no. WRX", "serial no. reads"
_PRICE_BEHIND = PatternBehind(r"[$£€][\d,.]{1,20}[kK]? ?\Z")
# Of which there is a least: "a $50 min.", "a 2-hr min."
_LIMITED_BEHIND = PatternBehind(
    r"(?:[$£€][\d,.]{1,20}[kK]?|\b\d{1,3}-[a-z]{2,12}\.?"
    r"|\b\d{1,4}[- ](?:hr|hour|night|day|week|wk|month|yr|year|person|item)s?) \Z"
)
_BEFORE_EXPERIENCE = frozenset(("yr", "yrs", "year", "years", "work", "job", "prior", "relevant", "of"))
_TRAIN_NUMBER_AHEAD = re.compile(r"\.? #?\d{3,6}(?![\d/-])")
_WORK_BEHIND = PatternBehind(rf"\b(?:{any_of(vocabulary.NOUNS_BEFORE_HOURS_OF_WORK)})\.? \Z")
_HOURS_OF_WORK = {"FT": "full time", "PT": "part time"}
_ONE_BEHIND = PatternBehind(r"(?<!\d)(?<!\d )(?<!\d  )(?:1|\d/\d) \Z")  # "1 c.", "1/2 c."; not "1 1/2 c."
_UNITS_AFTER_PER = vocabulary.UNITS.keys() - {"in", "x"}


def _read_dotted_abbreviation(scan: ScanState, match: re.Match[str]) -> int:
    """Read the letters of "U.S." or "Ph.D.", and the meaning of "e.g." and "i.e."."""
    bare = match.group().rstrip(".")
    if bare in vocabulary.ABBREVIATIONS_AFTER_PRICES and _PRICE_BEHIND.search(scan.view, match.start()):
        return _read_abbreviation_after_price(scan, match)
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


def _read_contracted_abbreviation(scan: ScanState, match: re.Match[str]) -> int:
    """Read "gov't" and "add'l"."""
    word = vocabulary.CONTRACTED_ABBREVIATIONS[match.group().lower()]
    scan.emit(word, match.start(), match.end())
    note_english_word(scan.context, word)
    return match.end()


def _read_chat_abbreviation(scan: ScanState, match: re.Match[str]) -> int:
    """Read "imo", "btw" and "IDK"; "RN" in capitals is a nurse."""
    words = vocabulary.CHAT_ABBREVIATIONS[match.group()]
    scan.emit(words, *match.span())
    note_english_word(scan.context, words.split()[-1])
    return match.end()


def _read_possessive_abbreviation(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "the Dr.'s note", "Smith Co.'s" and "last yr's"."""
    short, dotted = match.group(1), bool(match.group(2))
    known = vocabulary.ABBREVIATIONS if dotted else vocabulary.STOPLESS_ABBREVIATIONS | _PERIODS
    if short not in known:
        return None
    unit = vocabulary.UNITS.get(short.removesuffix("s"))
    word = (unit[0] if unit else vocabulary.ABBREVIATIONS[short][0]) + "'s"
    scan.emit(word, match.start(), match.end())
    note_english_word(scan.context, word)
    return match.end()


def _read_hours_of_work(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "3 yrs FT" and "FT/PT roles"; elsewhere PT is a time zone, a patient or a therapy."""
    first, second = match.groups()
    named = scan.next_word(match.end()) in vocabulary.NOUNS_AFTER_HOURS_OF_WORK
    if not (second or named or _WORK_BEHIND.search(scan.view, match.start())):
        return None
    words = _HOURS_OF_WORK[first] + (f" or {_HOURS_OF_WORK[second]}" if second else "")
    scan.emit(words, match.start(), match.end())
    note_english_word(scan.context, "time")
    return match.end()


def _read_counted_abbreviation(scan: ScanState, match: re.Match[str]) -> int:
    """Read the "req" of "10K req/day"."""
    word = vocabulary.COUNTED_ABBREVIATIONS[match.group()]
    scan.emit(word, match.start(), match.end())
    scan.context.note_number()
    return match.end()


def _read_numbered_period(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "wk 23" and "yr 2"; "3 yr 2" is a duration."""
    if scan.context.after_number:
        return None
    short = match.group(1)
    word = "section" if short == "sec" else vocabulary.UNITS[short][0]
    scan.emit(word, match.start(), match.end())
    note_english_word(scan.context, word)
    return match.end()


def _read_arrival(scan: ScanState, match: re.Match[str]) -> int:
    """Read "dep 7:05 am" without a full stop."""
    word = vocabulary.ABBREVIATIONS[match.group(1)][0]
    scan.emit(word, match.start(), match.end())
    note_english_word(scan.context, word)
    return match.end()


def _read_by_neighbours(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "conf." of "conf. room" and of "conf. 0.93", and the "cap." of "towing cap."."""
    short = match.group(1)
    lower = short[0].lower() + short[1:]
    readings = vocabulary.ABBREVIATIONS_BEFORE.get(lower, ())
    word = next((word for word, ahead in readings if ahead.match(scan.view, match.end())), "")
    for spoken, nouns in vocabulary.ABBREVIATIONS_AFTER.get(lower, ()):
        word = word or (spoken if scan.context.previous_word in nouns else "")
    if not word:
        return None
    scan.emit(word, *match.span())
    note_english_word(scan.context, word)
    return _end_of_abbreviation(scan, match, match.group().endswith("."))


def _read_edition(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "ed." of "3rd ed.", which is no education there."""
    if not _ORDINAL_BEHIND.search(scan.view, 0, match.start()):
        return None
    scan.emit("edition" if match.group(1) == "ed" else "editions", *match.span())
    note_english_word(scan.context, "edition")
    return _end_of_abbreviation(scan, match, match.group().endswith("."))


def _read_cups(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "c." of "1 1/2 c. flour"."""
    if not scan.context.after_number:
        return None
    is_one = bool(_ONE_BEHIND.search(scan.view, match.start()))
    scan.emit("cup" if is_one else "cups", match.start(), match.end())
    note_english_word(scan.context, "cup")
    return match.end()


def _read_cups_without_stop(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "c" of "2 c flour"; not of "section 5 c applies"."""
    named = vocabulary.IDENTIFIED_NOUNS | vocabulary.NOUNS_BEFORE_LETTERS | vocabulary.REGULATORS
    following = scan.next_word(match.end())
    is_noun = following not in vocabulary.WORDS_AFTER_PRICES - {"of"}
    return _read_cups(scan, match) if is_noun and scan.context.word_before_number not in named else None


def _read_spoons(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "T." of "2 T. soy sauce", and the "t." of "1 t. sugar"."""
    if not scan.context.after_number:
        return None
    spoon = "teaspoon" if match.group(1) == "t" else "tablespoon"
    scan.emit(spoon if _ONE_BEHIND.search(scan.view, match.start()) else f"{spoon}s", *match.span())
    note_english_word(scan.context, spoon)
    return match.end()


def _read_before_noun(scan: ScanState, match: re.Match[str]) -> int:
    """Read the "bus." of "3–5 bus. days" and the "med" of "med-rare"."""
    word = {"bus": "business", "med": "medium"}[match.group()[:3].lower()]
    scan.emit(word, match.start(), match.end())
    note_english_word(scan.context, word)
    return match.end()


def _read_interval(scan: ScanState, match: re.Match[str]) -> int:
    """Read "q6h" and "q4-6h" of a prescription, and "q5min"."""
    low, high, unit = match.groups()
    count = " to ".join(amount_words(group) for group in (low, high) if group)
    scan.emit(f"every {count} {vocabulary.UNITS[unit][1]}", *match.span())
    scan.context.note_number()
    return match.end()


def _read_coordinate(scan: ScanState, match: re.Match[str]) -> int:
    """Read the "lat." and "long." of "lat. 40.7° N"."""
    word = "latitude" if match.group(1) in "aA" else "longitude"
    scan.emit(word, *match.span())
    note_english_word(scan.context, word)
    return match.end()


def _read_generation(scan: ScanState, match: re.Match[str]) -> int:
    """Read the "Gen" of "Gen Z", who is no general."""
    scan.emit("Gen", *match.span())
    note_english_word(scan.context, "letter")
    return match.end()


def _read_patient(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "pt" of "the pt. denies pain"."""
    if scan.context.previous_word not in _BEFORE_PATIENT:
        return None
    scan.emit("patient", *match.span())
    note_english_word(scan.context, "patient")
    return match.end()


def _read_state_of_newspaper(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "Mass." of "Boston, Mass."."""
    following = scan.next_visible(match.end())
    after_city = scan.context.previous_capitalized or following == "," or following.islower()
    if not (after_city and scan.context.after_comma):
        return None
    scan.emit(vocabulary.STATES_OF_NEWSPAPERS[match.group(1)], *match.span())
    note_english_word(scan.context, match.group(1))
    return _end_of_abbreviation(scan, match, dotted=True)


def _read_featured_artist(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "feat." and the "ft." of "One Dance ft. Wizkid"; "a feat." and "a few ft." are others."""
    context, before = scan.context, scan.view[max(0, match.start() - 2) : match.start()].strip()
    after_name = context.previous_capitalized or before[-1:] in ("", *"(\"'")
    is_length = context.after_number or context.previous_word in vocabulary.WORDS_BEFORE_UNITS | {"sq", "cu"}
    if not after_name and (is_length or match.group() != "ft."):
        return None
    scan.emit("featuring", *match.span())
    note_english_word(scan.context, "featuring")
    return match.end()


def _read_wind(scan: ScanState, match: re.Match[str]) -> int:
    """Read "NNW"."""
    scan.emit(vocabulary.DIRECTIONS[match.group()], match.start(), match.end())
    note_english_word(scan.context, match.group())
    return match.end()


def _read_abbreviation(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read an abbreviation of the vocabulary with its full stop, or without where it needs none."""
    word, dotted = match.group(1), bool(match.group(2))
    in_path = _PATH_BEHIND.search(scan.view, max(0, match.start() - 2), match.start())  # "/srv", "C:\\tmp"
    if (in_path and word != "etc") or (word == "ins" and scan.view[match.start() - 1] == "-"):  # "plug-ins."
        return None
    if scan.context.previous_word in ("per", "sq") and word in _UNITS_AFTER_PER:
        return _read_unit_after_per(scan, match)
    if word in vocabulary.STREET_ABBREVIATIONS:
        return read_street(scan, match, dotted)
    if word in vocabulary.ABBREVIATIONS_AFTER_PRICES and _PRICE_BEHIND.search(scan.view, match.start()):
        return _read_abbreviation_after_price(scan, match)
    if word not in vocabulary.ABBREVIATIONS or (word == "sim" and scan.context.previous_word != "or"):
        return None
    spoken, kind = vocabulary.ABBREVIATIONS[word]
    if (
        word == "Exp"
        and scan.context.previous_capitalized
        and _TRAIN_NUMBER_AHEAD.match(scan.view, match.end(1))
    ):
        spoken = "Express"
    following = scan.next_visible(match.end())
    if word == "Rev" and not following.isupper() and scan.context.previous_word != "the":
        spoken = "Revenue"
    if (
        word == "exp"
        and not following.isdigit()
        and (scan.context.after_number or scan.context.previous_word in _BEFORE_EXPERIENCE)
    ):
        spoken = "expected" if scan.view[match.start() - 2 : match.start()] == "% " else "experience"
    goes_on = following.islower() or following.isdigit() or scan.view[match.end() : match.end() + 1] in ",;:"
    is_word = word in vocabulary.AMBIGUOUS_ABBREVIATIONS and not (goes_on and following)
    if is_word and kind is AbbreviationKind.MAY_END_SENTENCE:
        return None
    if kind is AbbreviationKind.NUMBERED:
        return _read_numbered_abbreviation(scan, match, spoken, dotted)
    is_title = kind is AbbreviationKind.TITLE and scan.next_visible(match.end(1)).isupper()
    if not dotted and not is_title and word not in vocabulary.STOPLESS_ABBREVIATIONS:
        return None
    if word in vocabulary.LAST_ABBREVIATIONS and (not following or following in ".,;:!?)"):
        spoken = vocabulary.LAST_ABBREVIATIONS[word]
    scan.emit(_form_of_unit(scan, match) or spoken, match.start(), match.end())
    names_code = spoken in vocabulary.IDENTIFIED_NOUNS | vocabulary.CODE_WORDS  # "rcpt. no. A4471"
    note_english_word(scan.context, spoken if names_code else word)
    before_street = scan.next_word(match.end()) in vocabulary.CAPITALIZED_STREET_WORDS
    if word in vocabulary.NAME_SUFFIXES and before_street:
        scan.context.address_words_left = 2
    elif dotted and kind is AbbreviationKind.MAY_END_SENTENCE:
        end_sentence_if_capital_follows(scan, match.end())
    elif dotted and not following:
        scan.punctuate(".")
    return match.end()


def _read_abbreviation_after_price(scan: ScanState, match: re.Match[str]) -> int:
    """Read "£900 pcm" and "£40 pppn"."""
    words = vocabulary.ABBREVIATIONS_AFTER_PRICES[match.group().rstrip(".")]
    scan.emit(words, match.start(), match.end())
    note_english_word(scan.context, words)
    return _end_of_abbreviation(scan, match, match.group().endswith("."))


def _read_unit_after_per(scan: ScanState, match: re.Match[str]) -> int:
    """Read the unit of "24p per kWh", and of "per sq ft" and "in sq ft"."""
    after_per = any(word.text == "per" for word in scan.words[-2:])
    unit = vocabulary.UNITS[match.group(1)][0 if after_per else 1]
    scan.emit(unit, match.start(), match.end(1))
    note_english_word(scan.context, unit)
    return end_of_unit(scan, match.end(1))


def _form_of_unit(scan: ScanState, match: re.Match[str]) -> str:
    """Return "minimum" for "min. order", the singular of "per hr." and "1st hr.", and "" for other words."""
    word, end, previous = match.group(1), match.end(), scan.context.previous_word
    if word not in vocabulary.UNITS:
        return ""
    if word == "min" and _LIMITED_BEHIND.search(scan.view, match.start()):
        return "minimum"
    if word == "min" and not scan.context.after_number and previous in _BEFORE_MINIMUM:
        return "minimum"
    if scan.context.after_number:
        is_one = _ORDINAL_BEHIND.search(scan.view, max(0, match.start() - 8), match.start())
        return vocabulary.UNITS[word][0] if is_one else ""
    following = scan.next_word(end) if scan.view[end : end + 1] == " " else ""
    is_counted = previous in vocabulary.WORDS_BEFORE_UNITS or following in vocabulary.WORDS_AFTER_PRICES - {
        "of"
    }
    if word == "min" and (following.islower() or AMOUNT_AHEAD.match(scan.view, end)) and not is_counted:
        return "minimum"
    return vocabulary.UNITS[word][0] if previous in vocabulary.WORDS_BEFORE_ONE or _is_each(scan) else ""


def _is_each(scan: ScanState) -> bool:
    """Whether one of a unit is meant: "per additional hr.", not "every few hrs."."""
    before = scan.words[-2].text.lower() if len(scan.words) > 1 else ""
    few = scan.context.previous_word in vocabulary.WORDS_BEFORE_UNITS
    return before in ("per", "each", "every") and not few


def _read_numbered_abbreviation(
    scan: ScanState, match: re.Match[str], spoken: str, dotted: bool
) -> int | None:
    """Read "No. 5" or "ext. 7"; "x7" is an extension after a phone number only."""
    word = match.group(1)
    # "Ref. no.:", "Acct: 4471"
    announced = scan.view[match.end() : match.end() + 1] == ":" and (
        dotted or word in vocabulary.STOPLESS_ABBREVIATIONS
    )
    following = announced or bool(_NUMBER_AHEAD.match(scan.view, match.end()))
    if word in ("Fl", "fl", "Qtr", "qtr", "Gr", "gr") and _ORDINAL_BEHIND.search(scan.view, 0, match.start()):
        scan.emit(spoken, match.start(), match.end())
        note_english_word(scan.context, spoken)
        return _end_of_abbreviation(scan, match, dotted)
    if word == "x" and not (scan.context.after_phone and following):
        return None
    if word == "no" and dotted and scan.view[match.end() : match.end() + 1] in (",", ";"):
        following = True
    if word in ("no", "No") and (scan.context.identifier_expected or scan.context.code_just_announced):
        following = following or bool(_CAPITALS_OR_VERB_AHEAD.match(scan.view, match.end()))
    if word == "no" and dotted and scan.next_visible(match.end()).islower():
        following = following or scan.context.previous_word not in vocabulary.WORDS_BEFORE_ANSWERS | {""}
    following = following or (dotted and scan.next_word(match.end()) in _NOUNS_OF_NUMBERS)
    following = following or word in _NEVER_WORDS
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


# "B.Sc": the academic degrees, which have full stops inside.
_DEGREE = any_of(word for word in vocabulary.ABBREVIATIONS if re.search(r"\w\w\.|\.\w\w", word))
_CONTRACTED = any_of(vocabulary.CONTRACTED_ABBREVIATIONS)
_COUNTED = any_of(vocabulary.COUNTED_ABBREVIATIONS)
_NOUNS_OF_NUMBERS = frozenset(("code", "codes", "number", "numbers", "no", "num"))  # "conf. code"
_NEVER_WORDS = frozenset(("acct", "bldg", "flt", "lvl", "flr"))  # "my acct got"
_BESIDE = "|".join(
    f"[{short[0].upper()}{short[0]}]{short[1:]}"
    for short in sorted(vocabulary.ABBREVIATIONS_BEFORE.keys() | vocabulary.ABBREVIATIONS_AFTER, reverse=True)
)
_PERIODS = frozenset(("yr", "mo", "wk", "hr"))
_BEFORE_MINIMUM = frozenset(
    ("the", "your", "order", "payment", "monthly", "no", "below", "above", "required")
)
_BEFORE_PATIENT = frozenset(("", "the", "a", "this", "that", "each", "every", "new"))
_CHAT = any_of(vocabulary.CHAT_ABBREVIATIONS)
DIGIT_RULES = compile_rules((rf"(?=\d ?[a-z])(?:{_CHAT})(?![\w'])", _read_chat_abbreviation))
LETTER_RULES = (
    *compile_capital_rules(
        (r"(?:NN[EW]|SS[EW]|E[NS]E|W[NS]W)(?!\w)", _read_wind),
        (r"Sec\.(?= of [A-Z])", read_as("Secretary")),
        (rf"({any_of(vocabulary.STATES_OF_NEWSPAPERS)})\.", _read_state_of_newspaper),
        (r"Gen(?= (?:[XYZ]|Alpha|Beta)(?!\w))", _read_generation),
        (r"(FT|PT)(?:/(FT|PT))?(?![\w%])", _read_hours_of_work),
    ),
    *compile_rules(
        (r"([A-Za-z][a-z]{1,5})(\.?)'s(?!\w)", _read_possessive_abbreviation),
        (rf"({_BESIDE})\.?(?![\w'])", _read_by_neighbours),
        (rf"(?:{_CHAT})(?![\w'/@-]|[.:]\w)", _read_chat_abbreviation),
        (rf"(?=[A-Za-z]{{1,6}}')(?i:{_CONTRACTED})(?![\w'])", _read_contracted_abbreviation),
        (rf"(?:{_COUNTED})(?=/(?:s|sec|min|h|hr|hour|day|mo|month|user)\b)", _read_counted_abbreviation),
        (r"(wk|yr|sec)\.?(?= \d)", _read_numbered_period),
        (r"([Aa]rr|[Dd]ep)(?= \d{1,2}:\d\d)", _read_arrival),
        (r"(?:[Ff]ea|f)t\.(?= [A-Z])", _read_featured_artist),
        (r"c\.(?=\)? [a-z]|\))", _read_cups),
        (r"(eds?)(?:\.(?!\w)|(?![\w'.]))", _read_edition),
        (r"(?:(?<=% )|(?<=p\.a\. ))int\.?(?![\w(])", read_as("interest")),
        (r"c(?= [a-z]{3})", _read_cups_without_stop),
        (r"([Tt])\.(?= [a-z])", _read_spoons),
        (r"[Cc]\.(?= ?\d{3,4}\b)", read_as("circa")),
        (r"[Ll](a|o)(?:t|n|ng)\.?(?=:? ?-?\d{1,3}(?:\.\d+)?°)", _read_coordinate),
        (r"pt\.?(?= [a-z])|Pt\.?(?= (?:is|was|has|had|denies|reports?|states?|c/o)\b)", _read_patient),
        (r"q(\d{1,2})(?:[-–](\d{1,2}))?(h|min|d|wk|mo)(?!\w)", _read_interval),
        (
            r"bus\.(?= (?:days?|hours|hrs)\b)|[Mm]ed(?:\.-?|-)(?= ?(?:rare|well|sized?|low|high|large)\b)",
            _read_before_noun,
        ),
        (rf"(?:{_DEGREE})(?:\.|(?!\w))", _read_dotted_abbreviation),
        (r"(?:[^\W\d_]\.){1,8}[^\W\d_](?:\.|(?!\w))|Ph\.?D\.?(?!\w)", _read_dotted_abbreviation),
    ),
    *compile_capital_rules(
        # "N.", "NW": a direction in an address
        (r"([NS][EW]?|[EW])\.?(?![\w'-])", read_direction),
        (r"[RL](?![\w'&/-]|\.\w)", read_turn),
        (r"([A-Z])\.(?= [A-Z])", _read_initial),
    ),
    *compile_rules(
        # "No.5", which is no domain; then any word of the vocabulary; then "x7", an extension
        (r"([Nn]o)(\.)(?=\d)", _read_abbreviation),
        (r"([A-Za-z]{1,6})(\.?)(?!\w)(?!'\w)", _read_abbreviation),
        (r"(x)(\.?)(?=\d)", _read_abbreviation),
    ),
    *compile_capital_rules(
        (r"[A-Z]{2,3}(?![\w'])", read_province),
        (r"[A-Z]{2}(?![\w']|-\d)", read_state),
    ),
    *compile_rules(*NAME_ROWS),
)
