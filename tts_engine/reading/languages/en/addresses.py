"""Rules of postal addresses and of the way to them: streets, states, directions."""

import re

from ...kit.patterns import PatternBehind
from ...kit.tokenizer import ScanState, any_of, end_sentence_if_capital_follows
from . import vocabulary
from .codes import is_counted
from .word_context import is_shouted, note_english_word

_WAYS = frozenset(("on", "onto", "off", "along", "down"))  # "on N. Main"
_NAME_AHEAD = re.compile(r" [A-Z][a-z]")
_ORDINAL_AHEAD = re.compile(r" \d{1,3}(?:st|nd|rd|th)\b")  # "E. 4th"
_HOUSE_NUMBER_BEHIND = re.compile(r"\b\d{1,5} \Z")
_HOUSE_AND_STREET_BEHIND = PatternBehind(r"\b\d{1,5} (?:[\w'.-]{1,20} ){1,4}\Z")
_STREET_NAME_AHEAD = re.compile(
    r" [A-Z][\w'.-]*(?: [A-Z][\w'-]*)?,? ?(?:St|Ave|Rd|Dr|Blvd|Ln|Ct|Pl|Way|Street|Avenue|Road|Drive|Lane)\b"
)
_ZIP_AHEAD = re.compile(r" \d{5}(?!\d)")
_CANADIAN_POSTCODE_AHEAD = re.compile(r",? [A-Z]\d[A-Z] ?\d[A-Z]\d(?!\w)")
_AUSTRALIAN_POSTCODE_AHEAD = re.compile(r" [2-7]\d{3}(?![\w:/.-]\d)(?!\d)")
_ROUTE_BEHIND = PatternBehind(r"\b(?:I|US|SR|CR|Hwy\.?|Highway|[Rr]oute|Rte\.?|Interstate)[- ]?\d{1,3} \Z")
_FROM_THE_BEHIND = PatternBehind(r"\b(?:from|in|to|of|toward) the \Z")
# "48.858° N", "51.5074 N", "wind 15 km/h NW"
_MEASURE_BEHIND = re.compile(
    r"(?:°|\d\.\d{3,}|\d ?(?:mph|km/h|kph|kts?|mi\.?|km|nmi|NM|m|ft\.?|yds?\.?)"
    r"|miles?|kilomet(?:er|re)s?|blocks?|yards|feet) ?\Z"
)
# "NW of town", "SE Asia", "the NE corner"
_OF_PLACE_AHEAD = re.compile(r" of (?:the |our |here|there|this |that |downtown|town|[A-Z])")
_REGION_AHEAD = re.compile(rf" (?:{any_of(vocabulary.REGIONS)}|(?:{any_of(vocabulary.SIDES_OF_PLACES)})s?)\b")
_SPEED_AHEAD = re.compile(r" (?:at )?\d|[,.;]|\Z")
_WAY_AHEAD = re.compile(
    r" (?:on(?:to)? (?:the )?[A-Z\d]|at (?:the )?(?:lights?|stop|end|fork|T|circle|signal|bridge)\b)"
)
_SPOUSE_AHEAD = re.compile(r"\.? (?:&|and) (?:Mrs?|Ms|Dr)\b")  # "Dr. & Mrs. Katz"
_TURN_BEHIND = PatternBehind(
    r"\b(?:turn|bear|veer|keep|merge|swipe|(?:make|take|hang) an?|first|second|next|1st|2nd|3rd|sharp|slight"
    r"|(?:on|to) your|(?:\bmi\.?|miles?|feet|ft\.?|blocks?|house|door|driveway|building) on(?: the)?) \Z",
    re.IGNORECASE,
)


