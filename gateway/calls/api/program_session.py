"""A program on a call, over one socket or several: its socket may be lost, and it may come back.

socket lost    the session is kept for some seconds: what the program wrote is spoken on, messages wait
socket again   of the same key: it takes the session over
no socket      the session ends as it does when a program leaves
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import ExitStack, aclosing

from ...background_tasks import cancel_and_wait
from ..registry import ActiveCall
from .attachment import CallAttachment
from .key_calls import KeyCalls
from .outbox import Outbox

logger = logging.getLogger(__name__)


class ProgramSession:
    """A program that is attached to a call. Made by ``ProgramSessions.open``.

    Args:
        attached: ends the attachment to the call.

    Attributes:
        taken_messages: of the program, over all its sockets.
    """

    def __init__(
        self,
        attachment: CallAttachment,
        outbox: Outbox,
        calls: KeyCalls,
        attached: ExitStack,
    ) -> None:
        self.attachment = attachment
        self.outbox = outbox
        self.taken_messages = 0
        self._calls = calls
        self._attached = attached
        self._disconnect: Callable[[], None] | None = None  # from the socket that serves it now
        self._waiting = ExitStack()  # what ends it while it has no socket
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._log_failure)

    @property
    def is_over(self) -> bool:
        """Whether the call is over, or the program has left it."""
        return self._task.done()

    @property
    def is_kept(self) -> bool:
        """Whether it waits for a socket."""
        return self._disconnect is None

    def belongs_to(self, calls: KeyCalls) -> bool:
        """Return whether it is of the same key."""
        return self._calls.grant.key_id == calls.grant.key_id

    def connect(self, disconnect: Callable[[], None]) -> None:
        """Serve it on a socket. ``disconnect`` is called when another socket takes it over."""
        self._waiting.close()
        if self._disconnect is not None:
            self._disconnect()
        self._disconnect = disconnect

    def is_served_by(self, disconnect: Callable[[], None]) -> bool:
        """Return whether that socket serves it."""
        return self._disconnect == disconnect

    def keep(self, seconds: float) -> None:
        """End it after ``seconds`` or with its key, unless a socket takes it over."""
        self._disconnect = None
        timer = asyncio.get_running_loop().call_later(seconds, self._task.cancel)
        self._waiting.callback(timer.cancel)
        self._waiting.callback(self._calls.grant.on_end(self._task.cancel))

    async def wait_over(self) -> None:
        """Wait until the call is over; raises what a task of the attachment raised before."""
        await asyncio.wait({self._task})
        self._task.result()

    async def aclose(self) -> None:
        """End it: what the program wrote is not spoken any more."""
        await cancel_and_wait(self._task)

    async def _run(self) -> None:
        try:
            with self._attached:
                async with aclosing(self.attachment):
                    await self.attachment.wait_over()
        finally:
            self._waiting.close()

    def _log_failure(self, task: "asyncio.Task[None]") -> None:
        """Log what nobody else does: a socket closes with the failure of its session."""
        if self.is_kept and not task.cancelled() and (error := task.exception()) is not None:
            logger.error("Serving a program on a call failed", exc_info=error)


class ProgramSessions:
    """The programs that are attached to calls over sockets, one a call."""

    def __init__(self) -> None:
        self._sessions: dict[ActiveCall, ProgramSession] = {}

    def open(
        self, active_call: ActiveCall, calls: KeyCalls, attachment: CallAttachment, outbox: Outbox
    ) -> ProgramSession:
        """Attach a program to a call; raises CallAlreadyAttached and GrantEnded."""
        with ExitStack() as attached:
            attached.enter_context(calls.attach(active_call))
            attached.callback(self._sessions.pop, active_call, None)
            attachment.open()
            session = ProgramSession(attachment, outbox, calls, attached.pop_all())
        self._sessions[active_call] = session
        return session

    def find(self, active_call: ActiveCall, calls: KeyCalls) -> ProgramSession | None:
        """Return the session of the same key on a call; None if there is none."""
        session = self._sessions.get(active_call)
        return session if session is not None and session.belongs_to(calls) else None
