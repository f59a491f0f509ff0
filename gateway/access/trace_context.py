"""The trace id of a request, which names its streams in the logs of all processes that speak them.

Source: W3C Trace Context, Recommendation of 23 November 2021, section 3.2.
"""

import re
import secrets
from collections.abc import Mapping

_TRACEPARENT = re.compile(
    r"(?P<version>(?!ff)[0-9a-f]{2})-(?P<trace_id>(?!0{32})[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
    r"(?P<further>-.*)?"
)


def trace_id_of(headers: Mapping[str, str]) -> str:
    """The trace id of the header ``traceparent``, or a new one without it: 32 hexadecimal digits."""
    found = _TRACEPARENT.fullmatch(headers.get("traceparent", "").strip())
    if found is None or (found["version"] == "00" and found["further"]):
        return new_trace_id()
    return found["trace_id"]


def new_trace_id() -> str:
    """A random trace id."""
    return secrets.token_hex(16)
