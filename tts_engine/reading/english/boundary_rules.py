"""English facts for the search of clause boundaries: abbreviations, dates and times of day."""

import re

from ..clause_boundaries import AbbreviationKind, BoundaryRules
from ..tokenizer import any_of
from . import vocabulary

_SHORT_MONTHS = [name.title() for name in vocabulary.MONTH_NAMES if len(name) < 5 and name != "may"]
_SHORT_WEEKDAYS = [name.title() for name in vocabulary.WEEKDAY_NAMES]
_MONTH_DAY = re.compile(
    rf"(?:^|[\s(])(?:{'|'.join(vocabulary.MONTH_NAMES)})\.?\ +\d{{1,2}}(?:st|nd|rd|th)?\Z", re.IGNORECASE
)
_LONG_WEEKDAY = "|".join(sorted(set(vocabulary.WEEKDAY_NAMES.values())))
# A weekday, or a time of day: "Mon 9am - Fri 5pm".
_RANGE_START = re.compile(rf"(?:^|[\s(])(?:{_LONG_WEEKDAY}|\d{{1,2}}(?::\d\d)? ?[AaPp]\.?[Mm]\.?)\Z")
_UNIT_STOP = re.compile(rf"\d[ -]?(?:{any_of(unit for unit in vocabulary.UNITS if len(unit) > 1)})\Z")
ENGLISH_BOUNDARY_RULES = BoundaryRules(
    abbreviations={
        **dict.fromkeys(
            (*vocabulary.AM_PM, "Ph.D", "am", "pm", "AM", "PM", "Am", "Pm"),
            AbbreviationKind.MAY_END_SENTENCE,
        ),
        **dict.fromkeys((*_SHORT_MONTHS, *_SHORT_WEEKDAYS), AbbreviationKind.MID_SENTENCE),
        **{word: kind for word, (_, kind) in vocabulary.ABBREVIATIONS.items()},
    },
    dotted_kind=AbbreviationKind.MAY_END_SENTENCE,
    weekdays=frozenset(vocabulary.WEEKDAY_NAMES),
    month_day=_MONTH_DAY,
    times_of_day=vocabulary.AM_PM,
    words_after_time=vocabulary.WORDS_AFTER_AM_PM,
    sentence_starters=vocabulary.SENTENCE_STARTERS,
    sentence_words=frozenset({"No", "no"}),
    numbered_nouns=vocabulary.IDENTIFIED_NOUNS | vocabulary.CODE_WORDS,
    name_suffixes=vocabulary.NAME_SUFFIXES,
    street_words=vocabulary.CAPITALIZED_STREET_WORDS,
    range_start=_RANGE_START,
    unit_stop=_UNIT_STOP,
)
