"""States of a call that the gateway makes, from the placing to its end.

    placed --> ringing --> early media --> answered --> ended
       '----------'-------------'-> busy, declined, no answer, unreachable, cancelled

A way in reports what it learns as a SIP status or as a cause of Q.850, in which other networks say the same.
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
# Source: ITU-T Q.850, table 1; RFC 3398, 8.2.6.1.
_SIP_OF_CAUSE: Final[Mapping[int, int]] = MappingProxyType(
    {1: 404, 2: 404, 3: 404, 17: 486, 18: 408, 19: 480, 20: 480, 21: 603, 22: 410, 26: 404, 27: 502, 28: 484}
    | {29: 501, 31: 480, 34: 503, 38: 503, 41: 503, 42: 503, 47: 503, 55: 403, 57: 403, 58: 503, 65: 488}
    | {79: 501, 87: 403, 88: 503, 102: 504}
)


def sip_of_cause(cause: int) -> int | None:
    """Return the SIP status that says the same as a cause of Q.850; None for no cause, or a normal end."""
    return _SIP_OF_CAUSE.get(cause)


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
