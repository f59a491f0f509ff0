"""States of a call that the gateway makes, from the placing to its end.

    placed --> ringing --> early media --> answered --> ended
       '----------'-------------'-> busy, declined, no answer, unreachable, cancelled

A way in reports what it learns as a SIP status, or as the one that says the same.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
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
_STATES_OF_SIP: Final[Mapping[int, OutgoingState]] = MappingProxyType(
    {
        408: OutgoingState.NO_ANSWER,
        480: OutgoingState.NO_ANSWER,
        486: OutgoingState.BUSY,
        487: OutgoingState.CANCELLED,
        600: OutgoingState.BUSY,
        603: OutgoingState.DECLINED,
        607: OutgoingState.DECLINED,
        608: OutgoingState.DECLINED,
    }
)


def failed_state(sip: int | None) -> OutgoingState:
    """Return the state of a call that ended before it was answered, with a SIP status if there was one."""
    if sip is None:
        return OutgoingState.NO_ANSWER
    return _STATES_OF_SIP.get(sip, OutgoingState.UNREACHABLE)


def may_follow(state: OutgoingState, later: OutgoingState) -> bool:
    """Return whether ``later`` is news after ``state``: reports may come twice, or out of order."""
    if state.is_over:
        return False
    return later.is_over or _ORDER.index(later) > _ORDER.index(state)
