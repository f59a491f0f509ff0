"""Places between phrases at which a sentence without punctuation is cut, so that nobody waits for its end.

A language model may write a hundred words without a comma. When a clause has reached a number of words, it is
cut before a word that begins a clause ("because") or a phrase ("with"), or after one that ends one, as the
languages' files ``phrases.toml`` have them; without such a place, between two ordinary words. The place
depends on the text before the limit only, of which two words follow it: not on how the text was split, nor on
time. The readers of languages find it, with ``kit/phrase_places.py``.
"""

import re
from dataclasses import dataclass
from functools import cached_property

from .unicode_scripts import NO_SPACE_SCRIPTS, is_unspaced

FIRST_WORDS = 12  # of a clause, after which it is cut if nothing was read before
MAX_WORDS = 40  # the same later on, when a listener has more to hear
MORE_WORDS = 2  # after which a clause without a place to cut is searched again
_CHARACTERS_A_WORD = 10  # a limit of 12 words is one of 120 characters too
_UNITS = re.compile(rf"[{NO_SPACE_SCRIPTS}]{{1,2}}+|[^\s{NO_SPACE_SCRIPTS}]++")
PLAIN_WORD = re.compile(r"[^\W\d_]{2,}(?:['-][^\W\d_]+)*")
_HIRAGANA = re.compile("[\u3041-\u309f]")


@dataclass(frozen=True)
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

    @cached_property
    def is_unspaced(self) -> bool:
        """Whether the language writes no blanks between words."""
        return any(map(is_unspaced, "".join(self.clause_words)))

    def rank(self, left: str, right: str) -> int | None:
        """How good a cut between two words is, 0 to 3, best first; None for a bad one."""
        if left in self._never_last or right in self.inner_words:
            return None
        if right in self.clause_words or left.endswith(self.clause_endings):
            return 0
        if right in self.phrase_words or left.endswith(self.phrase_endings):
            return 1
        return 2 if right in self.bound_words else 3

    def rank_unspaced(self, view: str, at: int) -> int | None:
        """The same at a place in a script that writes no blanks, where words are not known."""
        if view.startswith(self.clause_words, at):
            return 0
        if view.startswith(self.phrase_words, at):
            return 1
        if _HIRAGANA.match(view, at):  # the ending may go on
            return None
        if view.endswith(self.clause_endings, 0, at):
            return 0
        return 1 if view.endswith(self.phrase_endings, 0, at) else None

    @cached_property
    def _never_last(self) -> frozenset[str]:
        return frozenset((*self.clause_words, *self.phrase_words, *self.bound_words, *self.inner_words))


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
