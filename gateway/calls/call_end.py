"""The end of a call, by its programs or its leg; its result, kept for a while, which the dial plan reads."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from ...adapters.playback.background import Awaited
from ..background_tasks import wait_at_most
from .call_options import CallOwner
from .call_speech import CallSpeech
from .transfers import (
    AttendedTransfer,
    CallNotTransferable,
    CallTransfers,
    RefusedTransferAction,
    TransferFailed,
)

KEPT_S: Final = 600.0  # after the end of the call
MAX_KEPT: Final = 10_000
_MAX_GOODBYE_S: Final = 60.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a program decided on a call."""

    value: str = ""
    transfer_to: str = ""  # number or extension; "": no transfer


class CallEnd:
    """Ends one call.

    Args:
        speech: finishes its sentence first.
        closed: set at the end of the call.
        close: takes a reason and ends the connection; must not block.
        transfers: of the caller; None: a call of this kind cannot be transferred.
        linger_s: from the last sound sent to the end of the connection, which drops what a telephone's or a
            browser's buffer still holds.
    """

    def __init__(
        self,
        speech: CallSpeech,
        closed: asyncio.Event,
        close: Callable[[str], None],
        transfers: CallTransfers | None,
        linger_s: float = 0.0,
    ) -> None:
        self.result = CallResult()  # of the programs on the call
        self._speech = speech
        self._closed = closed
        self._close = close
        self._transfers = transfers
        self._linger_s = linger_s

    def set_result(self, value: str) -> None:
        """Take what a program decided; the target of a transfer stays."""
        self.result = replace(self.result, value=value)

    async def finish(self, reason: str = "finished") -> None:
        """End the call after the sentence being spoken; later utterances are not begun."""
        await self._speech.finish()
        await self._linger()
        self.hang_up(reason)

    def hang_up(self, reason: str = "hung up here") -> None:
        """End the connection at once."""
        self._close(reason)

    async def hang_up_when_heard(self, reason: str, writing: Coroutine[Any, Any, None] | None = None) -> None:
        """End the connection when all speech is heard, at most 60 s later.

        writing: waits until that speech is written.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_MAX_GOODBYE_S):
                if writing is not None:
                    await writing
                async with self._speech.silence():
                    pass
                await self._linger()
        self.hang_up(reason)

    async def _linger(self) -> None:
        if self._linger_s and not self._closed.is_set():
            await wait_at_most(self._closed, self._linger_s)

    def transfer(
        self, target: str, if_refused: RefusedTransferAction = RefusedTransferAction.KEEP
    ) -> Coroutine[Any, Any, None] | None:
        """Transfer the caller, and end the call; raises CallNotTransferable.

        Return None if that is done, or else what waits for the caller's telephone, which makes the transfer.
        It raises TransferFailed if that refuses; ``if_refused`` says what happens then.
        """
        transfers = self._require_transfers()
        transfers.check(target)
        referring = transfers.refer(target)
        if referring is None:
            self.leave_for(target)
            return None
        return self._leave_referred(target, referring, if_refused)

    async def _leave_referred(
        self, target: str, referring: Awaitable[None], if_refused: RefusedTransferAction
    ) -> None:
        try:
            await referring
        except TransferFailed:
            if if_refused is RefusedTransferAction.DIAL_PLAN:
                self.hang_up(f"the transfer to {target} was refused")
            raise
        self.leave_for(target)

    def leave_for(self, target: str) -> None:
        """End the call, and let the caller go to ``target``, which was checked."""
        self.result = replace(self.result, transfer_to=target)
        self.hang_up(f"transferred to {target}")

    async def transfer_attended(self, transfer: AttendedTransfer) -> None:
        """Call the target, and transfer the caller once it has answered, which ends the call.

        Raises CallNotTransferable, and TransferFailed if the call goes on.
        """
        transfers = self._require_transfers()
        with self._speech.awaiting(Awaited.TRANSFER):
            await transfers.attend(transfer)

    async def wait_closed(self) -> None:
        """Wait until the connection is gone."""
        await self._closed.wait()

    def on_closed(self) -> None:
        """Note that the connection is gone."""
        self._closed.set()
        self._close = lambda reason: None  # else the call would be a cycle with its leg

    def _require_transfers(self) -> CallTransfers:
        if self._transfers is None:
            raise CallNotTransferable("a call of this kind cannot be transferred")
        return self._transfers


@dataclass(frozen=True, slots=True)
class EndedCall:
    """A call that has ended lately."""

    result: CallResult
    owner: CallOwner


class RecentlyEnded(Generic[T]):
    """Values by call id, of calls that ended within the last 10 minutes, 10,000 calls at most."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._kept: dict[str, tuple[float, T]] = {}  # with when each expires; oldest first

    def add(self, call_id: str, value: T) -> None:
        """Keep what is known of a call that ended; an earlier one of the same id is forgotten."""
        now = self._now()
        self._kept.pop(call_id, None)
        self._kept[call_id] = (now + KEPT_S, value)
        while len(self._kept) > MAX_KEPT or next(iter(self._kept.values()))[0] <= now:
            del self._kept[next(iter(self._kept))]

    def get(self, call_id: str) -> T | None:
        """Return what is kept of a call; None if no call of that id has ended lately."""
        expires_at, value = self._kept.get(call_id, (0.0, None))
        return value if expires_at > self._now() else None
