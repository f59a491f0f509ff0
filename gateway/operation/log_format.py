"""The formats of the log: a record is one line, and what peers send cannot look like another record.

Call ids, names and addresses of peers are in messages. After a line end in one of them, the record continues
on an indented line; control characters, such as those that a terminal obeys, are shown as escapes. JSON
has escapes for both, and fields beside the message: the call, the stream, the key's name and the trace.

    set_log_fields(key="reception", trace=trace_id)                     all later lines of this task
    logger.info("Call %s closed", call_id, extra={"call": call_id})     one line

Text that is spoken is never a field.
"""

import json
import logging
import re
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
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


_NOT_SHOWN: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_CONTINUED: Final = "\n    "


class PlainLineFormatter(logging.Formatter):
    """Formats records; an exception follows its message as usual."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        shown = _NOT_SHOWN.sub(lambda found: ascii(found[0])[1:-1], record.message)
        record.message = shown.replace("\n", _CONTINUED)
        return super().formatMessage(record)


class JsonLineFormatter(logging.Formatter):
    """Formats records as JSON objects: time (UTC), level, logger, message, ``log_fields``, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def has_no_text(record: logging.LogRecord) -> bool:
    """Return whether a record is free of what is said: libraries log whole messages at DEBUG."""
    return record.levelno >= logging.INFO or record.name.partition(".")[0] == "vivavoce"
