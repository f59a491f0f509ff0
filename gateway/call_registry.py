"""The calls that are up, whatever carries them, and who holds each.

A call is held by at most one program at a time: two that write into one ear would interleave their words.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..tts_engine.errors import BadRequest
from .call import Call


class CallUnknown(BadRequest):
    """No call of that id is up."""


class CallHeld(BadRequest):
    """Another program holds that call."""


@dataclass(slots=True, eq=False)
class Line:
    """A call that is up. ``kind``: "audiosocket", "webrtc", ...; ``opened_at``: Unix seconds."""

    call: Call
    kind: str
    peer: str
    opened_at: float
    held: bool = False


class CallRegistry:
    """Lines by call id, oldest first."""

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}
        self._changed = asyncio.Event()

    def __iter__(self) -> Iterator[Line]:
        return iter(tuple(self._lines.values()))

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, call: Call, *, kind: str, peer: str) -> Line:
        """A call is up."""
        line = Line(call, kind, peer, time.time())
        self._lines[call.call_id] = line
        self._tell()
        return line

    def remove(self, call: Call) -> None:
        """A call is over; one that is not listed is no error."""
        line = self._lines.get(call.call_id)
        if line is not None and line.call is call:
            del self._lines[call.call_id]

    def get(self, call_id: str) -> Line:
        """The line of that call; raises CallUnknown."""
        line = self._lines.get(call_id)
        if line is None:
            raise CallUnknown(f"no call {call_id!r} is up")
        return line

    async def next_free(self) -> Line:
        """The oldest call that nobody holds; waits for one."""
        while True:
            free = next((line for line in self._lines.values() if not line.held), None)
            if free is not None:
                return free
            self._changed.clear()
            await self._changed.wait()

    @contextmanager
    def hold(self, line: Line) -> Iterator[None]:
        """Hold a call for oneself; raises CallHeld."""
        if line.held:
            raise CallHeld(f"call {line.call.call_id!r} is held by another program")
        line.held = True
        try:
            yield
        finally:
            line.held = False
            self._tell()

    def _tell(self) -> None:
        self._changed.set()
