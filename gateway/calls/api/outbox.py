"""Messages and audio on their way to a program, whose socket may be slow or lost."""

import asyncio
import json
from collections import deque
from typing import Final

from .messages import BadCallMessage, ServerMessage

_MAX_UNSENT_MESSAGES: Final = 2_000  # about ten minutes of words
_MAX_UNSENT_AUDIO_BYTES: Final = 160_000  # 5 s at 16 kHz; older audio is dropped first
_MAX_KEPT_MESSAGES: Final = 1_000  # that were taken already


class OutboxOverrun(Exception):
    """The peer does not read its messages."""


class Outbox:
    """Messages and audio for a program; iterates over them until ``close``.

    Bounded: above 2,000 messages the iteration raises OutboxOverrun after what was queued; only the newest
    160,000 bytes of audio are kept.

    Args:
        keeps_taken: whether the last 1,000 messages that were taken are kept for ``rewind``.
    """

    def __init__(self, *, keeps_taken: bool = False) -> None:
        self._items: deque[str | bytes] = deque()
        self._kept: deque[str] = deque(maxlen=_MAX_KEPT_MESSAGES if keeps_taken else 0)
        self._taken = 0  # messages, by the count of the peer
        self._audio_bytes = 0
        self._overrun = self._closed = False
        self._changed = asyncio.Event()

    def put(self, message: ServerMessage) -> None:
        """Queue a message."""
        if self._closed or self._overrun:
            return
        self._overrun = len(self._items) >= _MAX_UNSENT_MESSAGES
        if not self._overrun:
            self._items.append(json.dumps(message.fields()))
        self._changed.set()

    def put_audio(self, pcm: bytes) -> None:
        """Queue audio, and drop the oldest if too much is queued."""
        if self._closed or self._overrun:
            return
        self._items.append(pcm)
        self._audio_bytes += len(pcm)
        while self._audio_bytes > _MAX_UNSENT_AUDIO_BYTES:
            oldest = next(item for item in self._items if isinstance(item, bytes))
            self._items.remove(oldest)
            self._audio_bytes -= len(oldest)
        self._changed.set()

    def rewind(self, received: int) -> int:
        """Queue the messages after the first ``received`` again; return how many are not kept any more.

        Audio that waits is dropped: it is over. Raises BadCallMessage for more messages than were taken.
        """
        if received > self._taken:
            raise BadCallMessage(f"received: {self._taken} messages were sent, not {received}")
        unreceived = self._taken - received
        again = [self._kept.pop() for _ in range(min(unreceived, len(self._kept)))]
        unsent = [item for item in self._items if isinstance(item, str)]
        self._items = deque([*reversed(again), *unsent])
        self._audio_bytes = 0
        self._taken = received
        self._changed.set()
        return unreceived - len(again)

    def close(self) -> None:
        """End the iteration after what is queued; later items are dropped."""
        self._closed = True
        self._changed.set()

    def __aiter__(self) -> "Outbox":
        return self

    async def __anext__(self) -> str | bytes:
        while not self._items:
            if self._overrun:
                raise OutboxOverrun(f"{_MAX_UNSENT_MESSAGES} messages were not read")
            if self._closed:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        item = self._items.popleft()
        if isinstance(item, bytes):
            self._audio_bytes -= len(item)
        else:
            self._taken += 1
            self._kept.append(item)
        return item
