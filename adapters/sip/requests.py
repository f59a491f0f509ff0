"""Requests of ours: sent again with credentials if they are challenged; and what sessions send them by."""

from collections.abc import Callable
from typing import Final, Protocol

from .digest import Credentials, answer_challenge, parse_digest
from .message import SipRequest, SipResponse
from .timers import TimerQueue
from .transactions import ClientTransaction, SipFlow

MakeRequest = Callable[[tuple[tuple[str, str], ...]], SipRequest]
_CHALLENGES: Final = {
    401: ("www-authenticate", "authorization"),
    407: ("proxy-authenticate", "proxy-authorization"),
}
_MAX_ATTEMPTS: Final = 3  # a proxy and the server behind it, or a nonce that has expired


class SessionHost(Protocol):
    """What an endpoint is to its sessions."""

    @property
    def timers(self) -> TimerQueue:
        """The timers of the endpoint."""

    def sent_by(self, flow: SipFlow) -> str:
        """Return our address for Via."""

    def begin(
        self,
        request: SipRequest,
        flow: SipFlow,
        on_response: Callable[[SipResponse], None],
        on_failed: Callable[[str], None],
    ) -> ClientTransaction:
        """Send a request."""

    def send(self, message: bytes, flow: SipFlow) -> None:
        """Send a message outside of transactions: the ACK of a 2xx."""


class ChallengedRequest:
    """A request, and its repetition with credentials.

    Args:
        make: returns the request with more headers, and with a number and a branch of its own each time.
        on_response: takes every response but challenges that were answered.
        on_failed: called if there is no final response.
    """

    def __init__(
        self,
        host: SessionHost,
        make: MakeRequest,
        flow: SipFlow,
        credentials: Credentials | None,
        on_response: Callable[[SipRequest, SipResponse], None],
        on_failed: Callable[[str], None],
    ) -> None:
        self._host = host
        self._make = make
        self._flow = flow
        self._credentials = credentials
        self._on_response = on_response
        self._on_failed = on_failed
        self._answers: dict[str, str] = {}  # by the name of the header
        self._attempts = 0
        self._begin()

    @property
    def request(self) -> SipRequest:
        """As it was sent last."""
        return self.transaction.request

    def _begin(self) -> None:
        self._attempts += 1
        request = self._make(tuple(self._answers.items()))
        self.transaction = self._host.begin(request, self._flow, self._receive, self._on_failed)

    def _receive(self, response: SipResponse) -> None:
        if response.status in _CHALLENGES and self._answer(response):
            self._begin()
        else:
            self._on_response(self.request, response)

    def _answer(self, response: SipResponse) -> bool:
        """Return whether a challenge could be answered; the same one twice means a wrong password."""
        asked, name = _CHALLENGES[response.status]
        values = response.headers.all(asked)
        if self._credentials is None or self._attempts >= _MAX_ATTEMPTS:
            return False
        is_stale = any((parse_digest(value) or {}).get("stale", "").lower() == "true" for value in values)
        if name in self._answers and not is_stale:
            return False
        request = self.request
        answer = answer_challenge(values, self._credentials, request.method, request.uri, body=request.body)
        if answer is None:
            return False
        self._answers[name] = answer
        return True
