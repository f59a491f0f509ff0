"""The two ways in which browsers talk on the data channel: our page's own, and RTVI of Pipecat's clients.

A session speaks one language, that of ``session``; a dialect reads and writes it as the page does.
Pure: text in, values out.

Source: RTVI 1.x as pipecat-ai 1.14.0 speaks it (processors/frameworks/rtvi/models.py).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from ..calls.messages import MAX_TEXT_CHARACTERS, BadCallMessage, CommandMessage, TextMessage
from .page_channel import AskMessage, PageMessage, parse_page_message

_LABEL: Final = "rtvi-ai"
_VERSION: Final = "1.0.0"
_SIGNALLING: Final = '"type":"signalling"'


@dataclass(frozen=True, slots=True)
class DecodedMessage:
    """What a message asks for, and what the page gets back at once."""

    requests: Sequence[PageMessage] = ()
    replies: Sequence[str] = ()


class DataChannelDialect(Protocol):
    """How one kind of page reads and writes."""

    def read(self, message: str) -> DecodedMessage:
        """A message of the page; raises BadCallMessage."""

    def write(self, message: dict[str, object]) -> list[str]:
        """A message to the page, as the texts that are sent for it."""


def detect_dialect(message: str, typed_text_action: Literal["ask", "text"]) -> DataChannelDialect:
    """The dialect that a page shows with a message; ``typed``: what is done with text typed into RTVI's."""
    return RtviDialect(typed_text_action) if f'"{_LABEL}"' in message else PageDialect()


class PageDialect:
    """Our own page's: nothing to translate."""

    def read(self, message: str) -> DecodedMessage:
        """A message of the page; raises BadCallMessage."""
        if _SIGNALLING in message[: len(_SIGNALLING) + 20]:
            return DecodedMessage()  # a Pipecat client tells of its tracks before it says anything in RTVI
        return DecodedMessage(requests=[parse_page_message(message)])

    def write(self, message: dict[str, object]) -> list[str]:
        """A message to the page."""
        return [_to_json(message)]


@dataclass(slots=True)
class RtviDialect:
    """Pipecat's clients'. Typed text is asked of the model, or spoken as it is."""

    _typed_text_action: Literal["ask", "text"]
    _speaking: bool = False

    def read(self, message: str) -> DecodedMessage:
        """A message of the client; what it may do without is passed over."""
        envelope = _envelope(message)
        data = envelope.get("data")
        data = data if isinstance(data, dict) else {}
        match envelope.get("type"):
            case "client-ready":
                ready: dict[str, object] = {"version": _VERSION, "about": {"library": "vivavoce"}}
                return DecodedMessage(replies=[_rtvi("bot-ready", ready, str(envelope.get("id", "")))])
            case "send-text":
                return DecodedMessage(requests=self._typed_text_requests(str(data.get("content", ""))))
            case "disconnect-bot":
                return DecodedMessage(requests=[CommandMessage(type="hang_up")])
            case _:
                return DecodedMessage()

    def write(self, message: dict[str, object]) -> list[str]:
        """A message to the client; what RTVI has no word for is left out."""
        match message["type"]:
            case "speech_started":
                self._speaking = True
                return [_rtvi("bot-started-speaking"), _rtvi("bot-tts-started")]
            case "speech_finished" | "discarded" if self._speaking:
                self._speaking = False
                return [_rtvi("bot-tts-stopped"), _rtvi("bot-stopped-speaking")]
            case "word":
                output = {"text": message["text"], "spoken": True, "aggregated_by": "word"}
                return [_rtvi("bot-tts-text", {"text": message["text"]}), _rtvi("bot-output", output)]
            case "caller_speaking":
                return [_rtvi("user-started-speaking")]
            case "caller_silent":
                return [_rtvi("user-stopped-speaking")]
            case "error":
                return [_rtvi("error", {"error": message["message"], "fatal": False})]
            case _:
                return []

    def _typed_text_requests(self, text: str) -> list[PageMessage]:
        if not text:
            return []
        if len(text) > MAX_TEXT_CHARACTERS:
            raise BadCallMessage(f"a text of {len(text)} characters; at most {MAX_TEXT_CHARACTERS} are read")
        if self._typed_text_action == "ask":
            return [AskMessage(type="ask", text=text)]
        discard = CommandMessage(type="discard")
        return [discard, TextMessage(type="text", text=text), CommandMessage(type="end")]


def _envelope(message: str) -> dict[str, Any]:
    try:
        envelope = json.loads(message)
    except (ValueError, RecursionError):
        raise BadCallMessage("a message is a JSON object") from None
    if not isinstance(envelope, dict):
        raise BadCallMessage("a message is a JSON object")
    return envelope


def _rtvi(kind: str, data: dict[str, object] | None = None, message_id: str | None = None) -> str:
    envelope: dict[str, object] = {"label": _LABEL, "type": kind}
    if message_id is not None:
        envelope["id"] = message_id
    if data is not None:
        envelope["data"] = data
    return _to_json(envelope)


def _to_json(message: dict[str, object]) -> str:
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False)