def read_street(scan: ScanState, match: re.Match[str], dotted: bool) -> int | None:
    """Read "St." and "Dr." as Saint and Doctor before a name, and as Street and Drive after one."""
    word = match.group(1)
    following = scan.next_visible(match.end())
    if word == "Hwy" and following.isdigit():
        scan.emit(vocabulary.STREET_ABBREVIATIONS[word], match.start(), match.end())
        note_english_word(scan.context, "highway")
        return match.end()
    after_break = not scan.view[: match.start()].rstrip() or scan.view[: match.start()].rstrip()[-1] in ",;:("
    after_name = not (after_break or scan.view.endswith("'s ", 0, match.start())) and (
        scan.context.previous_capitalized or _is_in_address(scan, word, following)
    )
    is_couple = word == "Dr" and _SPOUSE_AHEAD.match(scan.view, match.end(1))
    if is_couple or (word in ("St", "Dr") and following.isupper() and not after_name):
        scan.emit(vocabulary.ABBREVIATIONS[word][0], match.start(), match.end())
        note_english_word(scan.context, "saint")
        return match.end()
    before_name = scan.view[match.end() : match.end() + 1] == "-"
    if word == "St" and (before_name or _is_saint_after_number(scan, match)):
        scan.emit(vocabulary.ABBREVIATIONS[word][0], match.start(), match.end())
        note_english_word(scan.context, "Saint")
        return match.end()
    if not (dotted or after_name):
        return None
    scan.emit(vocabulary.STREET_ABBREVIATIONS[word], match.start(), match.end())
    note_english_word(scan.context, "street")
    scan.context.address_words_left, scan.context.previous_capitalized = 0, False
    if dotted:
        end_sentence_if_capital_follows(scan, match.end())
    return match.end()


def _is_saint_after_number(scan: ScanState, match: re.Match[str]) -> bool:
    """Whether a street is named after a saint: "1420 St. Mary's Dr.", not "45 7th St. Suite 2"."""
    after_number = _HOUSE_NUMBER_BEHIND.search(scan.view, max(0, match.start() - 7), match.start())
    return bool(after_number) and bool(_STREET_NAME_AHEAD.match(scan.view, match.end()))


def _is_in_address(scan: ScanState, word: str, following: str) -> bool:
    """Whether an address may end here: "12 oak st", "45 7th St. Suite 2"; not "in 30 minutes Dr. Patel"."""
    context, previous = scan.context, scan.context.previous_word
    if not following.isupper() or previous == "0":
        return context.address_words_left > 0
    is_title = word == "Dr" or previous in vocabulary.WORDS_AFTER_PRICES or is_counted(previous)
    return context.address_words_left > 0 and not is_title


