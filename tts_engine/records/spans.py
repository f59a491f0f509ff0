"""Spans: named pieces of time of one trace, which ``Metrics.on_span`` takes if they are exported.

The span that a task works for crosses to other processes as ``StreamRequest.parent_span``.
"""

import hashlib
import secrets
import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field

_current: ContextVar[str] = ContextVar("current span", default="")


def new_span_id() -> str:
    """A random id: 16 hexadecimal digits."""
    return secrets.token_hex(8)


def current_span() -> str:
    """The id of the span that this task works for; "" for none."""
    return _current.get()


def set_current_span(span_id: str) -> None:
    """Let this task, and tasks that it starts, work for a span."""
    _current.set(span_id)


@dataclass(frozen=True, slots=True)
class Span:
    """One piece of time. start, stop: monotonic seconds of this process."""

    name: str
    trace_id: str  # 32 hexadecimal digits, or the id of a call
    start: float
    stop: float
    parent: str = ""  # "" for the first span of a trace
    id: str = field(default_factory=new_span_id)
    attributes: Mapping[str, str | int | float] = field(default_factory=dict)
    failed: bool = False

    @property
    def trace_number(self) -> int:
        """The trace id as a number of 128 bits; that of another form is hashed."""
        digits = self.trace_id.replace("-", "").lower()
        is_hexadecimal = len(digits) == 32 and set(digits) <= set("0123456789abcdef")
        return int(digits if is_hexadecimal else hashlib.sha256(digits.encode()).hexdigest()[:32], 16)

    def unix_ns(self, monotonic_s: float) -> int:
        """Return one of its times as Unix nanoseconds."""
        return time.time_ns() - int((time.monotonic() - monotonic_s) * 1e9)
