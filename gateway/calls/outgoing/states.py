"""States of a call that the gateway makes, from the placing to its end.

placed --> ringing --> early media --> answered --> ended
   '----------'-------------'-> busy, declined, no answer, unreachable, cancelled
"""

from enum import Enum
from typing import Final


class OutgoingState(Enum):
    """How far a call has come that the gateway makes."""

    PLACED = "placed"
    RINGING = "ringing"
    EARLY_MEDIA = "early_media"  # something is heard that is no answer: a tone, an announcement
    ANSWERED = "answered"
    ENDED = "ended"  # after it was answered
    BUSY = "busy"
    DECLINED = "declined"
    NO_ANSWER = "no_answer"
    UNREACHABLE = "unreachable"  # no such number, not registered, out of order, or the network is
    CANCELLED = "cancelled"  # here, before it was answered

    @property
    def is_over(self) -> bool:
        """Whether no other state follows."""
        return self not in _ONGOING


_ORDER: Final = (
    OutgoingState.PLACED,
    OutgoingState.RINGING,
    OutgoingState.EARLY_MEDIA,
    OutgoingState.ANSWERED,
)
_ONGOING: Final = frozenset(_ORDER)


def may_follow(state: OutgoingState, later: OutgoingState) -> bool:
    """Return whether ``later`` is news after ``state``: reports may come twice, or out of order."""
    if state.is_over:
        return False
    return later.is_over or _ORDER.index(later) > _ORDER.index(state)
