"""A call to all phones of a user at once: the first one that answers has it, and the others stop ringing.

A phone that is busy or does not answer leaves the call to the others; a refusal (6xx) is for all of them.

Source: RFC 3261, 16.7 (which responses end a forked call).
"""

from collections.abc import Callable
from dataclasses import dataclass

from ......adapters.sip.outgoing import OutgoingSession
from ......adapters.sip.session import RefusedListener
from ......adapters.sip.transactions import SipFlow
from ..sip_call import SipCall


def ring_all(call: SipCall, sessions: list[OutgoingSession], media_host: Callable[[SipFlow], str]) -> None:
    """Have one of several sessions be that of a call, before they are started."""
    call.ringing = list(sessions)
    for session in sessions:
        session.listener = RingingPhone(call, session, media_host)


@dataclass(slots=True)
class RingingPhone(RefusedListener):
    """Listens to the session of one phone, until one of them has answered."""

    call: SipCall
    session: OutgoingSession
    media_host: Callable[[SipFlow], str]

    def on_progress(self, status: int, description: bytes) -> None:
        """Note that the phone rings."""
        self.call.on_progress(status, description)

    def on_answered(self, description: bytes) -> None:
        """Give the call to the phone."""
        call, flow = self.call, self.session.invite.flow
        self._stop_others("answered by another phone")
        call.session, self.session.listener = self.session, call
        call.media.move((self.media_host(flow), call.media.port), flow.host)
        call.on_answered(description)

    def on_ended(self, status: int, reason: str) -> None:
        """End the call if no other phone rings, or if it is refused."""
        call = self.call
        if self.session not in call.ringing:
            return
        call.ringing.remove(self.session)
        if call.ringing and status < 600:
            return
        self._stop_others("refused at another phone")
        call.on_ended(status, reason)

    def _stop_others(self, reason: str) -> None:
        others, self.call.ringing = self.call.ringing, []
        for other in others:
            if other is not self.session:
                other.hang_up(reason)
