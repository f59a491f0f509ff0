"""An endpoint of SIP without I/O: takes datagrams and the time, gives datagrams, calls and registrations.

    datagram --> message --> transaction --> in a dialog? --> its call
                   |              '-> new request --> admitted by its user? --> INVITE, REGISTER, OPTIONS
                   '-> no valid message: 400 to peers that are admitted, silence to strangers

A request that begins something is answered only if the user of the endpoint admits its sender; requests
inside a dialog need its tags, which cannot be guessed.
"""

import re
import secrets
from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from .dialog import ALLOW, new_tag
from .digest import Credentials
from .headers import SipSyntaxError, SipUri
from .incoming import IncomingSession
from .message import SipProtocolError, SipRequest, SipResponse, parse_message
from .outgoing import OutgoingInvite, OutgoingSession
from .reliable_progress import RELIABLE
from .session import SDP, SessionState, SipSession, refuse_body
from .session_timer import MIN_INTERVAL_S, IntervalTooSmall, accept_interval
from .timers import TimerQueue
from .transactions import ClientTransaction, Send, ServerTransaction, SipFlow, Transactions

_SUPPORTED: Final = frozenset(("timer", "replaces", RELIABLE))
_MAX_TRANSACTIONS: Final = 4096


class RequestVerdict(Enum):
    """What becomes of a request that begins something."""

    SILENCE = "silence"  # its sender is a stranger: it gets no answer
    CHALLENGE = "challenge"  # it must prove who it is
    BUSY = "busy"  # 503: more than its sender may ask for
    ADMITTED = "admitted"


class SipEndpointUser(Protocol):
    """Decides who may do what, and takes the calls."""

    def admit(self, request: SipRequest, flow: SipFlow) -> RequestVerdict:
        """Say what becomes of a request that begins something. The request may be no valid one."""

    def challenges(self, request: SipRequest) -> list[str]:
        """Return the values of WWW-Authenticate for a request."""

    def on_call(self, session: IncomingSession) -> None:
        """Take a call: set its listener, then ring, answer or reject it, now or later."""

    def on_register(self, transaction: ServerTransaction) -> None:
        """Answer a REGISTER."""


