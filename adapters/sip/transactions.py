"""Transactions: each request is answered once, whatever the network loses or repeats.

    client    request --> 1xx --> final response             again until a response: T1, 2 T1, 4 T1, ...
    server    request --> 1xx --> final response [--> ACK]   a repeated request gets the last response again

A 2xx of an INVITE, its repetition and its ACK are the call's (``session``). Times are seconds.

Source: RFC 3261, 17 and 18.2; RFC 3581 (rport); RFC 6026 (INVITE after a 2xx).
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from .headers import Via
from .message import SipMessage, SipRequest, SipResponse
from .timers import Timer, TimerQueue

T1: Final = 0.5  # a round trip, estimated
T2: Final = 4.0  # the longest interval
T4: Final = 5.0  # for which a message stays in the network
TIMEOUT_S: Final = 64 * T1
_MAX_RINGING_S: Final = 240.0  # of an INVITE without a final response (timer C)
COOKIE: Final = "z9hG4bK"


@dataclass(frozen=True, slots=True)
class SipFlow:
    """Where a message goes, or came from: a peer's address, over UDP or on a connection."""

    transport: str  # "udp", "tcp" or "tls"
    address: tuple[str, int]  # IP address, IPv6 without brackets, and port

    @property
    def is_reliable(self) -> bool:
        """Whether what is sent arrives, or the connection ends."""
        return self.transport != "udp"

    @property
    def host(self) -> str:
        """The IP address."""
        return self.address[0]


Send = Callable[[bytes, SipFlow], None]


class SipRequestHandler(Protocol):
    """Takes the requests that begin a transaction."""

    def on_request(self, transaction: "ServerTransaction") -> None:
        """Take a request; ``transaction.respond`` answers it, now or later. ACK of a 2xx has no answer."""


def new_branch() -> str:
    """Return the id of a transaction."""
    return COOKIE + secrets.token_hex(8)


def received_via(via: Via, flow: SipFlow) -> str:
    """Return the topmost Via of a request with the address that it came from."""
    parameters = dict(via.parameters)
    if "rport" in parameters:
        parameters["rport"] = str(flow.address[1])
    if "rport" in parameters or via.host.strip("[]") != flow.host:
        parameters["received"] = flow.host
    return str(Via(via.transport, via.host, via.port, parameters))


def response_flow(via: Via, flow: SipFlow) -> SipFlow:
    """Return where responses go: the connection, or the address that the request came from."""
    if flow.is_reliable or "rport" in via.parameters:
        return flow
    return SipFlow(flow.transport, (flow.host, via.port or 5060))


class ServerTransaction:
    """A request of a peer, and its responses."""

    def __init__(
        self, request: SipRequest, flow: SipFlow, key: tuple[str, ...], layer: "Transactions"
    ) -> None:
        via = request.via
        first, *others = request.headers.values("via")
        assert first
        headers = request.headers.replace("via", received_via(via, flow), *others)
        self.request = SipRequest(request.method, request.uri, headers, request.body)
        self.flow = flow  # of the peer
        self.is_answered = False  # finally
        self.key = key
        self._replies_to = response_flow(via, flow)
        self._layer = layer
        self._last = b""  # response
        self._timer: Timer | None = None
        self._interval_s = T1

    @property
    def _is_invite(self) -> bool:
        return self.request.method == "INVITE"

    def respond(self, response: SipResponse) -> None:
        """Send a response; no error after the final one, which stays."""
        if self.is_answered:
            return
        self._last = bytes(response)
        self.send(self._last)
        if response.status < 200:
            return
        self.is_answered = True
        timers = self._layer.timers
        timers.set(TIMEOUT_S, self._end)
        if self._is_invite and response.status >= 300 and not self.flow.is_reliable:
            self._timer = timers.set(self._interval_s, self._repeat)

    def send(self, response: bytes) -> None:
        """Send bytes to where responses go."""
        self._layer.send(response, self._replies_to)

    def on_repeated(self) -> None:
        """Take the request again."""
        if self._last and not (self._is_invite and self.is_success):
            self.send(self._last)

    @property
    def is_success(self) -> bool:
        """Whether it was answered with 2xx, which the call repeats if it is lost."""
        return self.is_answered and self._last.startswith(b"SIP/2.0 2")

    def on_ack(self) -> None:
        """Take the ACK of a response that is no 2xx."""
        if self._timer is not None:
            self._timer.cancel()

    def _end(self) -> None:
        # Timer H of RFC 3261, 17.2.1: no ACK came, which a spoofed address never sends.
        self.on_ack()
        self._layer.forget_server(self)

    def _repeat(self) -> None:
        self.send(self._last)
        self._interval_s = min(2 * self._interval_s, T2)
        self._timer = self._layer.timers.set(self._interval_s, self._repeat)


