"""A call of a peer, from its INVITE to the dialog."""

from collections.abc import Callable

from .dialog import ALLOW, Dialog, new_tag
from .digest import Credentials
from .headers import SipUri
from .message import SipRequest
from .reliable_progress import RELIABLE
from .requests import SessionHost
from .session import SDP, SessionState, SipSession
from .session_timer import accept_interval
from .transactions import ServerTransaction


class IncomingSession(SipSession):
    """A call that a peer makes. ``ring``, then ``answer`` or ``reject``.

    Attributes:
        request: the INVITE.
        replaced: the call that it takes the place of (RFC 3891).

    Raises SipSyntaxError if the INVITE has no Contact.
    """

    def __init__(
        self,
        host: SessionHost,
        transaction: ServerTransaction,
        contact: SipUri,
        credentials: Credentials | None,
        on_over: Callable[[SipSession], None],
        replaced: SipSession | None = None,
    ) -> None:
        super().__init__(host, credentials, on_over, is_ours=False)
        self.dialog: Dialog = Dialog.of_request(transaction.request, transaction.flow, contact, new_tag())
        self.replaced = replaced
        self._transaction = transaction
        self._peer_allows = transaction.request.headers.tokens("allow")

    @property
    def request(self) -> SipRequest:
        """The INVITE."""
        return self._transaction.request

    def trying(self) -> None:
        """Say that the INVITE has arrived."""
        self._transaction.respond(self.request.response(100))

    def ring(self) -> None:
        """Say that the call rings; not to a peer that would have to acknowledge it (RFC 3262, 3)."""
        if RELIABLE in self.request.headers.tokens("require"):
            return
        self._respond(180, ("contact", f"<{self.dialog.contact}>"), ("allow", ALLOW))

    def answer(self, description: bytes) -> None:
        """Answer with a description: an answer, or an offer if the INVITE had none."""
        if self.state is not SessionState.NEW:
            return
        self.state = SessionState.UP
        self._description = description
        interval = accept_interval(self.request.headers)
        headers = self.answer_headers(self.request, interval is not None)
        response = self.request.response(
            200, *headers, to_tag=self.dialog.local.tag, body=description, content_type=SDP
        )
        self._timer.start(interval, as_uac=False)
        self.answer_with(self._transaction, response)
        if self.replaced is not None:
            self.replaced.hang_up("another call took its place")

    def reject(self, status: int, *headers: tuple[str, str], reason: str = "") -> None:
        """Refuse the call; no error if it is answered or over."""
        if self.state is SessionState.NEW:
            self._respond(status, *headers)
            self.end(status, reason or "refused")

    def cancel(self) -> None:
        """Take the CANCEL of the peer."""
        if self.state is SessionState.NEW:
            self._respond(487)
            self.end(487, "the caller hung up before the answer")

    def hang_up(self, reason: str = "", *, cause: int = 16) -> None:
        """End the call, also before it is answered."""
        self.reject(486 if cause == 17 else 480, reason=reason)
        super().hang_up(reason, cause=cause)

    def _respond(self, status: int, *headers: tuple[str, str]) -> None:
        self._transaction.respond(self.request.response(status, *headers, to_tag=self.dialog.local.tag))
