"""The first half of an attended transfer: its target is called, answers, and hears an announcement.

originate --> the target answers --> announcement --> both callers are joined
         '-> busy, no answer, refused: TransferFailed, and the caller stays
"""

import asyncio
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final
from uuid import uuid4

from ...call import Call
from ...call_options import Caller
from ...kits.transfers import AnnouncingAgent
from ...transfers import AttendedTransfer, CallNotTransferable, TransferFailed
from .ari_call import AriCall
from .models import Dial
from .origination import EXTENSION, Origination, local_endpoint

CONSULTATION: Final = "vivavoce-consultation:"  # argument of the application, before the first channel's id
_CONNECT_S: Final = 10.0  # after the target answered, until it is connected; Asterisk itself ends the ringing
_ENDPOINT: Final = re.compile(r"[A-Za-z0-9_-]+/(?:(?!\$[{\[])[!-~])+")  # no functions of the dial plan
_ELSEWHERE: Final = (23, 26)  # another channel is called instead (redirected), or answers (pickup)
_CAUSES: Final[Mapping[int, str]] = MappingProxyType(
    # Source: ITU-T Q.850, table 1.
    {
        1: "is no number that exists",
        3: "cannot be reached",
        17: "is busy",
        18: "does not answer",
        19: "does not answer",
        20: "is not there",
        21: "refused the call",
        27: "is out of order",
        28: "is no complete number",
    }
)


class Consultation:
    """The call to the target of one attended transfer.

    Args:
        caller: who is transferred, and in whose context of the dial plan an extension is called.

    Raises CallNotTransferable if the target is neither an extension nor an endpoint.
    """

    def __init__(self, transfer: AttendedTransfer, caller: AriCall) -> None:
        self.target = transfer.target
        self.ring_s = transfer.ring_s
        self.channel = str(uuid4())  # id of the target's, and of its call; of another if the target forwards
        self.origination = Origination(
            channel=self.channel,
            endpoint=_endpoint_of(transfer.target, caller.channel.dialplan.context),
            argument=CONSULTATION + self.channel,
            caller_id=caller_id_of(caller.caller),
            ring_s=transfer.ring_s,
            originator=caller.channel.id,
        )
        self.agent = AnnouncingAgent(transfer.announcement)
        self._has_answered = False
        self._has_rung = False
        self._failure: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def answer(self, channel: str) -> None:
        """Note that the target has answered, on a channel of that id."""
        self.channel = channel
        self._has_answered = True

    def forward(self, event: Dial) -> Origination | None:
        """Return the call to the extension that the target forwards to; None: it has failed."""
        if (forwarded := self.origination.forwarded(event, "")) is None:
            self._fail(f"{self.target} forwards the call where it cannot be reached")
            return None
        self.origination, self.channel = forwarded, forwarded.channel
        return forwarded

    def fail(self, channel: str, cause: int) -> None:
        """Note that a channel of the target is gone, for a cause of Q.850."""
        if channel != self.channel or (cause in _ELSEWHERE and not self._has_answered):
            return
        if self._has_answered:
            self._fail(f"{self.target} hung up before the callers were joined")
        else:
            self._fail(f"{self.target} {_CAUSES.get(cause) or self._fallback}")

    def ring(self) -> None:
        """Note that the target rings."""
        self._has_rung = True

    @property
    def _fallback(self) -> str:
        return "does not answer" if self._has_rung else "cannot be reached"

    async def wait_announced(self, caller: Call) -> None:
        """Wait until the target has heard the announcement; raises TransferFailed."""
        announced = asyncio.create_task(self.agent.announced.wait())
        caller_gone = asyncio.create_task(caller.end.wait_closed())
        waits: set[asyncio.Future[Any]] = {announced, caller_gone, self._failure}
        try:
            await asyncio.wait(waits, timeout=self.ring_s + _CONNECT_S, return_when=asyncio.FIRST_COMPLETED)
            is_caller_gone = caller_gone.done()
        finally:
            announced.cancel()
            caller_gone.cancel()
        if is_caller_gone:
            raise TransferFailed("the caller hung up before the transfer")
        if self._failure.done():
            raise TransferFailed(f"{self._failure.result()}; the caller is still on the call")
        if not self.agent.announced.is_set():
            raise TransferFailed(f"{self.target} does not answer; the caller is still on the call")

    def _fail(self, reason: str) -> None:
        if not self._failure.done():
            self._failure.set_result(reason)


def caller_id_of(caller: Caller) -> str:
    """Return the caller as ``"Name" <number>``, to be shown to the target."""
    name = re.sub(r'["<>\\$\x00-\x1f\x7f-\x9f]', "", caller.name)
    number = re.sub(r"[^0-9A-Za-z_+*#.-]", "", caller.number)
    return f'"{name}" <{number}>' if number else ""


def _endpoint_of(target: str, context: str) -> str:
    if _ENDPOINT.fullmatch(target):
        return target
    if EXTENSION.fullmatch(target):
        return local_endpoint(target, context)
    raise CallNotTransferable(
        f"got {target!r}; an attended transfer goes to an extension, or to an endpoint such as PJSIP/200"
    )
