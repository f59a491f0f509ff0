"""Silence after clauses and sentences: its usual length, how speech varies it, and at which speed.

    usual, by the boundary  x  mark  x  words before it  x  variation, drawn by the seed and these words

People pause longer after more words, and no two pauses are equal, but those between the items of a list
nearly are. The draw depends on nothing else, so equal text of equal seed has equal pauses, however the text
was split, and another server that goes on in the middle of it makes the same ones.

All of a text has to take the time that its speed says. The last sound before a pause dies away in its own
time whatever the speed, into the pause, so fast speech has pauses that are shorter by that time.

Source: Goldman-Eisler 1968, Psycholinguistics; Krivokapic 2007, Prosodic planning: effects of phrasal length
and complexity on pause duration.
"""

import math
import zlib
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Final

from .clause_boundaries import BoundaryKind
from .normalizer import SpokenWord

# At speed 1
_USUAL_S: Final[Mapping[BoundaryKind, float]] = {
    BoundaryKind.CLAUSE: 0.25,
    BoundaryKind.ELLIPSIS: 0.5,
    BoundaryKind.SENTENCE: 0.32,
    BoundaryKind.PARAGRAPH: 0.6,
    BoundaryKind.FORCED: 0.0,
}
# Of the packaged voice, audible after the last sound of a clause; that of a sentence is soon too faint
_DYING_AWAY_S: Final = 0.105
_INSIDE_SENTENCES: Final = frozenset({BoundaryKind.CLAUSE, BoundaryKind.ELLIPSIS})

_MARK_SHARES: Final = {",": 0.95, ";": 1.2, ":": 1.15, "?": 1.15}  # a question waits a little
_PARAGRAPH_SHARE: Final = 1.2  # a breath
_USUAL_WORDS, _MOST_WORDS, _SHARE_OF_WORD = 8, 18, 0.025
_SPREAD: Final = 0.2  # standard deviation of the logarithm of a pause
_SPREAD_IN_LIST: Final = 0.06
_MAX_DEVIATIONS: Final = 2.0
_MAX_ITEM_WORDS: Final = 4
_NORMAL: Final = NormalDist()


def usual_pause_s(ending: BoundaryKind, speed: float, share: float = 1.0) -> float:
    """Seconds of silence after a segment. speed: of the segment, 0.5 to 2.0. share: of the usual one."""
    pause_s = share * _USUAL_S[ending] / speed
    if speed > 1 and ending in _INSIDE_SENTENCES:
        pause_s -= _DYING_AWAY_S * (1 - 1 / speed)
    return max(0.0, pause_s)


def pause_share(words: Sequence[SpokenWord], ending: BoundaryKind, seed: int) -> float:
    """The share of the usual pause that speech makes after a segment, about 0.5 to 1.9 of it."""
    count = min(len(words), _MOST_WORDS)
    share = 1 + _SHARE_OF_WORD * (count - _USUAL_WORDS)
    if ending is BoundaryKind.PARAGRAPH:
        share *= _PARAGRAPH_SHARE
    elif words:
        share *= _MARK_SHARES.get(words[-1].punctuation[:1], 1.0)
    spread = _SPREAD_IN_LIST if _is_in_list(words, ending) else _SPREAD
    return share * math.exp(spread * _draw(words, seed))


def _is_in_list(words: Sequence[SpokenWord], ending: BoundaryKind) -> bool:
    """Whether a clause is an item of a list or ends with one."""
    if ending is not BoundaryKind.CLAUSE or not words or not words[-1].punctuation.startswith(","):
        return False
    return len(words) <= _MAX_ITEM_WORDS or any(word.punctuation.startswith(",") for word in words[:-1])


def _draw(words: Sequence[SpokenWord], seed: int) -> float:
    """A normal deviate, at most 2 from 0."""
    said = " ".join([word.text for word in words])
    uniform = (zlib.crc32(f"{seed} {said}".encode("utf-8", "surrogatepass")) + 0.5) / 2**32
    return min(_MAX_DEVIATIONS, max(-_MAX_DEVIATIONS, _NORMAL.inv_cdf(uniform)))
