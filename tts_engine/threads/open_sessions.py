"""The open sessions of an engine with their streams, the lock that guards them, and the end of each.

Streams and their readers call it on their loops, the reader thread and the workers on theirs. The lock is
held for microseconds, never during a step, so asyncio never waits for tensors.
"""

import logging
import threading
import time
import weakref

from ..backends.base import Backend, InterruptibleBackend
from ..metrics import Metrics
from ..session import Session
from ..stream import Stream

logger = logging.getLogger(__name__)

_UNREAD_WARNING_INTERVAL_S = 60.0


class OpenSessions:
    """Implements ``StreamHost``.

    Attributes:
        lock: guards all that is here, and every session; workers wait for it to be notified.
        unread_text: of the same lock; notified when a session has text to read.
        streams: by their sessions.
        metrics: of the streams.
        is_closing: whether the threads are to end.
    """

    def __init__(self, backend: Backend, metrics: Metrics) -> None:
        lock = threading.RLock()
        self.lock = threading.Condition(lock)
        self.unread_text = threading.Condition(lock)
        self.streams: dict[Session, Stream] = {}
        self.metrics = metrics
        self.is_closing = False
        self._backend = backend
        self._workers_differ = len(set(backend.workers)) > 1
        self._untaken: weakref.WeakSet[Session] = weakref.WeakSet()
        self._unread_characters = 0  # since the last warning
        self._next_unread_warning_at = 0.0  # monotonic s

    @property
    def untaken_count(self) -> int:
        """Sessions that are rendered, whose final chunk is not taken."""
        return len(self._untaken)

    def add(self, session: Session, stream: Stream) -> None:
        """Add a stream; the lock is held."""
        self.streams[session] = stream
        self.metrics.active_streams.inc()

    def close(self) -> None:
        """Cancel every stream, and have the threads end."""
        with self.lock:
            self.is_closing = True
            streams = list(self.streams.values())
            self.lock.notify_all()
            self.unread_text.notify()
        for stream in streams:
            stream.cancel()

    # ``StreamHost``; the lock is held

    def wake(self) -> None:
        """Tell a worker that a session may have work."""
        if self._workers_differ:  # only some of them may run the session's stage
            self.lock.notify_all()
        else:
            self.lock.notify()

    def wake_reader(self) -> None:
        """Tell the reader thread that a session has text to read."""
        self.unread_text.notify()

    def release(self, session: Session) -> None:
        """Forget a session and close its slot; the commit closes the slot of one in a step.

        The session stops counting towards admission at once, unless it is rendered to its end: then when its
        final chunk is taken, or it is cancelled, which release it again.
        """
        stream = self.streams.pop(session, None)
        if stream is None:
            self._untaken.discard(session)
            return
        stream.log.close(session, self.metrics.on_span)
        if session.is_fully_rendered and session.cancelled_at is None:
            self._untaken.add(session)
        if not session.running:
            self.close_slot(session)
        elif isinstance(self._backend, InterruptibleBackend):
            self._backend.interrupt(session.slot)

    def report_unread(self, characters: int) -> None:
        """Count letters of an ended stream that the voice could not read; warn of them once a minute."""
        self.metrics.unread_characters.inc(characters)
        self._unread_characters += characters
        if time.monotonic() >= self._next_unread_warning_at:
            logger.warning(
                "%d letters were not spoken: the voice cannot read their script", self._unread_characters
            )
            self._next_unread_warning_at = time.monotonic() + _UNREAD_WARNING_INTERVAL_S
            self._unread_characters = 0

    # Called by the threads; the lock is held

    def wake_all_workers(self) -> None:
        """Tell every worker that one of them may have work."""
        self.lock.notify_all()

    def wake_next_stages(self) -> None:
        """Tell the workers that sessions may have come to a stage of another worker."""
        if self._workers_differ:
            self.wake_all_workers()

    def close_slot(self, session: Session) -> None:
        """Close the slot of a released session."""
        self.metrics.active_streams.dec()
        self._backend.close_slot(session.slot)
        if session.cancelled_at is not None:
            self.metrics.cancel_latency.observe(time.monotonic() - session.cancelled_at)

    def end_if_rendered(self, session: Session) -> None:
        """End a session that is rendered or cancelled."""
        if session.is_fully_rendered:
            self.streams[session].deliver_end()
        if session.is_fully_rendered or session.cancelled_at is not None:
            self.release(session)

    def fail(self, session: Session, error: Exception) -> None:
        """End a session with an error."""
        self.metrics.failures.inc()
        self.streams[session].deliver_failure(error)
        session.drop_text()
        self.release(session)
