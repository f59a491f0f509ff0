"""A call of ours, from the INVITE to the dialog.

    INVITE --> 1xx --> 2xx, ACK --> up
           '-> 3xx: the owner says whether, and where, another INVITE of the same call goes
           '-> 4xx to 6xx: it is over, with that status
    cancel --> CANCEL after the first 1xx --> 487; a 2xx that crosses it is acknowledged, and ended
    no answer in time --> the same, and 480 for the owner

If a proxy asks several phones, and two answer, the second is acknowledged, and ended. An answer may have its
description in a 1xx before it (``reliable_progress``).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from .dialog import ALLOW, MAX_FORWARDS, Dialog
from .digest import Credentials
from .headers import NameAddress, SipSyntaxError, SipUri
from .message import SipHeaders, SipRequest, SipResponse
from .reliable_progress import RELIABLE, ReliableProgress
from .requests import ChallengedRequest, SessionHost
from .session import SDP, SessionState, SipSession
from .session_timer import DEFAULT_INTERVAL_S
from .transactions import SipFlow, new_branch

_NO_LIMIT: Final = 10.0**9
_MAX_REDIRECTS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingInvite:
    """What an INVITE of ours says."""

    target: SipUri  # the Request-URI
    called: SipUri | None = None  # To; None: the target
    caller: NameAddress  # From, without a tag
    contact: SipUri
    flow: SipFlow  # where it goes
    description: bytes
    routes: tuple[str, ...] = ()  # an outbound proxy
    headers: tuple[tuple[str, str], ...] = ()  # Replaces, P-Asserted-Identity and others
    call_id: str = ""
    tag: str = ""
    interval_s: int = field(default=DEFAULT_INTERVAL_S)


class OutgoingSession(SipSession):
    """A call that we make; it begins with ``start``, after the listener is set.

    Attributes:
        on_redirect: takes the addresses to which a 3xx leads, the best one first and none that was tried.
            It returns whether it will ``follow`` one or ``end`` the call; both it may also do later.
        on_unreachable: called if the server does not answer, or answers 503; returns whether it has called
            ``follow`` with another server.
    """

    def __init__(
        self,
        host: SessionHost,
        invite: OutgoingInvite,
        credentials: Credentials | None,
        on_over: Callable[[SipSession], None],
        on_dialog: Callable[["OutgoingSession"], None],
    ) -> None:
        super().__init__(host, credentials, on_over, is_ours=True)
        self.invite = invite
        self._on_dialog = on_dialog
        self._cseq = 0
        self._interval_s = invite.interval_s
        self._description = invite.description
        self._inviting: ChallengedRequest | None = None
        self._has_progress = False
        self._cancel_status = 0  # that a call ends with which we cancel
        self._progress = ReliableProgress(host, credentials)
        self.on_redirect: Callable[[list[SipUri]], bool] = lambda addresses: False
        self.on_unreachable: Callable[[], bool] = lambda: False
        self._is_redirected = False  # and the owner decides
        self._tried = {str(invite.target)}

    def start(self, *, max_ring_s: float = _NO_LIMIT) -> None:
        """Send the INVITE; it is cancelled if it is not answered in time."""
        if max_ring_s < _NO_LIMIT:
            self._retry = self._host.timers.set(max_ring_s, lambda: self._give_up(480, "no answer"))
        self._inviting = ChallengedRequest(
            self._host,
            self._make_invite,
            self.invite.flow,
            self._credentials,
            self._receive,
            lambda reason: self._fail(408, reason),
        )

    def hang_up(self, reason: str = "", *, cause: int = 16) -> None:
        """End the call; before the answer, cancel it."""
        if self.state is SessionState.NEW:
            self._give_up(487, reason)
        else:
            super().hang_up(reason, cause=cause)

    def end(self, status: int, reason: str) -> None:
        """End the call; one that was cancelled says why, unless the peer refused it meanwhile."""
        if self._cancel_status and status in (0, 408, 487):
            status = self._cancel_status
        super().end(status, reason)

    def follow(self, invite: OutgoingInvite, credentials: Credentials | None) -> None:
        """Go on at another target, after ``on_redirect``; no error if the call is over."""
        if self.state is not SessionState.NEW:
            return
        called = self.invite.called or self.invite.target
        self.invite = replace(
            invite, called=called, call_id=self.invite.call_id, tag=self.invite.tag, routes=()
        )
        self._tried.add(str(invite.target))
        self._description = invite.description
        self._credentials = credentials
        self._progress = ReliableProgress(self._host, credentials)
        self._is_redirected = self._has_progress = False
        self.start()

    def _give_up(self, status: int, reason: str) -> None:
        if self.state is not SessionState.NEW or self._cancel_status:
            return
        self._cancel_status = status
        if self._is_redirected:
            self.end(status, reason)
        elif self._has_progress:
            self._cancel()

    def _make_invite(self, more: tuple[tuple[str, str], ...]) -> SipRequest:
        invite = self.invite
        self._cseq += 1
        transport = invite.flow.transport.upper()
        caller = NameAddress(invite.caller.uri, invite.caller.display_name, {"tag": invite.tag})
        pairs = [
            ("via", f"SIP/2.0/{transport} {self._host.sent_by(invite.flow)};rport;branch={new_branch()}"),
            *(("route", route) for route in invite.routes),
            ("max-forwards", MAX_FORWARDS),
            ("from", str(caller)),
            ("to", f"<{invite.called or invite.target}>"),
            ("call-id", invite.call_id),
            ("cseq", f"{self._cseq} INVITE"),
            ("contact", f"<{invite.contact}>"),
            ("allow", ALLOW),
            ("supported", f"timer, replaces, {RELIABLE}"),
            ("session-expires", str(self._interval_s)),
            *invite.headers,
            *more,
        ]
        if invite.description:
            pairs.append(("content-type", SDP))
        return SipRequest("INVITE", str(invite.target), SipHeaders(tuple(pairs)), invite.description)

    def _receive(self, request: SipRequest, response: SipResponse) -> None:
        if 200 <= response.status < 300:
            self._accept(request, response)
        elif self.state is not SessionState.NEW:
            return
        elif response.status < 200:
            self._note_progress(request, response)
        elif response.status == 422:
            self._invite_again(response.headers.get("min-se"))
        elif response.status < 400 and self._redirect(response):
            return
        elif response.status == 503:
            self._fail(503, response.reason)
        else:
            self.end(response.status, response.reason)

    def _fail(self, status: int, reason: str) -> None:
        """End the call, unless the owner goes on at another server."""
        is_open = self.state is SessionState.NEW and not self._cancel_status
        if not (is_open and self.on_unreachable()):
            self.end(status, reason)

    def _invite_again(self, min_interval: str) -> None:
        wanted = re.fullmatch(r"(\d{1,5})\s*(?:;.*)?", min_interval)
        if wanted is None or int(wanted[1]) <= self._interval_s:
            self.end(422, "the peer asks for no interval that can be")
            return
        self._interval_s = int(wanted[1])
        self.start()

    def _redirect(self, response: SipResponse) -> bool:
        """Have the owner decide where a 3xx leads; return whether the call goes on."""
        addresses = [uri for uri in _addresses_of(response) if str(uri) not in self._tried]
        if self._cancel_status or not addresses or len(self._tried) > _MAX_REDIRECTS:
            return False
        self._is_redirected = True
        goes_on = self.on_redirect(addresses)
        self._is_redirected = self._is_redirected and goes_on
        return goes_on

    def _note_progress(self, request: SipRequest, response: SipResponse) -> None:
        if not self._has_progress:
            self._has_progress = True
            if self._cancel_status:
                self._cancel()
        if response.status == 100 or not self._progress.take(
            request, response, lambda: self._dialog_of(request, response)
        ):
            return
        if not self._cancel_status:
            self.listener.on_progress(response.status, response.body)

    def _accept(self, request: SipRequest, response: SipResponse) -> None:
        try:
            dialog = self._dialog_of(request, response)
        except SipSyntaxError as error:
            self.end(500, str(error))
            return
        if self.dialog is not None:
            if dialog.key == self.dialog.key:
                self.acknowledge(request.cseq)  # ours was lost
            else:
                self._leave(dialog, request.cseq)  # another phone answered too
            return
        if self.state is not SessionState.NEW:
            self._leave(dialog, request.cseq)
            return
        self.dialog = dialog
        early = self._progress.adopt(dialog)
        self._on_dialog(self)
        if self._retry is not None:
            self._retry.cancel()
        self._take_answer(request, response)
        self.state = SessionState.UP
        if self._cancel_status:
            self.hang_up("cancelled")
            return
        self.listener.on_answered(response.body or early)

    def _dialog_of(self, request: SipRequest, response: SipResponse) -> Dialog:
        return Dialog.of_response(request, response, self.invite.flow, self.invite.contact)

    def _leave(self, dialog: Dialog, cseq: int) -> None:
        flow = dialog.next_hop
        sent_by = self._host.sent_by(flow)
        self._host.send(bytes(dialog.request("ACK", sent_by, cseq=cseq)), flow)
        bye = dialog.request("BYE", sent_by)
        self._host.begin(bye, flow, lambda response: None, lambda reason: None)

    def _cancel(self) -> None:
        assert self._inviting is not None
        request = self._inviting.request
        kept = {"from", "to", "call-id", "route", "max-forwards"}
        pairs = [pair for pair in request.headers.pairs if pair[0] in kept]
        headers = SipHeaders((("via", str(request.via)), *pairs, ("cseq", f"{request.cseq} CANCEL")))
        cancel = SipRequest("CANCEL", request.uri, headers)
        # If the peer never ends the INVITE, the call is over all the same.
        self._retry = self._host.timers.set(32, lambda: self.end(487, "cancelled"))
        self._host.begin(cancel, self.invite.flow, lambda response: None, lambda reason: None)


def _addresses_of(response: SipResponse) -> list[SipUri]:
    """Return the SIP addresses of a redirect, by their weights (q), without those that cannot be read."""
    weighed = []
    for value in response.headers.values("contact"):
        try:
            contact = NameAddress.parse(value)
            uri = contact.sip_uri
        except SipSyntaxError:
            continue
        q = contact.parameters.get("q") or ""
        weighed.append((-float(q) if re.fullmatch(r"[01](\.\d{0,3})?", q) else -1.0, uri))
    return [uri for _, uri in sorted(weighed, key=lambda each: each[0])]
