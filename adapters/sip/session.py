"""One call of SIP, once both sides are in a dialog: what either side asks of the other.

    incoming (``incoming``)    INVITE --> ring, answer --> ACK ----+
    outgoing (``outgoing``)    INVITE --> progress --> 2xx, ACK ---+--> up --> BYE
                                                                       re-INVITE, UPDATE, INFO, REFER, NOTIFY

The listener has the media, and makes every description. No clock, no sockets.

Source: RFC 3261, 13 to 15; RFC 3311 (UPDATE); RFC 3515 and 4488 (REFER); RFC 6086 (INFO).
"""

import random
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, Protocol

from .dialog import ALLOW, Dialog
from .digest import Credentials
from .headers import NameAddress, SipSyntaxError
from .message import SipRequest, SipResponse
from .requests import ChallengedRequest, SessionHost
from .session_timer import MIN_INTERVAL_S, IntervalTooSmall, SessionTimer, accept_interval, parse_interval
from .timers import Timer
from .transactions import T1, T2, TIMEOUT_S, ServerTransaction

SDP: Final = "application/sdp"
_SIPFRAG: Final = "message/sipfrag;version=2.0"
_SIGNAL: Final = re.compile(rb"\s*(?:Signal\s*=\s*)?([0-9*#A-Da-d]|1[01])\s*(?:[\r\n].*)?", re.DOTALL | re.I)
_FRAGMENT: Final = re.compile(rb"\s*SIP/2\.0 ([1-6]\d\d) ?([^\r\n]*)")
_GLARE_S: Final = {True: (2.1, 4.0), False: (0.0, 2.0)}  # by whether the call is ours: RFC 3261, 14.1
_CAPABILITIES: Final = (("allow", ALLOW), ("supported", "timer, replaces"))
_ALIVE_S: Final = 30.0  # from one question whether the peer knows the call to the next
_REFER_S: Final = 60.0  # until the peer has to say what became of a transfer


class SipRejected(Exception):
    """A listener refuses an offer, with a status and a reason."""

    def __init__(self, status: int, reason: str = "") -> None:
        super().__init__(reason or str(status))
        self.status = status
        self.reason = reason


class SipSessionListener(Protocol):
    """Takes what happens on a call. Methods must not block."""

    def on_progress(self, status: int, description: bytes) -> None:
        """An outgoing call rings (180), or has early media (183 with a description)."""

    def on_answered(self, description: bytes) -> None:
        """An outgoing call is answered."""

    def on_confirmed(self, description: bytes) -> None:
        """The peer has our answer; description: its answer, if the offer was ours."""

    def on_offer(self, offer: bytes) -> bytes:
        """Return the answer to an offer that changes the call; b"": an offer of ours is wanted.

        Raises SipRejected.
        """

    def on_key(self, digit: str) -> None:
        """The peer pressed a key: one of ``0-9 * # A-D``."""

    def on_refer(self, target: NameAddress) -> int:
        """Return the status for a REFER: 202, and ``notify_transfer`` follows, or a refusal."""

    def on_transfer(self, status: int, reason: str) -> None:
        """Take what became of our REFER: 100 to 199 so far, or a final status."""

    def on_ended(self, status: int, reason: str) -> None:
        """The call is over; status: of a call that was not answered, else 0."""


class RefusedListener:
    """Implements ``SipSessionListener`` for a call that its owner does not take."""

    def on_progress(self, status: int, description: bytes) -> None:
        """Do nothing."""

    def on_answered(self, description: bytes) -> None:
        """Do nothing."""

    def on_confirmed(self, description: bytes) -> None:
        """Do nothing."""

    def on_offer(self, offer: bytes) -> bytes:
        """Refuse."""
        raise SipRejected(488)

    def on_key(self, digit: str) -> None:
        """Do nothing."""

    def on_refer(self, target: NameAddress) -> int:
        """Refuse."""
        return 603

    def on_transfer(self, status: int, reason: str) -> None:
        """Do nothing."""

    def on_ended(self, status: int, reason: str) -> None:
        """Do nothing."""


class SessionState(Enum):
    """The states of a call."""

    NEW = "new"  # nothing is answered yet
    UP = "up"
    ENDED = "ended"


class RepeatedAnswer:
    """A 2xx of an INVITE, which is sent again until its ACK comes."""

    def __init__(
        self,
        host: SessionHost,
        transaction: ServerTransaction,
        response: SipResponse,
        on_lost: Callable[[], None],
    ) -> None:
        self.cseq = transaction.request.cseq
        self._host = host
        self._transaction = transaction
        self._encoded = bytes(response)
        self._interval_s = T1
        self._on_lost = on_lost
        transaction.respond(response)
        self._repeating = host.timers.set(T1, self._repeat)
        self._lost = host.timers.set(TIMEOUT_S, self._lose)

    def stop(self) -> None:
        """Send it no more."""
        self._repeating.cancel()
        self._lost.cancel()

    def _lose(self) -> None:
        self.stop()
        self._on_lost()

    def _repeat(self) -> None:
        self._transaction.send(self._encoded)
        self._interval_s = min(2 * self._interval_s, T2)
        self._repeating = self._host.timers.set(self._interval_s, self._repeat)