class SipEndpoint:
    """All transactions and calls of one address.

    Args:
        send: sends bytes on a flow; must not block.
        local: returns our address, host and port, as the peer of a flow must see it.
        timers: advanced by the owner.
    """

    def __init__(
        self,
        user: SipEndpointUser,
        send: Send,
        local: Callable[[SipFlow], tuple[str, int]],
        timers: TimerQueue,
    ) -> None:
        self.timers = timers
        self.send = send
        self._user = user
        self._local = local
        self._transactions = Transactions(self.timers, send, self, _MAX_TRANSACTIONS)
        self._sessions: dict[tuple[str, str, str], SipSession] = {}  # by Call-ID, our tag, the peer's tag
        self._offered: dict[tuple[str, ...], IncomingSession] = {}  # not answered, by their transactions
        self._calling: set[tuple[str, str]] = set()  # Call-ID and tag of calls of ours

    # Used by the owner

    def receive(self, data: bytes, flow: SipFlow) -> str:
        """Take a datagram or a message of a connection; return what was wrong with it, "" if nothing."""
        try:
            message = parse_message(data)
        except SipProtocolError as error:
            self._answer_fault(error, flow)
            return str(error)
        if isinstance(message, SipRequest):
            self._receive_request(message, flow)
        else:
            self._transactions.receive(message, flow)
        return ""

    def lose(self, flow: SipFlow) -> None:
        """Note that a connection is lost."""
        self._transactions.lose(flow)

    def call(
        self,
        make: Callable[[SipUri, str, str], OutgoingInvite],
        flow: SipFlow,
        credentials: Credentials | None,
        user: str = "",
    ) -> OutgoingSession:
        """Return a call of ours, to be started.

        make: takes our Contact, a Call-ID and a tag. user: of the Contact.
        """
        invite = make(self.contact(flow, user), secrets.token_hex(16), new_tag())
        key = (invite.call_id, invite.tag)
        self._calling.add(key)

        def forget(session: SipSession) -> None:
            self._calling.discard(key)
            self._remove(session)

        return OutgoingSession(self, invite, credentials, forget, self._add)

    def contact(self, flow: SipFlow, user: str = "") -> SipUri:
        """Return the URI under which the peer of a flow reaches us."""
        host, port = self._local(flow)
        host = f"[{host}]" if ":" in host else host
        parameters = {} if flow.transport == "udp" else {"transport": flow.transport}
        return SipUri(host, user, port, parameters=parameters)

    @property
    def sessions(self) -> int:
        """Calls that are up."""
        return len(self._sessions)

    # Used by sessions and registrations

    def sent_by(self, flow: SipFlow) -> str:
        """Return our address for Via."""
        host, port = self._local(flow)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def begin(
        self,
        request: SipRequest,
        flow: SipFlow,
        on_response: Callable[[SipResponse], None],
        on_failed: Callable[[str], None],
    ) -> ClientTransaction:
        """Send a request."""
        return self._transactions.begin(request, flow, on_response, on_failed)

    # Requests of peers

    def _receive_request(self, request: SipRequest, flow: SipFlow) -> None:
        if not self._transactions.is_known(request) and self._find(request) is None:
            if request.method == "ACK":
                return
            admission = self._user.admit(request, flow)
            if admission is not RequestVerdict.ADMITTED:
                self._refuse(request, flow, admission)
                return
        self._transactions.receive(request, flow)

    def _refuse(self, request: SipRequest, flow: SipFlow, admission: RequestVerdict) -> None:
        """Answer without a transaction: no state is kept for those who are not admitted."""
        if admission is RequestVerdict.CHALLENGE:
            headers = tuple(("www-authenticate", value) for value in self._user.challenges(request))
            self._respond_statelessly(request, flow, 401, *headers)
        elif admission is RequestVerdict.BUSY:
            self._respond_statelessly(request, flow, 503, ("retry-after", "30"))

    def _respond_statelessly(
        self, request: SipRequest, flow: SipFlow, status: int, *headers: tuple[str, str], reason: str = ""
    ) -> None:
        tag = f"{hash(request.call_id) & 0xFFFFFFFF:08x}" if request.headers.get("to") else ""
        try:
            transaction = ServerTransaction(request, flow, (), self._transactions)
        except SipSyntaxError:  # its Via cannot be read: back to where it came from
            self.send(bytes(request.response(status, *headers, to_tag=tag, reason=reason)), flow)
            return
        response = transaction.request.response(status, *headers, to_tag=tag, reason=reason)
        transaction.send(bytes(response))

    def _answer_fault(self, error: SipProtocolError, flow: SipFlow) -> None:
        request = error.request
        if request is None:
            return
        try:
            if self._user.admit(request, flow) is RequestVerdict.ADMITTED:
                reason = re.sub(r"[^ -~]", "?", str(error))
                reason = f"Bad Request: {reason}" if error.status == 400 else ""
                self._respond_statelessly(request, flow, error.status, reason=reason)
        except SipSyntaxError:
            return

    def _find(self, request: SipRequest) -> SipSession | None:
        return self._sessions.get((request.call_id, request.to.tag, request.from_.tag))

    def on_request(self, transaction: ServerTransaction) -> None:
        """Take a request that begins a transaction."""
        request = transaction.request
        session = self._find(request)
        if request.method == "ACK":
            if session is not None:
                session.receive_ack(request)
        elif request.method == "CANCEL":
            self._cancel(transaction)
        elif session is not None:
            session.receive(transaction)
        elif request.to.tag and "replaces" not in request.headers:
            transaction.respond(request.response(481))
        else:
            self._begin(transaction)

    def _cancel(self, transaction: ServerTransaction) -> None:
        request = transaction.request
        invite = self._transactions.find_invite(request)
        if invite is None:
            transaction.respond(request.response(481))
            return
        transaction.respond(request.response(200))
        if (session := self._offered.get(invite.key)) is not None:
            session.cancel()

    def _begin(self, transaction: ServerTransaction) -> None:
        request = transaction.request
        unsupported = request.headers.tokens("require") - _SUPPORTED
        if unsupported:
            transaction.respond(request.response(420, ("unsupported", ", ".join(sorted(unsupported)))))
        elif request.method == "INVITE":
            self._begin_call(transaction)
        elif request.method == "REGISTER":
            self._user.on_register(transaction)
        elif request.method == "OPTIONS":
            headers = (("allow", ALLOW), ("accept", SDP), ("supported", "timer, replaces"))
            transaction.respond(request.response(200, *headers, to_tag=new_tag()))
        elif request.method in ("BYE", "INFO", "UPDATE", "NOTIFY"):
            transaction.respond(request.response(481, to_tag=new_tag()))
        elif request.method == "REFER":
            transaction.respond(request.response(403, to_tag=new_tag()))  # only inside a call
        else:
            is_known = request.method in ("MESSAGE", "SUBSCRIBE", "PUBLISH", "PRACK")
            transaction.respond(
                request.response(405 if is_known else 501, ("allow", ALLOW), to_tag=new_tag())
            )

    def _begin_call(self, transaction: ServerTransaction) -> None:
        request = transaction.request
        if (refusal := refuse_body(request)) is not None:
            transaction.respond(refusal)
            return
        if not _takes_description(request):
            transaction.respond(request.response(406, to_tag=new_tag()))
            return
        if (request.call_id, request.from_.tag) in self._calling:
            transaction.respond(request.response(482, to_tag=new_tag()))  # a call of ours came back
            return
        try:
            accept_interval(request.headers)
            replaced = self._replaced(request)
            contact = self.contact(transaction.flow, SipUri.parse(request.uri).user)
            session = IncomingSession(self, transaction, contact, None, self._remove, replaced)
        except IntervalTooSmall:
            transaction.respond(request.response(422, ("min-se", str(MIN_INTERVAL_S)), to_tag=new_tag()))
        except SipSyntaxError as error:
            transaction.respond(request.response(400, reason=f"Bad Request: {error}", to_tag=new_tag()))
        except LookupError:
            transaction.respond(request.response(481, to_tag=new_tag()))
        else:
            self._offered[transaction.key] = session
            self._add(session)
            session.trying()
            self._user.on_call(session)

    def _replaced(self, request: SipRequest) -> SipSession | None:
        """Return the call that an INVITE replaces; raises LookupError if it is not up."""
        value = request.headers.get("replaces")
        if not value:
            return None
        call_id, _, parameters = value.partition(";")
        tags = dict(part.strip().partition("=")[::2] for part in parameters.split(";"))
        session = self._sessions.get((call_id.strip(), tags.get("to-tag", ""), tags.get("from-tag", "")))
        if session is None or session.state is not SessionState.UP:
            raise LookupError(value)
        return session

    def _add(self, session: SipSession) -> None:
        assert session.dialog is not None
        self._sessions[session.dialog.key] = session

    def _remove(self, session: SipSession) -> None:
        if session.dialog is not None and self._sessions.get(session.dialog.key) is session:
            # Repeated requests of the dialog are answered for a while.
            self.timers.set(5.0, lambda: self._forget(session))
        for key in [key for key, offered in self._offered.items() if offered is session]:
            del self._offered[key]

    def _forget(self, session: SipSession) -> None:
        assert session.dialog is not None
        self._sessions.pop(session.dialog.key, None)


def _takes_description(request: SipRequest) -> bool:
    """Return whether the answer to an INVITE may have a description of the session."""
    accepted = {value.partition(";")[0].strip() for value in request.headers.tokens("accept")}
    return not accepted or not accepted.isdisjoint({SDP, "application/*", "*/*"})
