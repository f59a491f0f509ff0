"""Transfers by a dial plan, which goes on when the call has ended; and the announcement of attended ones."""

import asyncio

from ..call import Call
from ..transfers import CALL_PREFIX, AttendedTransfer, CallNotTransferable


class DialPlanTransfers:
    """The dial plan goes on after the call, and reads the target."""

    def check(self, target: str) -> None:
        """Raise CallNotTransferable unless ``target`` is one for a dial plan."""
        if target.startswith(CALL_PREFIX):
            raise CallNotTransferable("a call of this kind cannot be joined with another")
        check_no_endpoint(target)

    def refer(self, target: str) -> None:
        """Do nothing: the dial plan transfers the caller."""

    async def attend(self, transfer: AttendedTransfer) -> None:
        """Raise CallNotTransferable."""
        raise CallNotTransferable("a call of this kind has no attended transfer; calls over ARI have")


def check_no_endpoint(target: str) -> None:
    """Raise CallNotTransferable for an endpoint, which a dial plan does not look up."""
    if "/" in target:
        raise CallNotTransferable(f"{target!r} is an endpoint; only an attended transfer goes to one")


class AnnouncingAgent:
    """Announces a call which is put through, and keeps it up."""

    def __init__(self, announcement: str) -> None:
        self.announced = asyncio.Event()
        self._announcement = announcement

    async def run(self, call: Call) -> None:
        """Speak, and wait until the call is over."""
        if self._announcement:
            await call.speech.speak(self._announcement)
            await call.speech.wait_played()
        self.announced.set()
        await call.end.wait_closed()
