"""Authentication of carriers: signatures, a token in the URL, and tickets for the stream after a webhook.

    webhook   --signature, token or API key-->  an answer with a URL that has a ticket
    stream    --ticket, or as the webhook-->    a call

A carrier with a token must sign with it, or have it in its URL if carriers of its kind do not sign; one
without needs an API key, as every client of the calls API.

A signature covers ``public_url``, so that one made for another server is not valid here, and the parameters
of the URL and of a form; other bodies are not read. A webhook that is sent again gets the same ticket, until
that is used.
"""

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs

from fastapi.requests import HTTPConnection

from .....adapters.media_streams.carriers.webhooks import is_valid, plivo_signature, twilio_signature
from ....access.access_control import AccessControl
from ....access.errors import SignatureRefused
from ....access.keys import Scope
from ...kits.websocket_leg import KnownCaller
from .carriers import Carrier, SignatureScheme

logger = logging.getLogger(__name__)

TICKET_LIFETIME_S: Final = 60.0  # a carrier opens the stream within a second of the answer
MAX_TICKETS: Final = 10_000
_MAX_SIGNATURES: Final = 10_000  # of answered webhooks, each of one call

Form = Mapping[str, list[str]]


@dataclass(frozen=True, slots=True)
class _StreamTicket:
    carrier: str
    caller: KnownCaller
    expires_at: float


class StreamTickets:
    """Tickets, each for one stream of one carrier; an unused one expires after a minute.

    A signature gets one ticket.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._tickets: dict[str, _StreamTicket] = {}  # oldest first
        self._signed: dict[str, str] = {}  # tickets by signature, oldest first

    def issue(self, carrier: Carrier, caller: KnownCaller, signature: str = "") -> str:
        """Return a ticket, which is safe in a URL; raises SignatureRefused for a used signature.

        signature: of the webhook; "": it is not signed.
        """
        issued = self._signed.get(signature)
        if issued is None:
            ticket = self._issue(carrier, caller)
            if signature:
                self._remember(signature, ticket)
            return ticket
        if issued not in self._tickets or self._tickets[issued].expires_at <= self._now():
            raise SignatureRefused(f"a request of {carrier.name} with this signature was answered before")
        return issued

    def _remember(self, signature: str, ticket: str) -> None:
        if len(self._signed) >= _MAX_SIGNATURES:
            del self._signed[next(iter(self._signed))]
        self._signed[signature] = ticket

    def _issue(self, carrier: Carrier, caller: KnownCaller) -> str:
        now = self._now()
        for ticket in tuple(self._tickets):
            if self._tickets[ticket].expires_at > now and len(self._tickets) < MAX_TICKETS:
                break
            del self._tickets[ticket]
        ticket = secrets.token_urlsafe(24)
        self._tickets[ticket] = _StreamTicket(carrier.name, caller, now + TICKET_LIFETIME_S)
        return ticket

    def redeem(self, carrier: Carrier, ticket: str) -> KnownCaller | None:
        """Return the caller of a ticket, which is used up; None if it is not valid."""
        found = self._tickets.get(ticket)
        if found is None or found.carrier != carrier.name or found.expires_at <= self._now():
            return None
        return self._tickets.pop(ticket).caller


class CarrierAccess:
    """Authenticates the requests of carriers. Belongs to the event loop.

    Args:
        tokens: by carrier.
        public_url: of the server as carriers see it, without path; "": that of each request.
    """

    def __init__(self, tokens: Mapping[str, str], public_url: str, access: AccessControl) -> None:
        self._tokens = tokens
        self._public_url = public_url
        self._access = access
        self.tickets = StreamTickets()

    def public_url(self, connection: HTTPConnection) -> str:
        """Return the server's URL as the carrier of a request sees it, without path; http or https."""
        if self._public_url:
            return self._public_url
        scheme = "https" if connection.url.scheme in ("https", "wss") else "http"
        return f"{scheme}://{connection.url.netloc}"

    def authorize_stream(self, carrier: Carrier, token: str, connection: HTTPConnection) -> KnownCaller:
        """Return what is known of the caller of a stream.

        Raises SignatureRefused, or KeyRefused and others of ``AccessControl.grant``.
        """
        caller = self.tickets.redeem(carrier, token)
        if caller is not None:
            return caller
        self.authorize(carrier, token, connection, {})
        return KnownCaller()

    def is_signed(self, carrier: Carrier) -> bool:
        """Return whether the carrier must sign its requests."""
        return carrier.signature is not SignatureScheme.NONE and carrier.name in self._tokens

    def authorize(self, carrier: Carrier, token: str, connection: HTTPConnection, form: Form) -> str:
        """Check a request without a ticket; return its signature, "" if its carrier does not sign.

        Raises as ``authorize_stream``, and logs a forged request.

        form: parameters of a POST body.
        """
        try:
            return self._check(carrier, token, connection, form)
        except SignatureRefused as error:
            field = carrier.fields.call_id
            call_id = form.get(field, [connection.query_params.get(field, "")])[0]
            peer = "unknown" if connection.client is None else connection.client.host
            logger.warning("Call %r of %s from %s refused: %s", call_id[:80], carrier.name, peer, error)
            raise

    def _check(self, carrier: Carrier, token: str, connection: HTTPConnection, form: Form) -> str:
        expected = self._tokens.get(carrier.name)
        if expected is None:
            self._access.grant(connection.headers).require(Scope.CALLS_ALL)
        elif self.is_signed(carrier):
            return self._check_signature(carrier, expected, connection, form)
        elif not secrets.compare_digest(token.encode(), expected.encode()):
            raise SignatureRefused("the token in the URL is missing or wrong")
        return ""

    def _check_signature(self, carrier: Carrier, secret: str, connection: HTTPConnection, form: Form) -> str:
        if not self._public_url:  # else the request itself would say what was signed
            raise SignatureRefused("signatures are checked only with the setting public_url")
        expected, received = self._signatures(carrier, secret, connection, form)
        if not is_valid(expected, received):
            raise SignatureRefused(f"the signature of {carrier.name} is missing or wrong")
        return expected

    def _signatures(
        self, carrier: Carrier, secret: str, connection: HTTPConnection, form: Form
    ) -> tuple[str, str]:
        """Return the signature that the request should have, and what it has."""
        headers, query = connection.headers, connection.url.query
        base = self._public_url
        # A WebSocket is signed with its own scheme; its signature is not valid for anything else.
        if connection.scope["type"] == "websocket":
            base = "ws" + base.removeprefix("http")
        url = base + connection.scope["path"]
        if carrier.signature is SignatureScheme.TWILIO:
            signed_url = f"{url}?{query}" if query else url
            return twilio_signature(secret, signed_url, form), headers.get("x-twilio-signature", "")
        nonce = headers.get("x-plivo-signature-v3-nonce", "")
        parameters = parse_qs(query, keep_blank_values=True)
        expected = plivo_signature(secret, url, nonce, query=parameters, body=form)
        return expected, headers.get("x-plivo-signature-v3", "")
