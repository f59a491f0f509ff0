"""Fields of log lines beside the message: the call, the stream, the key's name and the trace.

    set_log_fields(key="reception", trace=trace_id)                     all later lines of this task
    logger.info("Call %s closed", call_id, extra={"call": call_id})     one line

Text that is spoken is never a field.
"""

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

FIELDS: Final = ("call", "stream", "key", "trace")
_current: ContextVar[Mapping[str, str]] = ContextVar("log fields", default=MappingProxyType({}))


def set_log_fields(**fields: str) -> None:
    """Add fields to all later lines of this task, and of tasks that it starts."""
    unknown = fields.keys() - set(FIELDS)
    if unknown:
        raise ValueError(f"fields of log lines are {', '.join(FIELDS)}, not {', '.join(sorted(unknown))}")
    _current.set({**_current.get(), **fields})


def fields_of(record: logging.LogRecord) -> dict[str, str]:
    """Return the fields of a record, those of its ``extra`` first; called where it was logged."""
    own: dict[str, str] = {name: str(record.__dict__[name]) for name in FIELDS if name in record.__dict__}
    return {**_current.get(), **own}
