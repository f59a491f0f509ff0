"""Streams whose replica is not chosen yet.

    opened -> first clause known -> placed
                                 -> no room, more replicas may come -> placed, or refused after 3 s

The choice needs the length of the text. So it is made when a first clause or the end of the text is there,
at the end of the loop's step, because most texts come whole in one step. Belongs to one event loop.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from ....tts_engine.errors import Overloaded
from .cluster_stream import ClusterStream

MAX_WAIT_S: Final = 3.0  # for room; a caller notices, and a client has not given up
_MAX_WAITING: Final = 256  # streams


class WaitingStreams:
    """Places streams as soon as that can be.

    place: gives a stream to a replica; raises Overloaded. refuse: ends a stream that none took. may_grow:
    whether more replicas are to come.
    """

    def __init__(
        self,
        place: Callable[[ClusterStream], None],
        refuse: Callable[[ClusterStream, Overloaded], None],
        may_grow: Callable[[], bool],
    ) -> None:
        self._place, self._refuse, self._may_grow = place, refuse, may_grow
        self._considered: set[ClusterStream] = set()  # in this step of the loop
        self._refused: dict[ClusterStream, asyncio.TimerHandle] = {}  # they wait for room, first come first
        self._until: dict[ClusterStream, float] = {}  # loop time; of streams that were refused once

    def __len__(self) -> int:
        return len(self._refused)

    @property
    def has_room(self) -> bool:
        """Whether one more stream may wait for a replica."""
        return len(self._refused) < _MAX_WAITING and self._may_grow()

    def consider(self, stream: ClusterStream) -> None:
        """Place a stream soon, if enough of its text is known."""
        if stream.has_clause and stream not in self._considered and stream not in self._refused:
            self._considered.add(stream)
            asyncio.get_running_loop().call_soon(self._try, stream)

    def forget(self, stream: ClusterStream) -> None:
        """Drop a stream that ended."""
        self._considered.discard(stream)
        self._until.pop(stream, None)
        self._end_wait(stream)

    def retry(self) -> None:
        """Place those that wait, now that there may be room."""
        for stream in list(self._refused):
            try:
                self._place(stream)
            except Overloaded:
                return
            self._end_wait(stream)

    def _try(self, stream: ClusterStream) -> None:
        if stream not in self._considered:  # it was cancelled
            return
        self._considered.remove(stream)
        try:
            self._place(stream)
        except Overloaded as refusal:
            self.wait_or_refuse(stream, refusal)

    def wait_or_refuse(self, stream: ClusterStream, refusal: Overloaded) -> None:
        """Have a stream that no replica took wait, 3 s in all, or end it."""
        if not self.has_room:
            self._refuse(stream, refusal)
            return
        loop = asyncio.get_running_loop()
        until = self._until.setdefault(stream, loop.time() + MAX_WAIT_S)
        self._refused[stream] = loop.call_at(until, self._expire, stream, refusal)

    def _end_wait(self, stream: ClusterStream) -> None:
        if (timer := self._refused.pop(stream, None)) is not None:
            timer.cancel()

    def _expire(self, stream: ClusterStream, refusal: Overloaded) -> None:
        self._refused.pop(stream, None)
        self._refuse(stream, refusal)
