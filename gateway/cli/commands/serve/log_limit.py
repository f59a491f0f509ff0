"""A logging handler that limits repeated warnings and errors, which peers can cause by the thousand.

Records of one kind come from the same line of source code, of this package or of a library: asyncio has one
for each write to a socket that the peer has closed. Of each kind, the first ten of a minute are written. When
the minute is over, and at the end, one line says how many were left out. Lines below WARNING are not limited,
because they are written once for each call and each request.
"""

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MAX_RECORDS: Final = 10  # of one kind
PERIOD_S: Final = 60.0

_RecordKind = tuple[str, int]  # file and line of the source


@dataclass(slots=True)
class _Repetition:
    source: logging.LogRecord  # like the first one, without its traceback, which would keep objects
    until: float  # monotonic s
    records: int = 0


class LimitedHandler(logging.Handler):
    """Passes records on to another handler, which writes them and is closed with this one.

    ``now`` returns monotonic seconds.
    """

    def __init__(self, target: logging.Handler, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._target = target
        self._now = now
        self._repetitions: dict[_RecordKind, _Repetition] = {}  # oldest first

    def setFormatter(self, fmt: logging.Formatter | None) -> None:
        """Set the format of the other handler."""
        self._target.setFormatter(fmt)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, unless it is one too many."""
        now = self._now()
        self._end_periods(now)
        if record.levelno < logging.WARNING:
            self._target.handle(record)
            return
        kind = (record.pathname, record.lineno)
        if kind not in self._repetitions:
            self._repetitions[kind] = _Repetition(_copy(record, record.getMessage()), now + PERIOD_S)
        repetition = self._repetitions[kind]
        repetition.records += 1
        if repetition.records <= MAX_RECORDS:
            self._target.handle(record)

    def flush(self) -> None:
        """Flush the other handler."""
        self._target.flush()

    def close(self) -> None:
        """Write how many records were left out, and close the other handler."""
        with self.lock or contextlib.nullcontext():
            self._end_periods(float("inf"))
        self._target.close()
        super().close()

    def _end_periods(self, now: float) -> None:
        while self._repetitions:
            kind = next(iter(self._repetitions))
            if self._repetitions[kind].until > now:
                return
            self._report(self._repetitions.pop(kind))

    def _report(self, repetition: _Repetition) -> None:
        if (left_out := repetition.records - MAX_RECORDS) > 0:
            first = repetition.source
            text = f"{left_out} more lines within {PERIOD_S:g} s were left out, like: {first.msg}"
            self._target.handle(_copy(first, text))


def _copy(record: logging.LogRecord, text: str) -> logging.LogRecord:
    return logging.LogRecord(record.name, record.levelno, record.pathname, record.lineno, text, None, None)
