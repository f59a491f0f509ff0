"""Answers to the webhooks of carriers: the document that connects a call to its media stream."""

import json
from collections.abc import Callable
from dataclasses import dataclass


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
