"""One call over SIP: its session, its media and its end, whichever comes first."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final, Protocol
from uuid import uuid4

from .....adapters.rtp.connection import RtpOptions
from .....adapters.sip.headers import NameAddress
from .....adapters.sip.outgoing import OutgoingSession
from .....adapters.sip.session import SipRejected, SipSession
from ...agents.agent import Agent
from ...call import Call
from ...kits.rtp_calls import RtpCallServer, RtpReservation
from .joined_calls import JoinedCalls
from .media import MediaNegotiation

logger = logging.getLogger(__name__)

_KEY_S: Final = 0.25  # from one key in an INFO to the next


class SipCallHost(Protocol):
    """The server of a call."""

    def on_answered(self, call: "SipCall") -> None:
        """Note that an outgoing call is answered, and costs from now on."""

    def on_over(self, call: "SipCall") -> None:
        """Forget a call."""

    def on_refer(self, call: "SipCall", target: NameAddress) -> int:
        """Return the status for a peer that wants its call transferred."""


class SipCall:
    """A call, from the INVITE to its end: a ``SipSessionListener``.

    Args:
        agent: of the call, instead of that of all calls.

    Attributes:
        on_progress_seen, on_up, on_failed: called when an outgoing call rings, is answered, and at the end of
            each, with the status that says why it was not answered, or 0.
        ringing: the phones of a user who has several, until one of them has answered.
    """

    def __init__(
        self,
        host: SipCallHost,
        session: SipSession,
        rtp: RtpCallServer,
        reservation: RtpReservation,
        media: MediaNegotiation,
        *,
        agent: Agent | None = None,
        call_id: str = "",
    ) -> None:
        self.session = session
        self.ringing: list[OutgoingSession] = []
        self.call_id = call_id or str(uuid4())
        self.call: Call | None = None  # from when its media are open
        self.media = media
        self.on_progress_seen: Callable[[int, bytes], None] = lambda status, description: None
        self.on_up: Callable[[Call], None] = lambda call: None
        self.on_failed: Callable[[int], None] = lambda status: None
        self._host = host
        self._rtp = rtp
        self._reservation = reservation
        self._agent = agent
        self._watching: asyncio.Task[None] | None = None
        self._transfer: asyncio.Future[tuple[int, str]] | None = None
        self._ended = ""
        self.joined: tuple[JoinedCalls, int] | None = None  # with another caller, and as which of the two
        self.was_answered = False

    def open_media(self) -> Call:
        """Open the media as they are agreed on; raises OSError."""
        agreed = self.media.agreed
        assert agreed is not None
        self.call = self._rtp.open(self._reservation, agreed.rtp, call_id=self.call_id, agent=self._agent)
        self.was_answered = True
        self.session.keep_alive()
        self.call.key_sender = self._send_keys
        self._watching = asyncio.create_task(self._watch(self.call))
        return self.call

    def hang_up(self, reason: str) -> None:
        """End the call; one that is not answered stops ringing everywhere."""
        for session in (self.session, *self.ringing):
            session.hang_up(reason)

    async def _watch(self, call: Call) -> None:
        """End the session when the call has ended here."""
        await call.end.wait_closed()
        if self.joined is None:
            self.session.hang_up(self._ended or "the call ended")

    async def wait_over(self) -> None:
        """Wait until nothing of the call is left."""
        if self._watching is not None:
            await self._watching

    async def _send_keys(self, digits: str) -> None:
        """Press keys of the peer: in RTP if it takes them there, else in INFO."""
        agreed = self.media.agreed
        if agreed is not None and agreed.rtp.key_type is not None:
            await self._reservation.leg.send_keys(digits)
            return
        for digit in digits:
            self.session.send_key(digit)
            await asyncio.sleep(_KEY_S)

    def take_media(self) -> tuple[socket.socket, RtpOptions]:
        """Return the socket and the options of a call that is being joined with another one."""
        assert self.media.agreed is not None
        return self._reservation.sock.dup(), self.media.agreed.rtp

    async def refer(self, target: str, *headers: tuple[str, str]) -> tuple[int, str]:
        """Ask the peer to call a target; return the final status and the reason of that call."""
        self._transfer = asyncio.get_running_loop().create_future()
        self.session.refer(target, *headers)
        try:
            return await self._transfer
        finally:
            self._transfer = None

    # SipSessionListener

    def on_progress(self, status: int, description: bytes) -> None:
        """Note that an outgoing call rings."""
        self.on_progress_seen(status, description)

    def on_answered(self, description: bytes) -> None:
        """Open the media of an outgoing call."""
        self._open_with(description)
        if self.call is not None:
            self._host.on_answered(self)
            self.on_up(self.call)

    def on_confirmed(self, description: bytes) -> None:
        """Open the media of a call whose offer was ours, or change them."""
        if not description:
            if self.call is None:
                self._fail("got no description of the media")
            return
        if self.call is None:
            self._open_with(description)
        else:
            try:
                self.media.accept(description)
            except SipRejected as error:
                self._fail(error.reason)
                return
            self._change()

    def on_offer(self, offer: bytes) -> bytes:
        """Answer a change of the media."""
        if not offer:
            return self.media.offer()
        answer = self.media.answer(offer)
        self._change()
        return answer

    def on_key(self, digit: str) -> None:
        """Take a key that came in an INFO."""
        if self.call is not None:
            self.call.listening.press(digit)

    def on_refer(self, target: NameAddress) -> int:
        """Answer a peer that wants its call transferred."""
        return self._host.on_refer(self, target)

    def on_transfer(self, status: int, reason: str) -> None:
        """Note what became of a transfer."""
        if status >= 200 and self._transfer is not None and not self._transfer.done():
            self._transfer.set_result((status, reason))

    def on_ended(self, status: int, reason: str) -> None:
        """End the call: its session is over."""
        self._ended = reason
        self.on_transfer(487, "the caller hung up")
        if self.call is not None:
            self.call.end.hang_up(reason)
        else:
            self._rtp.cancel(self._reservation, reason)
        self.on_failed(status)
        self._host.on_over(self)

    def _open_with(self, description: bytes) -> None:
        try:
            self.media.accept(description)
            self.open_media()
        except SipRejected as error:
            self._fail(error.reason)
        except OSError as error:
            self._fail(f"no media: {error}")

    def _change(self) -> None:
        """Have the media be as they are agreed on now."""
        if self.media.agreed is None or self.call is None:
            return
        if self.joined is not None:
            joined, number = self.joined
            joined.change(number, self.media.agreed.rtp)
        else:
            self._rtp.change(self._reservation, self.media.agreed.rtp)
            self.call.set_hold(self.media.agreed.is_held)

    def _fail(self, reason: str) -> None:
        logger.warning("Call %s over SIP ended: %s", self.call_id, reason)
        self.session.hang_up(reason, cause=88)
