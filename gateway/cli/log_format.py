"""The format of the log: a record is one line, and what peers send cannot look like another record.

Call ids, names and addresses of peers are in messages. After a line end in one of them, the record continues
on an indented line; control characters, such as those that a terminal obeys, are shown as escapes.
"""

import logging
import re
from typing import Final

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
