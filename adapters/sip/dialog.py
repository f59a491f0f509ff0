"""A dialog: what both sides of a call know of each other, and the requests inside it.

Source: RFC 3261, 12; RFC 5923 and 3581 for requests that go back the way by which the peer's came.
"""

import ipaddress
import secrets
from dataclasses import dataclass
from typing import Final, Self

from .headers import DEFAULT_PORTS, NameAddress, SipSyntaxError, SipUri
from .message import SipHeaders, SipRequest, SipResponse
from .transactions import SipFlow, new_branch

MAX_FORWARDS: Final = "70"
ALLOW: Final = "INVITE, ACK, CANCEL, BYE, OPTIONS, INFO, UPDATE, REFER, NOTIFY"


def new_tag() -> str:
    """Return a tag, which cannot be guessed."""
    return secrets.token_hex(8)


@dataclass(slots=True, kw_only=True)
class Dialog:
    """One dialog, as this side sees it."""

    call_id: str
    local: NameAddress  # with our tag
    remote: NameAddress  # with the peer's tag, once it has one
    target: str  # URI of the peer's Contact
    routes: tuple[str, ...]
    flow: SipFlow  # by which the peer's messages come
    contact: SipUri  # ours
    local_cseq: int
    remote_cseq: int

    @classmethod
    def of_request(cls, request: SipRequest, flow: SipFlow, contact: SipUri, tag: str) -> Self:
        """Return the dialog that a request of a peer begins; raises SipSyntaxError."""
        to = request.to
        return cls(
            call_id=request.call_id,
            local=NameAddress(to.uri, to.display_name, {"tag": tag}),
            remote=request.from_,
            # RFC 2543 let a caller leave Contact out.
            target=_contact_of(request.headers) if "contact" in request.headers else request.from_.uri,
            routes=_routes_of(request.headers),
            flow=flow,
            contact=contact,
            local_cseq=secrets.randbelow(1 << 16),
            remote_cseq=request.cseq,
        )

    @classmethod
    def of_response(cls, request: SipRequest, response: SipResponse, flow: SipFlow, contact: SipUri) -> Self:
        """Return the dialog that a response to our request makes; raises SipSyntaxError."""
        return cls(
            call_id=request.call_id,
            local=request.from_,
            remote=response.to,
            target=_contact_of(response.headers),
            routes=_routes_of(response.headers)[::-1],
            flow=flow,
            contact=contact,
            local_cseq=request.cseq,
            remote_cseq=-1,
        )

    @property
    def key(self) -> tuple[str, str, str]:
        """Call-ID, our tag and the peer's."""
        return (self.call_id, self.local.tag, self.remote.tag)

    @property
    def next_hop(self) -> SipFlow:
        """Where requests go: to the peer's Contact, unless a proxy or a NAT is on the way."""
        if self.routes or self.flow.is_reliable:
            return self.flow
        try:
            uri = SipUri.parse(self.target)
            host = uri.host.strip("[]")
            is_hidden = ipaddress.ip_address(host).is_private and host != self.flow.host
        except ValueError:  # a name, or another scheme
            return self.flow
        if is_hidden or uri.transport != self.flow.transport:
            return self.flow
        return SipFlow(self.flow.transport, (host, uri.port or DEFAULT_PORTS[self.flow.transport]))

    def request(
        self,
        method: str,
        sent_by: str,
        *headers: tuple[str, str],
        body: bytes = b"",
        content_type: str = "",
        cseq: int | None = None,
    ) -> SipRequest:
        """Return a request. sent_by: our address for Via. cseq: of an ACK; else the next number."""
        if cseq is None:
            self.local_cseq += 1
            cseq = self.local_cseq
        uri, routes = self._route()
        pairs = [
            ("via", f"SIP/2.0/{self.next_hop.transport.upper()} {sent_by};rport;branch={new_branch()}"),
            *(("route", each) for each in routes),
            ("max-forwards", MAX_FORWARDS),
            ("from", str(self.local)),
            ("to", str(self.remote)),
            ("call-id", self.call_id),
            ("cseq", f"{cseq} {method}"),
            ("contact", f"<{self.contact}>"),
            *headers,
        ]
        if content_type:
            pairs.append(("content-type", content_type))
        return SipRequest(method, uri, SipHeaders(tuple(pairs)), body)

    def takes(self, request: SipRequest) -> bool:
        """Return whether a request is newer than all before, and note its number."""
        if request.cseq <= self.remote_cseq:
            return False
        self.remote_cseq = request.cseq
        return True

    def refresh_target(self, headers: SipHeaders) -> None:
        """Take the Contact of a re-INVITE, an UPDATE or their answers."""
        try:
            self.target = _contact_of(headers)
        except SipSyntaxError:
            return

    def _route(self) -> tuple[str, tuple[str, ...]]:
        """Return the Request-URI and the routes (RFC 3261, 12.2.1.1, with strict routers of RFC 2543)."""
        if not self.routes or ";lr" in self.routes[0].lower():
            return self.target, self.routes
        return NameAddress.parse(self.routes[0]).uri, (*self.routes[1:], f"<{self.target}>")


def _routes_of(headers: SipHeaders) -> tuple[str, ...]:
    """Return the values of Record-Route, which are written again as Route; raises SipSyntaxError."""
    routes = tuple(headers.values("record-route"))
    for route in routes:
        NameAddress.parse(route)
    return routes


def _contact_of(headers: SipHeaders) -> str:
    contacts = headers.values("contact")
    if not contacts or contacts[0] == "*":
        raise SipSyntaxError("got no Contact")
    return str(NameAddress.parse(contacts[0]).sip_uri)
