"""The thread that reads the long texts of an engine, a slice at a time of the one that is needed soonest."""

import logging
import threading

from ..scheduler import urgency
from ..session import Session
from ..text_reader import TextReader, wants_text
from .open_sessions import OpenSessions

logger = logging.getLogger(__name__)


class ReaderThread(threading.Thread):
    """Reads until the sessions close."""

    def __init__(self, sessions: OpenSessions) -> None:
        super().__init__(name="vivavoce-reader", daemon=True)
        self._sessions = sessions

    def run(self) -> None:
        """Read a slice of a text after the other. An exception ends only the session of the text."""
        while (found := self._wait_for_text()) is not None:
            session, reader = found
            try:
                reader.read_on()
            except Exception as error:  # boundary: one text's fault must not end the others
                logger.exception("slot %d: its text was not read", session.slot)
                with self._sessions.lock:
                    if session in self._sessions.streams:
                        self._sessions.fail(session, error)

    def _wait_for_text(self) -> tuple[Session, TextReader] | None:
        """The session whose text is needed soonest; None when the engine closes."""
        sessions = self._sessions
        with sessions.lock:
            while True:
                session = min(filter(wants_text, sessions.streams), key=urgency, default=None)
                if session is not None:
                    return session, sessions.streams[session].reader
                if sessions.is_closing:
                    return None
                sessions.unread_text.wait()
