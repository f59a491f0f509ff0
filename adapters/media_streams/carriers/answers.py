"""Answers to the webhooks of carriers: the document that connects a call to its media stream.

Twilio gets TwiML, Telnyx TeXML, Plivo its XML, Vonage an NCCO, Exotel the URL as JSON, jambonz its verbs.

Source: the carriers' references of ``<Connect><Stream>``, ``<Stream>``, the NCCO action connect and listen.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape, quoteattr

_XML: Final = "application/xml"
_JSON: Final = "application/json"
_VONAGE_RATE: Final = 16_000  # Hz
_JAMBONZ_RATE: Final = 8_000  # Hz, that of telephones


@dataclass(frozen=True, slots=True)
class WebhookAnswer:
    """The body of an HTTP response."""

    content_type: str
    body: str


def _xml(inner: str) -> WebhookAnswer:
    return WebhookAnswer(_XML, f'<?xml version="1.0" encoding="UTF-8"?>\n<Response>{inner}</Response>\n')


def twiml(url: str) -> WebhookAnswer:
    """Return TwiML; ``url`` begins with wss:// and has no query, which Twilio does not send."""
    return _xml(f"<Connect><Stream url={quoteattr(url)}/></Connect>")


def texml(url: str) -> WebhookAnswer:
    """Return TeXML of Telnyx with µ-law in both directions."""
    attributes = 'codec="PCMU" bidirectionalMode="rtp" bidirectionalCodec="PCMU"'
    return _xml(f"<Connect><Stream url={quoteattr(url)} {attributes}/></Connect>")


def plivo_xml(url: str) -> WebhookAnswer:
    """Return Plivo's XML; the call lasts as long as its stream."""
    attributes = 'bidirectional="true" keepCallAlive="true" contentType="audio/x-mulaw;rate=8000"'
    return _xml(f"<Stream {attributes}>{escape(url)}</Stream>")


def ncco(url: str) -> WebhookAnswer:
    """Return the NCCO of Vonage, with speech at 16 kHz."""
    endpoint = {"type": "websocket", "uri": url, "content-type": f"audio/l16;rate={_VONAGE_RATE}"}
    return WebhookAnswer(_JSON, json.dumps([{"action": "connect", "endpoint": [endpoint]}]))


def exotel_url(url: str) -> WebhookAnswer:
    """Return the URL for the Voicebot applet of Exotel."""
    return WebhookAnswer(_JSON, json.dumps({"url": url}))


def jambonz_verbs(url: str) -> WebhookAnswer:
    """Return the verbs of jambonz."""
    verb = {
        "verb": "listen",
        "url": url,
        "mixType": "mono",
        "sampleRate": _JAMBONZ_RATE,
        "passDtmf": True,
        "bidirectionalAudio": {"enabled": True, "streaming": True, "sampleRate": _JAMBONZ_RATE},
    }
    return WebhookAnswer(_JSON, json.dumps([verb]))


AnswerWebhook = Callable[[str], WebhookAnswer]
