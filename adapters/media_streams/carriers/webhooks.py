"""Webhooks of carriers: answers, which connect a call to its media stream, and signatures of requests.

Twilio signs with HMAC-SHA1, Plivo's version 3 with HMAC-SHA256. Both cover the URL as the carrier sees it and
the parameters of a POST. A WebSocket is signed like a GET.

Source: twilio.com/docs/usage/security; plivo.com/docs, Validating requests (signature V3).
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Parameters = Mapping[str, Sequence[str]]  # every value of each parameter, decoded


@dataclass(frozen=True, slots=True)
class WebhookAnswer:
    """The body of an HTTP response."""

    content_type: str
    body: str


AnswerWebhook = Callable[[str], WebhookAnswer]  # takes the URL, wss://, without a query: Twilio sends none


def xml_answer(inner: str) -> WebhookAnswer:
    """Return XML with ``inner`` in its ``<Response>``."""
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Response>{inner}</Response>\n'
    return WebhookAnswer("application/xml", body)


def json_answer(value: object) -> WebhookAnswer:
    """Return JSON."""
    return WebhookAnswer("application/json", json.dumps(value))


def twilio_signature(auth_token: str, url: str, parameters: Parameters) -> str:
    """Return ``X-Twilio-Signature``; parameters: of the POST body, none for a GET."""
    signed = url + "".join(
        name + value for name in sorted(parameters) for value in sorted(set(parameters[name]))
    )
    return _encoded(hmac.new(auth_token.encode(), signed.encode(), hashlib.sha1))


def plivo_signature(auth_token: str, url: str, nonce: str, *, query: Parameters, body: Parameters) -> str:
    """Return ``X-Plivo-Signature-V3``.

    Args:
        url: without its query.
        nonce: of the header ``X-Plivo-Signature-V3-Nonce``.
        query: parameters of the URL.
        body: parameters of the POST body, none for a GET.
    """
    sorted_query = "&".join(f"{name}={value}" for name, value in _sorted(query))
    signed = url
    if sorted_query or body:
        signed += f"?{sorted_query}"
    if body:
        signed += "." * bool(sorted_query) + "".join(name + value for name, value in _sorted(body))
    return _encoded(hmac.new(auth_token.encode(), f"{signed}.{nonce}".encode(), hashlib.sha256))


def is_valid(expected: str, received: str) -> bool:
    """Return whether a header has the signature, alone or in a list separated by commas."""
    candidates = [one.strip().encode() for one in received[:1024].split(",")]
    return any(hmac.compare_digest(expected.encode(), one) for one in candidates)


def _sorted(parameters: Parameters) -> list[tuple[str, str]]:
    return [(name, value) for name in sorted(parameters) for value in sorted(parameters[name])]


def _encoded(digest: "hmac.HMAC") -> str:
    return base64.b64encode(digest.digest()).decode("ascii")