class ClientTransaction:
    """A request of ours. Responses that repeat are dropped, but for 2xx of an INVITE.

    Args:
        on_response: takes each response.
        on_failed: called instead of a final response, if none came in time or the connection is lost.
    """

    def __init__(
        self,
        request: SipRequest,
        flow: SipFlow,
        layer: "Transactions",
        on_response: Callable[[SipResponse], None],
        on_failed: Callable[[str], None],
    ) -> None:
        self.request = request
        self.flow = flow
        self.branch = request.via.branch
        self._layer = layer
        self._on_response = on_response
        self._on_failed = on_failed
        self._interval_s = T1
        self._has_response = False
        self._final_status = 0
        self._ack = b""
        self._repeating: Timer | None = None
        self._timeout = layer.timers.set(TIMEOUT_S, lambda: self.fail("no answer"))
        layer.send(bytes(request), flow)
        if not flow.is_reliable:
            self._repeating = layer.timers.set(T1, self._repeat)

    @property
    def is_over(self) -> bool:
        """Whether there was a final response, or none in time."""
        return self._final_status != 0

    @property
    def _is_invite(self) -> bool:
        return self.request.method == "INVITE"

    def receive(self, response: SipResponse) -> None:
        """Take a response."""
        if self._final_status:
            if self._ack:
                self._layer.send(self._ack, self.flow)
            elif self._is_invite and 200 <= response.status < 300:
                self._on_response(response)
            return
        if response.status < 200:
            self._note_progress()
        else:
            self._finish(response)
        self._on_response(response)

    def fail(self, reason: str) -> None:
        """End the transaction without a response; no error if it has ended."""
        if not self._final_status:
            self._end(408)
            self._layer.forget_client(self)
            self._on_failed(reason)

    def _note_progress(self) -> None:
        self._has_response = True
        if self._is_invite:
            if self._repeating is not None:
                self._repeating.cancel()
            self._timeout.cancel()
            self._timeout = self._layer.timers.set(_MAX_RINGING_S, lambda: self.fail("no answer"))

    def _finish(self, response: SipResponse) -> None:
        self._end(response.status)
        if self._is_invite and response.status >= 300:
            self._ack = bytes(_ack_of(self.request, response))
            self._layer.send(self._ack, self.flow)
        self._layer.timers.set(TIMEOUT_S if self._is_invite else T4, lambda: self._layer.forget_client(self))

    def _end(self, status: int) -> None:
        self._final_status = status
        self._timeout.cancel()
        if self._repeating is not None:
            self._repeating.cancel()

    def _repeat(self) -> None:
        self._layer.send(bytes(self.request), self.flow)
        is_slow = self._has_response and not self._is_invite
        longest_s = TIMEOUT_S if self._is_invite else T2
        self._interval_s = T2 if is_slow else min(2 * self._interval_s, longest_s)
        self._repeating = self._layer.timers.set(self._interval_s, self._repeat)


def _ack_of(request: SipRequest, response: SipResponse) -> SipRequest:
    """Return the ACK of a response that is no 2xx, which belongs to the transaction."""
    kept = {"from", "call-id", "route", "max-forwards"}
    pairs = [pair for pair in request.headers.pairs if pair[0] in kept]
    headers = [
        ("via", str(request.via)),
        *pairs,
        ("to", response.headers.get("to")),
        ("cseq", f"{request.cseq} ACK"),
    ]
    return SipRequest("ACK", request.uri, type(request.headers)(tuple(headers)))


