"""Transfers of callers: what a way in can do, and the errors of what it cannot."""

from collections.abc import Coroutine
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

from ...tts_engine.errors import BadRequest
from ..web.errors import ResourceConflict

CALL_PREFIX: Final = "call:"  # of a transfer to the caller of another call


class CallNotTransferable(BadRequest):
    """The call cannot be transferred in this way, or to this target."""


class TransferFailed(ResourceConflict):
    """Nobody could be reached; the caller is still on the call. The message says why."""


class RefusedTransferAction(Enum):
    """What a call does when its transfer is refused."""

    KEEP = "keep"  # the call goes on
    DIAL_PLAN = "dial_plan"  # the call ends, and the caller goes on in the dial plan


@dataclass(frozen=True, slots=True)
class AttendedTransfer:
    """A transfer that calls its target first; the caller waits on the call."""

    target: str
    announcement: str  # spoken to the one who answers; "": nothing
    ring_s: float  # until the target is taken for absent


class CallTransfers(Protocol):
    """The transfers of one call."""

    def check(self, target: str) -> None:
        """Raise CallNotTransferable unless the caller can be transferred to ``target`` when the call ends."""

    def refer(self, target: str) -> Coroutine[Any, Any, None] | None:
        """Have the caller's own telephone call ``target``; None: the caller leaves when the call ends.

        The result returns once the telephone has taken the transfer; it raises TransferFailed if the call
        goes on.
        """

    async def attend(self, transfer: AttendedTransfer) -> None:
        """Transfer the caller once the target has answered, which ends the call.

        Raises CallNotTransferable, and TransferFailed if the call goes on.
        """
