"""Causes of Q.850, with which Asterisk says why a call ended, as the SIP statuses that say the same."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

# Source: ITU-T Q.850, table 1; RFC 3398, 8.2.6.1.
_SIP_OF_CAUSE: Final[Mapping[int, int]] = MappingProxyType(
    {1: 404, 2: 404, 3: 404, 17: 486, 18: 408, 19: 480, 20: 480, 21: 603, 22: 410, 26: 404, 27: 502, 28: 484}
    | {29: 501, 31: 480, 34: 503, 38: 503, 41: 503, 42: 503, 47: 503, 55: 403, 57: 403, 58: 503, 65: 488}
    | {79: 501, 87: 403, 88: 503, 102: 504}
)


def sip_of_cause(cause: int) -> int | None:
    """Return the SIP status that says the same as a cause of Q.850; None for no cause, or a normal end."""
    return _SIP_OF_CAUSE.get(cause)
