"""Transfers of one call over SIP: by the caller's own telephone (REFER), or to another call through here."""

import asyncio
from collections.abc import Coroutine
from contextlib import ExitStack
from typing import Any, Final, Protocol
from uuid import uuid4

from .....adapters.sip.headers import SipSyntaxError, SipUri
from .....tts_engine.errors import BadRequest, Overloaded
from ...call import Call
from ...call_options import Caller, CallOwner
from ...kits.transfers import AnnouncingAgent
from ...transfers import CALL_PREFIX, AttendedTransfer, CallNotTransferable, TransferFailed
from .outgoing.dialer import SipDialer, TargetUnreachable
from .sip_call import SipCall, SipCallHost

_CONNECT_S: Final = 10.0  # after the target answered, until the announcement is over
_REASONS: Final = {
    404: "is no number that exists",
    408: "does not answer",
    480: "does not answer",
    486: "is busy",
    487: "does not answer",
    600: "is busy",
    603: "refused the call",
}


class SipTransferHost(SipCallHost, Protocol):
    """The server, as transfers use it."""

    dialer: SipDialer

    def find(self, call_id: str) -> SipCall | None:
        """Return a call that is up."""

    def join(self, first: SipCall, second: SipCall) -> None:
        """Let two callers hear each other, and end the second call; the first one's end follows."""

    def hide(self, call: Call) -> None:
        """Keep programs that wait for the next call from one that is for an announcement."""


class SipTransfers:
    """Implements ``CallTransfers``; ``sip_call`` is set once the call is made."""

    def __init__(self, host: SipTransferHost) -> None:
        self.sip_call: SipCall | None = None
        self._host = host
        self._target = ""  # of the attended transfer that is under way

    def check(self, target: str) -> None:
        """Raise CallNotTransferable unless the caller can be transferred to a number, address or call."""
        if target.startswith(CALL_PREFIX):
            other = self._host.find(target.removeprefix(CALL_PREFIX))
            if other is None or other.call is None or other is self.sip_call:
                raise CallNotTransferable(f"{target!r} is no other call over SIP that is up")
            return
        try:
            self._uri_of(target)
            if not self._host.dialer.registrar.phones(target):
                self._host.dialer.guard.require_allowed(target)
        except (BadRequest, SipSyntaxError) as error:
            raise CallNotTransferable(str(error)) from None

    def refer(self, target: str) -> Coroutine[Any, Any, None]:
        """Join the caller with another one, or have its telephone call a number or address."""
        return self._refer(target)

    async def _refer(self, target: str) -> None:
        call = self._require_up()
        if target.startswith(CALL_PREFIX):
            other = self._host.find(target.removeprefix(CALL_PREFIX))
            if other is None or other.call is None:
                raise TransferFailed(f"the caller of {target} hung up before the transfer")
            self._host.join(call, other)
            return
        status, reason = await call.refer(f"<{self._uri_of(target)}>")
        if status >= 300:
            raise TransferFailed(
                f"the transfer to {target} failed: {status} {reason}; the caller is still on the call"
            )

    async def attend(self, transfer: AttendedTransfer) -> None:
        """Call the target, announce the caller, and join both; raises CallNotTransferable, TransferFailed."""
        if self._target:
            raise CallNotTransferable(f"a transfer to {self._target} is under way")
        self._target = transfer.target
        try:
            await self._attend(transfer)
        finally:
            self._target = ""

    async def _attend(self, transfer: AttendedTransfer) -> None:
        call = self._require_up()
        caller = call.call
        assert caller is not None
        target, dialer = transfer.target, self._host.dialer
        agent = AnnouncingAgent(transfer.announcement)
        shown = Caller(caller.caller.number, caller.caller.name, target)
        try:
            route = await dialer.route(target)
            consulted = dialer.place(
                self._host,
                route,
                str(uuid4()),
                shown=shown,
                transfers=SipTransfers(self._host),
                ring_s=transfer.ring_s,
                agent=agent,
                owner=CallOwner(),
            )
        except BadRequest as error:
            raise CallNotTransferable(str(error)) from None
        except (TargetUnreachable, Overloaded, OSError) as error:
            raise TransferFailed(f"{target} cannot be called: {error}") from None
        with ExitStack() as undo:
            undo.callback(consulted.hang_up, "the transfer is over")
            await self._wait_announced(consulted, agent, caller, transfer)
            undo.pop_all()
        self._host.join(call, consulted)
        caller.end.leave_for(f"{CALL_PREFIX}{consulted.call_id}")

    async def _wait_announced(
        self, consulted: SipCall, agent: AnnouncingAgent, caller: Call, transfer: AttendedTransfer
    ) -> None:
        failed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        consulted.on_failed = lambda status: None if failed.done() else failed.set_result(status)
        consulted.on_up = self._host.hide
        announced = asyncio.create_task(agent.announced.wait())
        gone = asyncio.create_task(caller.end.wait_closed())
        waits: set[asyncio.Future[Any]] = {announced, gone, failed}
        try:
            await asyncio.wait(
                waits, timeout=transfer.ring_s + _CONNECT_S, return_when=asyncio.FIRST_COMPLETED
            )
            is_gone = gone.done()
        finally:
            announced.cancel()
            gone.cancel()
        if is_gone:
            raise TransferFailed("the caller hung up before the transfer")
        if failed.done() or not agent.announced.is_set():
            status = failed.result() if failed.done() else 408
            reason = _REASONS.get(status, f"cannot be reached ({status})" if status else "hung up")
            raise TransferFailed(f"{transfer.target} {reason}; the caller is still on the call")

    def _require_up(self) -> SipCall:
        if self.sip_call is None or self.sip_call.call is None:
            raise TransferFailed("the call is not up")
        return self.sip_call

    def _uri_of(self, target: str) -> SipUri:
        """Return the URI for a REFER: a number is one where the caller is. Raises SipSyntaxError."""
        if target.startswith(("sip:", "sips:")):
            return SipUri.parse(target)
        call = self._require_up()
        assert call.session.dialog is not None
        remote = call.session.dialog.remote.sip_uri
        return SipUri.parse(str(SipUri(remote.host, target, remote.port)))
