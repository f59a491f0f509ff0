"""Forms of nouns after numbers: plural categories, and the genitive of Slavic languages.

Source: Unicode CLDR 44, plural rules.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CountedNoun:
    """Noun after a number. ``gender``: what the number agrees with. ``forms``: by plural category."""

    gender: str
    forms: tuple[str, ...]


def parse_noun(text: str) -> CountedNoun:
    """Parse "gender: form|form"; the gender may be missing."""
    gender, _, forms = text.rpartition(":")
    return CountedNoun(gender.strip(), tuple(form.strip() for form in forms.split("|")))


def plural_category(rule: str, number: int) -> int:
    """Return the index of the form of a noun after ``number`` by a rule of ``PLURAL_RULES``."""
    return PLURAL_RULES[rule](number)


def noun_form(noun: CountedNoun, number: int, rule: str, case: str = "") -> str:
    """Return the form of ``noun`` after ``number``; the genitive differs in Slavic languages only.

    A fourth form is the genitive of one, which in Russian is mostly that of few.
    """
    category = PLURAL_RULES[rule](number)
    if case.startswith("genitive") and rule in _GENITIVE_SINGULAR:
        singular = 3 if len(noun.forms) > 3 else _GENITIVE_SINGULAR[rule]
        category = 2 if category else singular
    return noun.forms[min(category, len(noun.forms) - 1)]


def with_endings(form: str, endings: Mapping[str, str]) -> str:
    """Return the form of a noun with other endings: those of its first words, up to one that keeps its own.

    ``endings``: the new ones, by the old.
    """
    words = form.split(" ")
    for place, word in enumerate(words):
        old = max((old for old in endings if word.endswith(old)), key=len, default=None)
        if old is None or (place and word[0].isupper()):
            break
        words[place] = word.removesuffix(old) + endings[old]
    return " ".join(words)


def _russian(number: int) -> int:
    if number % 10 == 1 and number % 100 != 11:
        return 0
    return _few_or_many(number)


def _polish(number: int) -> int:
    return 0 if number == 1 else _few_or_many(number)


def _few_or_many(number: int) -> int:
    return 1 if number % 10 in (2, 3, 4) and number % 100 not in (12, 13, 14) else 2


# "russian": forms after 1, 2 and 5; "polish": the same, and the form after a decimal fraction.
PLURAL_RULES: Mapping[str, Callable[[int], int]] = {
    "one": lambda number: 0 if number == 1 else 1,
    "below_two": lambda number: 0 if number < 2 else 1,
    "russian": _russian,
    "polish": _polish,
}
_GENITIVE_SINGULAR = {"russian": 1, "polish": 3}  # index of the form
