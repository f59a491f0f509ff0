"""The sounds of a word and their times, from the times of the signs that a network reads."""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

_NO_SOUND: Final = frozenset("ˈˌ-_|‖ ")  # marks of stress, and signs between sounds
_LENGTHENING: Final = ("Mn", "Lm")  # categories of marks that change the sound before them

Time = TypeVar("Time", int, float)  # frames, or seconds
TimedSounds = tuple[tuple[str, Time, Time], ...]  # (IPA without stress, start, stop) of each sound of a word


def timed_sounds(signs: Sequence[str], starts: Iterable[Time], ends: Iterable[Time]) -> TimedSounds[Time]:
    """The sounds of a word, in the unit of the times.

    A mark of stress, or a sign "", lends its time to the next sound; a mark of length or a diacritic belongs
    to the sound before it.
    """
    found: list[tuple[str, Time, Time]] = []
    begins: Time | None = None
    for sign, start, end in zip(signs, starts, ends, strict=True):
        if not sign or sign in _NO_SOUND:
            begins = start if begins is None else begins
        elif len(sign) == 1 and unicodedata.category(sign) in _LENGTHENING and found:
            ipa, first, _ = found[-1]
            found[-1] = (ipa + sign, first, end)
        else:
            found.append((sign, start if begins is None else begins, end))
            begins = None
    return tuple(found)


def earlier(words: Iterable[TimedSounds[Time]], by: Time) -> tuple[TimedSounds[Time], ...]:
    """The sounds of words, each as much earlier."""
    return tuple(tuple((ipa, start - by, stop - by) for ipa, start, stop in word) for word in words)
