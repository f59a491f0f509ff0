"""The end of grants: what a key has opened is closed after the key was revoked, has expired or was changed.

    GrantEnds            calls what ends a thing: a call, a recording, the task of a connection
    ending_with_grants   a block whose task is cancelled, and which raises GrantEnded, when a grant of it ends

A connection follows every grant that is issued while it is served, wherever its key was found: a route needs
no code of its own for that. Blocks may be nested, so that a dialect can report the end in its own way. The
inner block is cancelled first; if its connection goes on nevertheless, the outer one is, half a second later.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Final, Optional, Protocol

from .errors import GrantEnded
from .keys import ApiKey
from .rate_limits import KeyRateLimiter

logger = logging.getLogger(__name__)

CHECK_EVERY_S: Final = 0.5
LAST_MESSAGE_S: Final = 0.3  # for the last message, before the next check ends the connection by force


class GrantEnds:
    """What the keys of a server have opened; belongs to its event loop.

    is_current: whether a key still permits what its record does.
    """

    def __init__(self, is_current: Callable[[ApiKey], bool]) -> None:
        self.is_current = is_current
        self._ends: dict[ApiKey, dict[object, Callable[[], object]]] = {}  # oldest first

    def add(self, record: ApiKey, end: Callable[[], object]) -> Callable[[], None]:
        """Call ``end`` once the key is not valid any more, and again at each check until that has an effect.

        Returns what is to be called when the thing is closed; twice is no error.
        """
        entry = object()
        self._ends.setdefault(record, {})[entry] = end

        def remove() -> None:
            opened = self._ends.get(record, {})
            opened.pop(entry, None)
            if not opened:
                self._ends.pop(record, None)

        return remove

    def check(self) -> None:
        """End what keys have opened that are not valid any more."""
        for record in [record for record in self._ends if not self.is_current(record)]:
            ends = tuple(self._ends[record].values())
            logger.warning("Key %s is not valid any more; what it opened ends", record.id)
            for end in reversed(ends):
                _call(end)

    async def watch(self) -> None:
        """Check twice a second, until the task is cancelled."""
        while True:
            self.check()
            await asyncio.sleep(CHECK_EVERY_S)


def _call(end: Callable[[], object]) -> None:
    try:
        end()
    except Exception:  # boundary: the other things end too
        logger.exception("the end of a grant could not be applied")


class EndingGrant(Protocol):
    """A grant, as its connection sees it."""

    @property
    def record(self) -> ApiKey | None:
        """The key; None: nothing ends the grant."""

    @property
    def rate_limiter(self) -> KeyRateLimiter:
        """The limits of the key."""

    @property
    def is_current(self) -> bool:
        """Whether the grant has not ended."""

    def on_end(self, end: Callable[[], object]) -> Callable[[], None]:
        """Call ``end`` soon after the grant has ended, unless the result is called before."""


class ConnectionGrants:
    """The grants of one connection while its task is in one block. Made by ``ending_with_grants``."""

    def __init__(self, outer: Optional["ConnectionGrants"], *, counts_socket: bool = False) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._outer = outer
        self._inner: ConnectionGrants | None = None
        self._counts_socket = counts_socket
        self._grants: dict[ApiKey, EndingGrant] = {}
        self._releases = ExitStack()
        self._cancellations = 0
        self._has_ended = False
        if outer is not None:
            outer._inner = self
            for grant in outer._grants.values():
                self._register(grant)

    def follow(self, grant: EndingGrant) -> None:
        """End with this grant too; raises RateLimited if its key has too many sockets."""
        if grant.record is None or grant.record in self._grants:
            return
        if self._outer is not None:
            self._outer.follow(grant)
        if self._counts_socket and not self._grants:
            grant.rate_limiter.add_socket()
            self._releases.callback(grant.rate_limiter.sockets.remove)
        self._register(grant)

    async def require_current(self) -> None:
        """Do not return if a grant has ended: the connection's task is cancelled."""
        if all(grant.is_current for grant in self._grants.values()):
            return
        innermost = self
        while innermost._inner is not None:
            innermost = innermost._inner
        innermost._end()
        await asyncio.get_running_loop().create_future()

    def raise_if_ended(self) -> None:
        """Raise GrantEnded if the end of a grant has cancelled the task before."""
        if self._has_ended:
            raise GrantEnded

    def close(self) -> None:
        """Follow no grant any more."""
        self._releases.close()
        if self._outer is not None:
            self._outer._inner = None
            self._outer._has_ended |= self._has_ended

    def take_cancellation(self) -> bool:
        """Return whether the end of a grant has cancelled the task; it is not cancelled any more then."""
        while self._cancellations:
            self._cancellations -= 1
            self._task.uncancel()
        return self._has_ended

    def _register(self, grant: EndingGrant) -> None:
        assert grant.record is not None
        self._grants[grant.record] = grant
        self._releases.callback(grant.on_end(self._end))

    def _end(self) -> None:
        if self._inner is None:
            self._has_ended = True
            self._cancellations += 1
            self._task.cancel()


_CURRENT: Final[ContextVar[ConnectionGrants | None]] = ContextVar("connection grants", default=None)


def current_connection() -> ConnectionGrants | None:
    """Return the grants of the connection that is being served; None outside of any."""
    return _CURRENT.get()


@contextmanager
def ending_with_grants(*, counts_socket: bool = False) -> Iterator[ConnectionGrants]:
    """Cancel the block when a grant of its connection ends; it raises GrantEnded then.

    counts_socket: whether the connection is a WebSocket, of which a key may have a limited number.
    """
    grants = ConnectionGrants(_CURRENT.get(), counts_socket=counts_socket)
    token = _CURRENT.set(grants)
    try:
        yield grants
    except asyncio.CancelledError:
        if grants.take_cancellation():
            raise GrantEnded from None
        raise
    finally:
        grants.take_cancellation()
        grants.close()
        _CURRENT.reset(token)