class SipSession:
    """What incoming and outgoing calls have in common.

    Args:
        on_over: called once, when nothing of the call is left.

    Attributes:
        listener: of the owner, which sets it when it takes the call.
        is_ours: whether this side made the call.
    """

    def __init__(
        self,
        host: SessionHost,
        credentials: Credentials | None,
        on_over: Callable[["SipSession"], None],
        *,
        is_ours: bool,
    ) -> None:
        self.listener: SipSessionListener = RefusedListener()
        self.state = SessionState.NEW
        self.dialog: Dialog | None = None
        self.is_ours = is_ours
        self._host = host
        self._credentials = credentials
        self._on_over = on_over
        self._timer = SessionTimer(host.timers, self.refresh, lambda: self.hang_up("no refresh"))
        self._answer: RepeatedAnswer | None = None  # whose ACK has not come
        self._offering: ChallengedRequest | None = None  # a re-INVITE of ours
        self._after_ack: Callable[[], None] = lambda: None
        self._retry: Timer | None = None
        self._alive: Timer | None = None
        self._description = b""  # our last one
        self._peer_allows: frozenset[str] = frozenset()
        self._refer_timeout: Timer | None = None

    # What our side asks

    def hang_up(self, reason: str = "", *, cause: int = 16) -> None:
        """End the call; cause: of Q.850."""
        if self.state is not SessionState.UP:
            return
        if self._answer is not None:  # RFC 3261, 15: no BYE before the ACK
            self._after_ack = lambda: self.hang_up(reason, cause=cause)
            return
        self.send("BYE", ("reason", f"Q.850;cause={cause}"))
        self.end(0, reason)

    def offer(self, description: bytes) -> None:
        """Send a re-INVITE with a description, later if one is under way; ``on_confirmed`` has the answer."""
        self._description = description
        if self.state is not SessionState.UP:
            return
        if self._offering is not None or self._answer is not None:
            self._offer_later(T1)
            return
        headers = self._timer_headers()
        self._offering = self._request("INVITE", headers, description, SDP, self._on_offered)

    def refresh(self) -> None:
        """Refresh the session."""
        if "update" in self._peer_allows:
            self._request("UPDATE", self._timer_headers(), b"", "", self._on_updated)
        else:
            self.offer(self._description)

    def refer(self, target: str, *headers: tuple[str, str]) -> None:
        """Ask the peer to call a target, a Refer-To value; ``on_transfer`` says what became of it."""
        assert self.dialog is not None
        referred = ("referred-by", f"<{NameAddress.parse(str(self.dialog.local)).uri}>")
        self._refer_timeout = self._host.timers.set(_REFER_S, lambda: self._conclude_refer(408, "no answer"))
        self._request("REFER", (("refer-to", target), referred, *headers), b"", "", self._on_referred)

    def notify_transfer(self, status: int, reason: str = "") -> None:
        """Tell the peer what became of its REFER."""
        is_over = status >= 200
        state = "terminated;reason=noresource" if is_over else "active;expires=60"
        headers = (("event", "refer"), ("subscription-state", state))
        body = f"SIP/2.0 {status} {reason or 'Trying'}\r\n".encode()
        self._request("NOTIFY", headers, body, _SIPFRAG, lambda request, response: None)

    def send_key(self, digit: str) -> None:
        """Send a key of 160 ms in an INFO, for peers without RFC 4733."""
        body = f"Signal={digit}\r\nDuration=160\r\n".encode()
        self.send("INFO", body=body, content_type="application/dtmf-relay")

    def send(self, method: str, *headers: tuple[str, str], body: bytes = b"", content_type: str = "") -> None:
        """Send a request whose answer matters only if the peer does not know the call."""
        self._request(method, headers, body, content_type, lambda request, response: None)

    # What the peer asks

    def receive(self, transaction: ServerTransaction) -> None:
        """Take a request inside the dialog."""
        assert self.dialog is not None
        request = transaction.request
        handler = _HANDLERS.get(request.method)
        if handler is None:
            transaction.respond(request.response(405, ("allow", ALLOW)))
        elif self.state is not SessionState.UP:
            transaction.respond(request.response(481))
        elif not self.dialog.takes(request):
            transaction.respond(request.response(500, ("retry-after", "1")))
        else:
            handler(self, transaction)

    def receive_ack(self, request: SipRequest) -> None:
        """Take the ACK of a 2xx."""
        if self._answer is None or request.cseq != self._answer.cseq:
            return
        self._answer.stop()
        self._answer = None
        self.listener.on_confirmed(request.body)
        self._after_ack()

    def keep_alive(self) -> None:
        """Ask now and then whether the peer still knows the call, which ends if it does not, or is gone."""
        self._alive = self._host.timers.set(_ALIVE_S, self._ask_alive)

    def _ask_alive(self) -> None:
        if self.state is SessionState.UP:
            if self._answer is None and self._offering is None:
                self.send("OPTIONS")
            self.keep_alive()

    def _on_invite(self, transaction: ServerTransaction) -> None:
        request = transaction.request
        if self._offering is not None:
            transaction.respond(request.response(491))
        elif self._answer is not None:
            transaction.respond(request.response(500, ("retry-after", "1")))
        else:
            self._renegotiate(transaction, repeats=True)

    def _on_update(self, transaction: ServerTransaction) -> None:
        request = transaction.request
        if request.body and (self._offering is not None or self._answer is not None):
            transaction.respond(request.response(491))
        else:
            self._renegotiate(transaction, repeats=False)

    def _renegotiate(self, transaction: ServerTransaction, *, repeats: bool) -> None:
        assert self.dialog is not None
        request = transaction.request
        if (refusal := refuse_body(request)) is not None:
            transaction.respond(refusal)
            return
        try:
            interval = accept_interval(request.headers)
            wants_description = bool(request.body) or repeats
            body = self.listener.on_offer(request.body) if wants_description else b""
        except IntervalTooSmall:
            transaction.respond(request.response(422, ("min-se", str(MIN_INTERVAL_S))))
            return
        except SipRejected as error:
            warning = ("warning", f'399 vivavoce "{error.reason}"')
            transaction.respond(request.response(error.status, *([warning] if error.reason else [])))
            return
        self.dialog.refresh_target(request.headers)
        self._description = body or self._description
        headers = self.answer_headers(request, interval is not None)
        response = request.response(200, *headers, body=body, content_type=SDP if body else "")
        self._timer.start(interval, as_uac=False)
        if repeats:
            self.answer_with(transaction, response)
        else:
            transaction.respond(response)

    def answer_headers(self, request: SipRequest, has_timer: bool) -> tuple[tuple[str, str], ...]:
        """Return the headers of a 2xx to an INVITE or UPDATE."""
        assert self.dialog is not None
        headers = [("contact", f"<{self.dialog.contact}>"), *_CAPABILITIES]
        if has_timer and (interval := accept_interval(request.headers)) is not None:
            headers.append(interval.header())
            if interval.refresher == "uac":
                headers.append(("require", "timer"))
        return tuple(headers)

    def answer_with(self, transaction: ServerTransaction, response: SipResponse) -> None:
        """Send a 2xx of an INVITE until its ACK comes; without one, the call ends."""
        self._answer = RepeatedAnswer(self._host, transaction, response, self._on_ack_lost)

    def _on_ack_lost(self) -> None:
        self._answer = None
        self.hang_up("the answer was not acknowledged")

    def _on_bye(self, transaction: ServerTransaction) -> None:
        transaction.respond(transaction.request.response(200))
        self.end(0, "the caller hung up")

    def _on_info(self, transaction: ServerTransaction) -> None:
        request = transaction.request
        kind = request.headers.get("content-type").partition(";")[0].strip().lower()
        if kind not in ("application/dtmf-relay", "application/dtmf"):
            status = 415 if request.body else 200
            transaction.respond(request.response(status, ("accept", "application/dtmf-relay")))
            return
        found = _SIGNAL.fullmatch(request.body)
        transaction.respond(request.response(200 if found else 400))
        if found is not None:
            digit = found[1].decode().upper()
            self.listener.on_key({"10": "*", "11": "#"}.get(digit, digit))

    def _on_refer(self, transaction: ServerTransaction) -> None:
        request = transaction.request
        try:
            (value,) = request.headers.values("refer-to")
            target = NameAddress.parse(value)
        except (ValueError, SipSyntaxError):
            transaction.respond(request.response(400))
            return
        status = self.listener.on_refer(target)
        transaction.respond(request.response(status))
        if status == 202:
            self.notify_transfer(100)

    def _on_notify(self, transaction: ServerTransaction) -> None:
        request = transaction.request
        if request.headers.get("event").partition(";")[0].strip().lower() != "refer":
            transaction.respond(request.response(489))
            return
        transaction.respond(request.response(200))
        found = _FRAGMENT.match(request.body)
        is_over = request.headers.get("subscription-state").lower().startswith("terminated")
        if found is not None and int(found[1]) >= 200:
            self._conclude_refer(int(found[1]), found[2].decode("utf-8", "replace"))
        elif is_over:
            self._conclude_refer(500, "the transfer ended without a result")
        elif found is not None:
            self.listener.on_transfer(int(found[1]), "")

    def _on_options(self, transaction: ServerTransaction) -> None:
        transaction.respond(transaction.request.response(200, *_CAPABILITIES, ("accept", SDP)))

    # The answers of the peer

    def _request(
        self,
        method: str,
        headers: tuple[tuple[str, str], ...],
        body: bytes,
        content_type: str,
        on_final: Callable[[SipRequest, SipResponse], None],
    ) -> ChallengedRequest:
        dialog = self.dialog
        assert dialog is not None
        flow = dialog.next_hop

        def take(request: SipRequest, response: SipResponse) -> None:
            if response.status < 200:
                return
            on_final(request, response)
            if response.status in (408, 481) and method != "BYE":
                self.end(0, "the peer does not know the call any more")

        def fail(reason: str) -> None:
            if method == "INVITE":
                self._offering = None
            if method != "BYE":
                self.hang_up(reason)

        def make(more: tuple[tuple[str, str], ...]) -> SipRequest:
            sent_by = self._host.sent_by(flow)
            return dialog.request(method, sent_by, *headers, *more, body=body, content_type=content_type)

        return ChallengedRequest(self._host, make, flow, self._credentials, take, fail)

    def _on_offered(self, request: SipRequest, response: SipResponse) -> None:
        self._offering = None
        if 200 <= response.status < 300:
            self._take_answer(request, response)
        elif response.status == 491:
            self._offer_later(random.uniform(*_GLARE_S[self.is_ours]))

    def _take_answer(self, request: SipRequest, response: SipResponse) -> None:
        """Acknowledge a 2xx of an INVITE of ours, and take what it agreed on."""
        assert self.dialog is not None
        self.dialog.refresh_target(response.headers)
        self.acknowledge(request.cseq)
        self._peer_allows = response.headers.tokens("allow") or self._peer_allows
        self._timer.start(parse_interval(response.headers), as_uac=True)
        if self.state is SessionState.UP:
            self.listener.on_confirmed(response.body)

    def acknowledge(self, cseq: int) -> None:
        """Send the ACK of a 2xx."""
        assert self.dialog is not None
        flow = self.dialog.next_hop
        ack = self.dialog.request("ACK", self._host.sent_by(flow), cseq=cseq)
        self._host.send(bytes(ack), flow)

    def _on_updated(self, request: SipRequest, response: SipResponse) -> None:
        if response.status < 300:
            self._timer.start(parse_interval(response.headers), as_uac=True)
        elif response.status in (405, 501):
            self._peer_allows = frozenset()
            self.refresh()
        elif response.status == 491:
            self._retry = self._host.timers.set(random.uniform(*_GLARE_S[self.is_ours]), self.refresh)

    def _on_referred(self, request: SipRequest, response: SipResponse) -> None:
        if response.status >= 300:
            self._conclude_refer(response.status, response.reason)

    def _conclude_refer(self, status: int, reason: str) -> None:
        if self._refer_timeout is not None:
            self._refer_timeout.cancel()
            self._refer_timeout = None
            self.listener.on_transfer(status, reason)

    def _offer_later(self, after_s: float) -> None:
        if self._retry is not None:
            self._retry.cancel()
        self._retry = self._host.timers.set(after_s, lambda: self.offer(self._description))

    def _timer_headers(self) -> tuple[tuple[str, str], ...]:
        headers = list(_CAPABILITIES)
        if (interval := self._timer.interval) is not None:
            refresher = "uac" if self._timer.we_refresh else "uas"
            headers.append(("session-expires", f"{interval.seconds};refresher={refresher}"))
        return tuple(headers)

    def end(self, status: int, reason: str) -> None:
        """End the call here; no error if it has ended."""
        if self.state is SessionState.ENDED:
            return
        self.state = SessionState.ENDED
        self._timer.stop()
        for timer in (self._retry, self._refer_timeout, self._alive):
            if timer is not None:
                timer.cancel()
        if self._answer is not None:
            self._answer.stop()
        self._on_over(self)
        self.listener.on_ended(status, reason)


_HANDLERS: Final[Mapping[str, Callable[[SipSession, ServerTransaction], None]]] = {
    "INVITE": SipSession._on_invite,
    "UPDATE": SipSession._on_update,
    "BYE": SipSession._on_bye,
    "INFO": SipSession._on_info,
    "REFER": SipSession._on_refer,
    "NOTIFY": SipSession._on_notify,
    "OPTIONS": SipSession._on_options,
}


def refuse_body(request: SipRequest) -> SipResponse | None:
    """Return the refusal of a body that is no description of a session; None: it is one, or there is none."""
    kind = request.headers.get("content-type").partition(";")[0].strip().lower()
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if request.body and (kind != SDP or encoding != "identity"):
        return request.response(415, ("accept", SDP), ("accept-encoding", "identity"))
    return None