class Transactions:
    """The transactions of an endpoint.

    Args:
        send: sends bytes on a flow; must not block.
        handler: takes new requests.
    """

    def __init__(self, timers: TimerQueue, send: Send, handler: SipRequestHandler, max_servers: int) -> None:
        self.timers = timers
        self.send = send
        self._handler = handler
        self._max_servers = max_servers
        self._servers: dict[tuple[str, ...], ServerTransaction] = {}
        self._clients: dict[tuple[str, str], ClientTransaction] = {}
        self._merged: dict[tuple[str, str, str], tuple[str, ...]] = {}  # of requests that begin a dialog

    def receive(self, message: SipMessage, flow: SipFlow) -> bool:
        """Take a message; return False if it is a response that belongs to no transaction."""
        if isinstance(message, SipRequest):
            self._receive_request(message, flow)
            return True
        client = self._clients.get((message.branch, message.cseq[1]))
        if client is None:
            return False
        client.receive(message)
        return True

    def is_known(self, request: SipRequest) -> bool:
        """Return whether a request repeats one, or ends the INVITE of one: ACK, CANCEL."""
        return _key_of(request) in self._servers or self.find_invite(request) is not None

    def find_invite(self, request: SipRequest) -> ServerTransaction | None:
        """Return the INVITE that a CANCEL or an ACK is for."""
        return self._servers.get(_key_of(request, "INVITE"))

    def begin(
        self,
        request: SipRequest,
        flow: SipFlow,
        on_response: Callable[[SipResponse], None],
        on_failed: Callable[[str], None],
    ) -> ClientTransaction:
        """Send a request."""
        client = ClientTransaction(request, flow, self, on_response, on_failed)
        self._clients[client.branch, request.method] = client
        return client

    def lose(self, flow: SipFlow) -> None:
        """End the transactions of a connection that is lost."""
        for client in [client for client in self._clients.values() if client.flow == flow]:
            client.fail("the connection is lost")

    def forget_server(self, transaction: ServerTransaction) -> None:
        """Forget a request: it is not repeated any more."""
        self._servers.pop(transaction.key, None)
        merged = _merge_key(transaction.request)
        if self._merged.get(merged) == transaction.key:
            del self._merged[merged]

    def forget_client(self, transaction: ClientTransaction) -> None:
        """Forget a request of ours: responses are not repeated any more."""
        self._clients.pop((transaction.branch, transaction.request.method), None)

    def _receive_request(self, request: SipRequest, flow: SipFlow) -> None:
        key = _key_of(request)
        known = self._servers.get(key)
        if known is not None:
            known.on_repeated()
            return
        if request.method == "ACK" and (invite := self.find_invite(request)) and not invite.is_success:
            invite.on_ack()
            return
        transaction = ServerTransaction(request, flow, key, self)
        if request.method == "ACK":
            self._handler.on_request(transaction)
            return
        if len(self._servers) >= self._max_servers:
            transaction.send(bytes(transaction.request.response(503, ("retry-after", "5"))))
            return
        self._servers[key] = transaction
        if not request.to.tag and self._merged.setdefault(_merge_key(request), key) != key:
            transaction.respond(transaction.request.response(482, reason="Merged Request"))
            return
        self._handler.on_request(transaction)


def _key_of(request: SipRequest, method: str = "") -> tuple[str, ...]:
    """Return what a repeated request has in common with the first (RFC 3261, 17.2.3)."""
    via = request.via
    method = method or request.method
    if via.branch.startswith(COOKIE) and len(via.branch) > len(COOKIE):
        return (via.branch, via.host.lower(), str(via.port or 0), method)
    return (request.call_id, request.from_.tag, str(request.cseq), via.host.lower(), method)


def _merge_key(request: SipRequest) -> tuple[str, str, str]:
    return (request.call_id, request.from_.tag, request.headers.get("cseq"))
