"""The leg of a phone call, over AudioSocket or RTP: its media are in a media server."""

import asyncio
import logging
from contextlib import suppress
from typing import Final

from ....adapters.media.phone_media import PhoneCallMedia, WireOpening
from ..agents.agent import Agent
from ..call import Call
from ..call_options import NO_OWNER, Caller, CallOwner, CallSettings
from ..transfers import CallTransfers
from ..ways_in.way_in import CallServices
from .leg_call import LegCall, LegGroup, run_agent
from .transfers import DialPlanTransfers

logger = logging.getLogger(__name__)

_END_TIMEOUT_S: Final = 5.0  # for the media server to end the calls


class PhoneLeg:
    """A phone call that a media server serves: a ``CallLeg`` and the ``PhoneCallOwner``.

    Args:
        kind: how it came in, as ``ActiveCall.kind``.
        peer: network address of the caller.
        caller: who is calling.
        transfers: of the caller; None: by the dial plan, which goes on after the call.
        owner: whose the call is.
    """

    def __init__(
        self,
        kind: str,
        peer: str,
        caller: Caller,
        group: "LegGroup[PhoneLeg]",
        services: CallServices,
        settings: CallSettings,
        *,
        transfers: CallTransfers | None = None,
        owner: CallOwner = NO_OWNER,
    ) -> None:
        self._group = group
        self._leg_call = LegCall(
            self,
            group,
            services,
            settings,
            kind=kind,
            peer=peer,
            caller=caller,
            transfers=transfers or DialPlanTransfers(),
            owner=owner,
        )
        self._media: PhoneCallMedia | None = None  # None until the call is opened
        self._end_reason = ""  # if it was ended before
        self._call_id = ""

    def open(self, call_id: str, media: PhoneCallMedia, agent: Agent) -> Call:
        """Open the call and run the agent on it."""
        self._call_id = call_id
        self._media = media
        call = self._leg_call.open(call_id, media).call
        self._leg_call.start_task(lambda: run_agent(call, agent))
        if self._end_reason:
            media.hang_up(self._end_reason)
        return call

    async def send_keys(self, digits: str) -> None:
        """Press keys of the far end, as ``Call.key_sender``."""
        if self._media is not None and not self._leg_call.is_over:
            self._media.send_keys(digits)

    def change_wire(self, wire: WireOpening) -> None:
        """Go on with another opening on the same socket."""
        if self._media is not None and not self._leg_call.is_over:
            self._media.change_wire(wire)

    def end(self, reason: str) -> None:
        """Hang up, or do so as soon as the call is open."""
        if self._media is None:
            self._end_reason = reason
        elif not self._leg_call.is_over:
            self._media.hang_up(reason)

    # Called by the media

    def on_closed(self, reason: str) -> None:
        """End the call: its connection is over."""
        self._leg_call.close(reason)
        self._group.remove(self)

    def on_problem(self, text: str, *, is_internal: bool) -> None:
        """Log an error of the caller's program, or of the media server."""
        if is_internal:
            logger.error("Call %s failed\n%s", self._call_id, text)
        else:
            logger.warning("Call %s: %s", self._call_id, text)

    def fail(self, error: Exception) -> None:
        """Log a fault of the server and end the call."""
        self._leg_call.fail(error)


async def end_phone_legs(group: LegGroup[PhoneLeg]) -> None:
    """End every leg, also those whose media server does not answer, and wait until nothing is left of any."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_END_TIMEOUT_S):
            await group.aclose()
    for leg in tuple(group.legs):
        leg.on_closed("the media server does not answer")
    await group.wait_idle()
