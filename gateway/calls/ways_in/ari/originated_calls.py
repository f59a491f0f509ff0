"""Calls that Asterisk makes for a program, from the request to the answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final
from uuid import uuid4

from ....access.access_control import Grant
from ...call_options import Caller, CallOwner
from ...kits.placed_call import PlacedCall
from ...outgoing.outgoing_calls import OutgoingCalls
from ...outgoing.states import OutgoingState
from .client import AriClient, AriFailed
from .models import ChannelLeft, Dial
from .origination import Origination

ORIGINATED: Final = "vivavoce-call:"  # argument of the application, before the call's id
_ELSEWHERE: Final = (23, 26)  # another channel is called instead (redirected), or answers (pickup)
_STATES: Final[Mapping[str, tuple[OutgoingState, int]]] = {
    "RINGING": (OutgoingState.RINGING, 180),
    "PROGRESS": (OutgoingState.EARLY_MEDIA, 183),
}
# Causes of Q.850, with which Asterisk says why a call ended, as the SIP statuses that say the same.
# Source: ITU-T Q.850, table 1; RFC 3398, 8.2.6.1.
_SIP_OF_CAUSE: Final[Mapping[int, int]] = MappingProxyType(
    {1: 404, 2: 404, 3: 404, 17: 486, 18: 408, 19: 480, 20: 480, 21: 603, 22: 410, 26: 404, 27: 502, 28: 484}
    | {29: 501, 31: 480, 34: 503, 38: 503, 41: 503, 42: 503, 47: 503, 55: 403, 57: 403, 58: 503, 65: 488}
    | {79: 501, 87: 403, 88: 503, 102: 504}
)


@dataclass(slots=True)
class OriginatedCall:
    """A call that a key has asked for, from its ringing to its end."""

    record: PlacedCall
    origination: Origination  # the last one, if telephones have forwarded the call
    release: Callable[[], None]  # what counts it
    is_ringing: bool = False  # whether Asterisk has taken the request


class OriginatedCalls:
    """The calls of one application, by the ids of their channels; that of the first is the call's.

    Args:
        formats: of channels of ``Local``.
        hang_up: takes the id of a channel; must not block.
        end: takes the id of a call, of a key that ends; must not block.
    """

    def __init__(
        self,
        client: AriClient,
        outgoing: OutgoingCalls,
        formats: str,
        hang_up: Callable[[str], None],
        end: Callable[[str], None],
    ) -> None:
        self._client = client
        self._outgoing = outgoing
        self._formats = formats
        self._hang_up = hang_up
        self._end = end
        self._calls: dict[str, OriginatedCall] = {}

    async def place(
        self,
        endpoint: str,
        *,
        caller_id: str,
        variables: Mapping[str, str],
        ring_s: float | None,
        detects_answer: bool,
        grant: Grant,
    ) -> str:
        """Call an endpoint, as ``PJSIP/100``; return the id of the call. Raises RateLimited and AriFailed.

        grant: of the key, which counts the call and ends it, also while it rings.
        """
        call_id = str(uuid4())
        release = grant.open_call(partial(self._end, call_id))
        wanted = Origination(
            channel=call_id,
            endpoint=endpoint,
            caller_id=caller_id,
            variables=variables,
            ring_s=ring_s,
            argument=ORIGINATED + call_id,
            formats=self._formats if endpoint.startswith("Local/") else "",
        )
        caller = _shown_caller(caller_id, endpoint, variables)
        owner, cancel = CallOwner(grant.key_id), partial(self._cancel, call_id)
        record = PlacedCall(call_id, "ari", caller, cancel, owner, detects_answer=detects_answer)
        self._outgoing.add(record)
        call = self._calls[call_id] = OriginatedCall(record, wanted, release)
        try:
            await self._client.originate(wanted)
        except AriFailed:
            # Asterisk may call although its answer does not come.
            self._hang_up(call_id)
            self._give_up(call_id, OutgoingState.UNREACHABLE, None)
            raise
        call.is_ringing = True
        return call_id

    def get(self, call_id: str) -> OriginatedCall | None:
        """Return a call; None if it is over, or was never placed."""
        return self._calls.get(call_id)

    @property
    def ringing(self) -> dict[str, str]:
        """The calls that Asterisk has taken and that are not over: their channels, by their ids."""
        return {
            call.record.call_id: call.origination.channel for call in self._calls.values() if call.is_ringing
        }

    def take_progress(self, event: Dial) -> None:
        """Take how far a channel has come."""
        call = self._calls.get(event.channel.id)
        if call is not None and (state := _STATES.get(event.dialstatus)) is not None:
            call.record.report(*state)

    def take_end(self, event: ChannelLeft) -> None:
        """Take the end of a channel that was not answered."""
        call = self._calls.get(event.channel.id)
        if call is None or event.cause in _ELSEWHERE or event.type == "StasisEnd":
            return
        sip = event.tech_cause if event.tech_cause >= 300 else sip_of_cause(event.cause)
        has_rung = call.record.state is not OutgoingState.PLACED
        if sip is None and not has_rung:
            self._give_up(event.channel.id, OutgoingState.UNREACHABLE, None)
        else:
            call.record.report_gone(sip)
            self.forget(event.channel.id)

    async def forward(self, event: Dial) -> None:
        """Call the extension that a telephone forwards a call to."""
        if (call := self._calls.get(event.channel.id)) is None:
            return
        forwarded = call.origination.forwarded(event, self._formats)
        if forwarded is None:
            self._give_up(event.channel.id, OutgoingState.UNREACHABLE, None)
            return
        call.origination = forwarded
        self._calls[forwarded.channel] = call
        try:
            await self._client.originate(forwarded)
        except AriFailed:
            self._hang_up(forwarded.channel)
            self._give_up(forwarded.channel, OutgoingState.UNREACHABLE, None)

    def forget(self, channel: str) -> None:
        """Forget the call of a channel, which is over; no error if there is none."""
        if (call := self._calls.get(channel)) is None:
            return
        for each in [each for each, of in self._calls.items() if of is call]:
            del self._calls[each]
        call.record.report_gone()
        call.release()

    def _cancel(self, call_id: str) -> None:
        if (call := self._calls.get(call_id)) is not None:
            self._hang_up(call.origination.channel)
        self._give_up(call_id, OutgoingState.CANCELLED, 487)

    def _give_up(self, call_id: str, state: OutgoingState, sip: int | None) -> None:
        if (call := self._calls.get(call_id)) is not None:
            call.record.report(state, sip)
            self.forget(call_id)


def sip_of_cause(cause: int) -> int | None:
    """Return the SIP status that says the same as a cause of Q.850; None for no cause, or a normal end."""
    return _SIP_OF_CAUSE.get(cause)


def _shown_caller(caller_id: str, endpoint: str, variables: Mapping[str, str]) -> Caller:
    """Return the two sides of a call: ``"Name" <number>``, or a number, calls an endpoint."""
    name, bracket, number = caller_id.rpartition("<")
    return Caller(number.strip(" >") if bracket else caller_id, name.strip(' "'), endpoint, dict(variables))
