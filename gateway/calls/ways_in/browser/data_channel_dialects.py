"""Dialects of the data channel: the messages of the calls API as our page sends them, and Pipecat's RTVI.

Pure: text in, values out.

Source: RTVI 1.x as pipecat-ai 1.14.0 speaks it (processors/frameworks/rtvi/models.py).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from pydantic import ValidationError

from ...api.messages import (
    MAX_TEXT_CHARACTERS,
    AskMessage,
    BadCallMessage,
    CallErrorMessage,
    CallerSilentMessage,
    CallerSpeakingMessage,
    ClientMessage,
    CommandMessage,
    DiscardedMessage,
    HangUpMessage,
    ServerMessage,
    SpeechFinishedMessage,
    SpeechStartedMessage,
    TextMessage,
    WordMessage,
    describe_validation_error,
    parse_client_message,
)

_LABEL: Final = "rtvi-ai"
_VERSION: Final = "1.0.0"
_SIGNALLING: Final = '"type":"signalling"'


@dataclass(frozen=True, slots=True)
class DecodedMessage:
    """A text of the page: the messages in it, and the texts that answer it at once."""

    requests: Sequence[ClientMessage] = ()
    replies: Sequence[str] = ()


class DataChannelDialect(Protocol):
    """Encoding of messages in texts of the data channel."""

    def read(self, text: str) -> DecodedMessage:
        """Decode a text of the page; raises BadCallMessage."""

    def write(self, message: ServerMessage) -> list[str]:
        """Encode a message to the page as any number of texts."""


def detect_dialect(text: str, typed_text_action: Literal["ask", "text"]) -> DataChannelDialect:
    """Return the dialect of a text; ``typed_text_action`` is RtviDialect's."""
    return RtviDialect(typed_text_action) if f'"{_LABEL}"' in text else PageDialect()


class PageDialect:
    """The dialect of our own page: one JSON object a message, as on the calls API's socket."""

    def read(self, text: str) -> DecodedMessage:
        """Decode a text of the page; raises BadCallMessage."""
        if _SIGNALLING in text[: len(_SIGNALLING) + 20]:
            return DecodedMessage()  # a Pipecat client reports its tracks before its first RTVI message
        return DecodedMessage(requests=[parse_client_message(text)])

    def write(self, message: ServerMessage) -> list[str]:
        """Encode a message to the page."""
        return [_to_json(message.fields())]


@dataclass(slots=True)
class RtviDialect:
    """The dialect of Pipecat's clients."""

    _typed_text_action: Literal["ask", "text"]  # typed text is a question, or spoken as it is
    _speaking: bool = False

    def read(self, text: str) -> DecodedMessage:
        """Decode a text of the client; raises BadCallMessage. Messages that need no answer are ignored."""
        envelope = _envelope(text)
        data = envelope.get("data")
        data = data if isinstance(data, dict) else {}
        match envelope.get("type"):
            case "client-ready":
                ready: dict[str, object] = {"version": _VERSION, "about": {"library": "vivavoce"}}
                return DecodedMessage(replies=[_rtvi("bot-ready", ready, str(envelope.get("id", "")))])
            case "send-text":
                return DecodedMessage(requests=self._typed_text_requests(str(data.get("content", ""))))
            case "disconnect-bot":
                return DecodedMessage(requests=[HangUpMessage(type="hang_up")])
            case _:
                return DecodedMessage()

    def write(self, message: ServerMessage) -> list[str]:
        """Encode a message to the client; messages without an RTVI equivalent are left out."""
        match message:
            case SpeechStartedMessage():
                self._speaking = True
                return [_rtvi("bot-started-speaking"), _rtvi("bot-tts-started")]
            case SpeechFinishedMessage() | DiscardedMessage() if self._speaking:
                self._speaking = False
                return [_rtvi("bot-tts-stopped"), _rtvi("bot-stopped-speaking")]
            case WordMessage(text=text):
                output = {"text": text, "spoken": True, "aggregated_by": "word"}
                return [_rtvi("bot-tts-text", {"text": text}), _rtvi("bot-output", output)]
            case CallerSpeakingMessage():
                return [_rtvi("user-started-speaking")]
            case CallerSilentMessage():
                return [_rtvi("user-stopped-speaking")]
            case CallErrorMessage(message=sentence):
                return [_rtvi("error", {"error": sentence, "fatal": False})]
            case _:
                return []

    def _typed_text_requests(self, text: str) -> list[ClientMessage]:
        if not text:
            return []
        if len(text) > MAX_TEXT_CHARACTERS:
            raise BadCallMessage(f"a text of {len(text)} characters; at most {MAX_TEXT_CHARACTERS} are read")
        try:
            if self._typed_text_action == "ask":
                return [AskMessage(type="ask", text=text)]
            spoken = TextMessage(type="text", text=text)
        except ValidationError as error:  # half of a surrogate pair
            raise BadCallMessage(describe_validation_error(error, "message")) from None
        return [CommandMessage(type="discard"), spoken, CommandMessage(type="end")]


def _envelope(text: str) -> dict[str, Any]:
    try:
        envelope = json.loads(text)
    except (ValueError, RecursionError):
        raise BadCallMessage("got a message that is not a JSON object") from None
    if not isinstance(envelope, dict):
        raise BadCallMessage("got a message that is not a JSON object")
    return envelope


def _rtvi(kind: str, data: dict[str, object] | None = None, message_id: str | None = None) -> str:
    envelope: dict[str, object] = {"label": _LABEL, "type": kind}
    if message_id is not None:
        envelope["id"] = message_id
    if data is not None:
        envelope["data"] = data
    return _to_json(envelope)


def _to_json(message: dict[str, object]) -> str:
    return json.dumps(message, separators=(",", ":"))
