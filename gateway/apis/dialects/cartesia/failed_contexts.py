"""Contexts of a Cartesia socket whose error has been reported: each has one.

    failed -> messages with "continue" are dropped -> one without it, or a cancel: the id may be used again

A client sends more text before it reads the error. An answer to each would wait, unread, when it leaves.
"""

from collections.abc import Mapping
from typing import Any, Final

_MAX_FAILED: Final = 1_000  # of a connection


class FailedContexts:
    """The failed contexts of a connection that the client has not ended."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}  # the oldest first

    def add(self, context_id: str | None, fields: Mapping[str, Any]) -> None:
        """Note the error of a message, unless it was the last of its context."""
        if context_id is None or not _goes_on(fields):
            return
        self._ids[context_id] = None
        if len(self._ids) > _MAX_FAILED:
            del self._ids[next(iter(self._ids))]

    def drops(self, context_id: str | None, fields: Mapping[str, Any]) -> bool:
        """Whether a message is of a failed context; its last one ends it, and a cancel also its context."""
        if context_id is None or context_id not in self._ids:
            return False
        is_cancel = fields.get("cancel") is True
        if is_cancel or not _goes_on(fields):
            del self._ids[context_id]
        return not is_cancel


def _goes_on(fields: Mapping[str, Any]) -> bool:
    return fields.get("continue") is True
