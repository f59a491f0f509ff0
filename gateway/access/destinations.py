"""Patterns of what a key may call: an endpoint, a number, an address.

    *     any text, even none, without / @ : ; & and ,
    **    any text
    ?     one character that * may stand for

All else stands for itself, in the same case. So ``PJSIP/1*`` allows ``PJSIP/100`` and not
``PJSIP/100/sip:elsewhere@192.0.2.1``. The destination of a call over RTP is ``RTP/192.0.2.9:4000``, or
``RTP/`` if it names no peer.
"""

import functools
import re
from typing import Final

_ANY_BUT_SEPARATORS: Final = r"[^/@:;&,]"
_WILDCARD: Final = re.compile(r"\*\*|\*|\?")


def matches_destination(pattern: str, target: str) -> bool:
    """Return whether a pattern allows a target."""
    return _compile(pattern).fullmatch(target) is not None


@functools.lru_cache(maxsize=256)
def _compile(pattern: str) -> re.Pattern[str]:
    parts, end = [], 0
    for wildcard in _WILDCARD.finditer(pattern):
        parts += [re.escape(pattern[end : wildcard.start()]), _expression_of(wildcard[0])]
        end = wildcard.end()
    return re.compile("".join([*parts, re.escape(pattern[end:])]), re.DOTALL)


def _expression_of(wildcard: str) -> str:
    match wildcard:
        case "**":
            return ".*"
        case "*":
            return f"{_ANY_BUT_SEPARATORS}*"
        case _:
            return _ANY_BUT_SEPARATORS
