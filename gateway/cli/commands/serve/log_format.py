"""The formats of the log: a record is one line, and what peers send cannot look like another record.

Call ids, names and addresses of peers are in messages. After a line end in one of them, the record continues
on an indented line; control characters, such as those that a terminal obeys, are shown as escapes. JSON
has escapes for both, and the fields of ``operation.log_fields`` beside the message.
"""

import json
import logging
import re
from datetime import UTC, datetime
from typing import Final

from ....operation.log_fields import fields_of

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
