"""Places between phrases at which a sentence without punctuation is cut, so that nobody waits for its end.

A language model may write a hundred words without a comma. When a clause has reached a number of words, it is
cut before a word that begins a clause ("because") or a phrase ("with"), or after one that ends one, as the
languages' files ``phrases.toml`` have them; without such a place, between two ordinary words. The place
depends on the text before the limit only, of which two words follow it: not on how the text was split, nor on
time. The readers of languages find it, with ``kit/phrase_places.py``.
"""

import re
from dataclasses import dataclass

from .unicode_scripts import NO_SPACE_SCRIPTS

FIRST_WORDS = 12  # of a clause, after which it is cut if nothing was read before
MAX_WORDS = 40  # the same later on, when a listener has more to hear
MORE_WORDS = 2  # after which a clause without a place to cut is searched again
_CHARACTERS_A_WORD = 10  # a limit of 12 words is one of 120 characters too
_UNITS = re.compile(rf"[{NO_SPACE_SCRIPTS}]{{1,2}}+|[^\s{NO_SPACE_SCRIPTS}]++")
PLAIN_WORD = re.compile(r"[^\W\d_]{2,}(?:['-][^\W\d_]+)*")


@dataclass(frozen=True, slots=True)
class PhraseWords:
    """Words of a language at the places where its sentences may be cut, in lower case.

    Attributes:
        clause_words: begin a clause: conjunctions, relatives.
        phrase_words: begin a phrase: prepositions.
        bound_words: besides the two, no part ends in one: articles, pronouns, numbers.
        inner_words: no part ends in one nor begins with it: "of".
        clause_endings: of the last word of a clause.
        phrase_endings: of the last word of a phrase.
    """

    clause_words: tuple[str, ...] = ()
    phrase_words: tuple[str, ...] = ()
    bound_words: tuple[str, ...] = ()
    inner_words: tuple[str, ...] = ()
    clause_endings: tuple[str, ...] = ()
    phrase_endings: tuple[str, ...] = ()


def count_words(text: str) -> int:
    """The number of words; two characters of a script without blanks count as one."""
    return len(_UNITS.findall(text))


def limit_of(view: str, words: int) -> int | None:
    """The position up to which ``view`` has so many words, or ten times as many characters; None before it.

    The next word has begun there.
    """
    if len(view) <= 2 * words:
        return None
    most = _CHARACTERS_A_WORD * words
    for before, unit in enumerate(_UNITS.finditer(view, 0, most)):
        if before == words:
            return unit.start() + 1
    return most if len(view) >= most else None


def words_after(view: str, at: int) -> tuple[str, ...]:
    """The ordinary words that follow a cut; the last one of ``view``, which may go on, is none."""
    tokens = view[at:].split()[:-1]
    plain = (count for count, token in enumerate(tokens) if not PLAIN_WORD.fullmatch(token))
    return tuple(tokens[: next(plain, len(tokens))])
