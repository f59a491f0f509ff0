"""Silence after clauses and sentences: its usual length by the boundary, and at which speed.

All of a text has to take the time that its speed says. The last sound before a pause dies away in its own
time whatever the speed, into the pause, so fast speech has pauses that are shorter by that time.
"""

from collections.abc import Mapping
from typing import Final

from .clause_boundaries import BoundaryKind

# At speed 1
_USUAL_S: Final[Mapping[BoundaryKind, float]] = {
    BoundaryKind.CLAUSE: 0.25,
    BoundaryKind.ELLIPSIS: 0.5,
    BoundaryKind.SENTENCE: 0.32,
    BoundaryKind.PARAGRAPH: 0.6,
    BoundaryKind.FORCED: 0.0,
}
# Of the packaged voice, audible after the last sound of a clause; that of a sentence is soon too faint
_DYING_AWAY_S: Final = 0.125
_INSIDE_SENTENCES: Final = frozenset({BoundaryKind.CLAUSE, BoundaryKind.ELLIPSIS})


def usual_pause_s(ending: BoundaryKind, speed: float) -> float:
    """Seconds of silence after a segment. speed: of the segment, 0.5 to 2.0."""
    pause_s = _USUAL_S[ending] / speed
    if speed > 1 and ending in _INSIDE_SENTENCES:
        pause_s -= _DYING_AWAY_S * (1 - 1 / speed)
    return pause_s