def read_state(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read a state's letters before a ZIP code, or after a name if they are not a word or initialism too."""
    letters, context = match.group(), scan.context
    name = vocabulary.STATES.get(letters)
    before_zip = _ZIP_AHEAD.match(scan.view, match.end()) and not (
        letters == "ID" and context.identifier_expected
    )
    likely = (
        vocabulary.UNAMBIGUOUS_STATES
        if not context.after_comma or is_shouted(scan, match)
        else vocabulary.STATES_AFTER_CITIES
    )
    is_city = letters == "NY" and not (context.code_words_left or context.identifier_expected)
    if name is None or not (before_zip or is_city or (context.previous_capitalized and letters in likely)):
        return None
    scan.emit(name, match.start(), match.end())
    note_english_word(scan.context, "zip" if before_zip else name)
    return match.end()


def read_province(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "ON" of "Toronto, ON" and of "ON L5T 2N7", and the "NSW" of "Sydney NSW 2000"."""
    letters, context = match.group(), scan.context
    after_city = context.previous_capitalized and context.after_comma and not is_shouted(scan, match)
    if letters in vocabulary.PROVINCES and (
        _CANADIAN_POSTCODE_AHEAD.match(scan.view, match.end()) or (after_city and letters != "NT")
    ):
        name = vocabulary.PROVINCES[letters]
    elif context.previous_capitalized and _AUSTRALIAN_POSTCODE_AHEAD.match(scan.view, match.end()):
        name = vocabulary.AUSTRALIAN_STATES.get(letters, "")
    else:
        return None
    if not name:
        return None
    scan.emit(name, match.start(), match.end())
    note_english_word(context, "zip")
    return match.end()


def read_turn(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "turn R on 5th", "it's on your L", "exit 12, L on Olive Way" and "L arm"."""
    is_side = scan.next_word(match.end()) in vocabulary.PARTS_OF_THE_BODY and scan.view[match.end()] == " "
    is_turn = is_side or (scan.context.after_comma and _WAY_AHEAD.match(scan.view, match.end()))
    if not (is_turn or _TURN_BEHIND.search(scan.view, match.start())):
        return None
    word = {"R": "right", "L": "left"}[match.group()]
    scan.emit(word, *match.span())
    note_english_word(scan.context, word)
    return match.end()


def read_direction(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the direction of "123 E. 45th St" or "Pennsylvania Ave NW"."""
    letters, context = match.group(1), scan.context
    if _is_direction_of_way(scan, match) or (
        _ORDINAL_AHEAD.match(scan.view, match.end())
        and context.previous_word not in vocabulary.NOUNS_BEFORE_LETTERS
    ):
        scan.emit(vocabulary.DIRECTIONS[letters], match.start(), match.end())
        note_english_word(context, letters)
        if match.group().endswith("."):
            end_sentence_if_capital_follows(scan, match.end())
        return match.end()
    if context.previous_word == "london":  # the first part of a postcode: "London SW"
        return None
    house = _HOUSE_NUMBER_BEHIND.search(scan.view, max(0, match.start() - 7), match.start())
    on_way = match.group()[1:] == "." and (house or context.previous_word in _WAYS)
    if on_way and _NAME_AHEAD.match(scan.view, match.end()):
        scan.emit(vocabulary.DIRECTIONS[letters], *match.span())
        note_english_word(context, letters)
        return match.end()
    in_address = context.address_words_left > 0 and bool(scan.next_word(match.end()) or context.after_number)
    after_street = len(letters) == 2 and context.previous_word == "street"
    if not (in_address or after_street or _is_direction_of_street(scan, match)):
        return None
    left = context.address_words_left
    scan.emit(vocabulary.DIRECTIONS[letters], match.start(), match.end())
    note_english_word(context, letters)
    context.address_words_left = left
    return match.end()


def _is_direction_of_street(scan: ScanState, match: re.Match[str]) -> bool:
    """Whether a direction ends the street of an address: "88 Queens Quay W, Toronto"."""
    if scan.context.previous_word not in vocabulary.STREET_WORDS:
        return False
    at_end = scan.view[match.end() : match.end() + 1] in (".", ",", ";", "!", "?", ")", "")
    return at_end and bool(_HOUSE_AND_STREET_BEHIND.search(scan.view, match.start()))


def _is_direction_of_way(scan: ScanState, match: re.Match[str]) -> bool:
    """Whether a direction is of "I-95 N", "48.9° N", "winds NW" or "head W. on I-80"."""
    start = match.start()
    if _ROUTE_BEHIND.search(scan.view, start) or _MEASURE_BEHIND.search(scan.view, max(0, start - 12), start):
        return True
    if _OF_PLACE_AHEAD.match(scan.view, match.end()) and not scan.context.identifier_expected:
        return len(match.group(1)) == 2 or scan.context.previous_word in vocabulary.WORDS_BEFORE_SIDES
    if len(match.group(1)) == 2 and _REGION_AHEAD.match(scan.view, match.end()):
        return True
    if scan.context.previous_word in vocabulary.WORDS_BEFORE_DIRECTIONS:
        before_speed = scan.context.previous_word in ("wind", "winds") and _SPEED_AHEAD.match(
            scan.view, match.end()
        )
        return len(match.group(1)) == 2 or bool(before_speed) or scan.next_word(match.end()).islower()
    at_end = scan.view[match.end() : match.end() + 1] in (".", ",", ";", "!", "?", ")", "")
    at_end = at_end or scan.next_word(match.end()) in vocabulary.WORDS_AFTER_PRICES
    return len(match.group(1)) == 2 and at_end and bool(_FROM_THE_BEHIND.search(scan.view, match.start()))
