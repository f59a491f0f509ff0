"""What goes over a socket that holds a call, as JSON text: the messages of a client, and events told to it.

    to us    text {text} | flush | end | discard | hang_up | speech {voice, speed} | on_speech {action}
    from us  started | speech_started | word | speech_finished | discarded | caller_speaking |
             caller_silent | dtmf | error {message, retry_after_s?} | hung_up

Programs (``calls_api``) and pages (``browser.session``, which knows a few more) say the same. Pure: text in,
values out.
"""

from typing import Annotated, Literal, TypeVar, assert_never

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ...tts_engine.errors import Overloaded, VivavoceError
from ..access.errors import RateLimited
from .call import CallerSpeechAction
from .events import (
    CallerAudio,
    CallerSilent,
    CallerSpeaking,
    CallEvent,
    HungUp,
    KeyPressed,
    SpeechDiscarded,
    SpeechFinished,
    SpeechStarted,
    WordHeard,
)

T = TypeVar("T")

MAX_TEXT_CHARACTERS = 64 * 1024  # characters in one message
MAX_MESSAGE_CHARACTERS = 8 * MAX_TEXT_CHARACTERS  # characters; every one of the text may be escaped
MAX_WAITING_CHARACTERS = 256 * 1024  # characters not yet pushed into a stream, all utterances together
SPEECH_FAILED_MESSAGE = "This could not be spoken; the server's log says why."


class CallMessage(BaseModel):
    """What a client says; a field that is not known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TextMessage(CallMessage):
    """A piece of text, split anywhere."""

    type: Literal["text"]
    text: Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS)]


class CommandMessage(CallMessage):
    """A message without anything else."""

    type: Literal["flush", "end", "discard", "hang_up"]


class SpeechMessage(CallMessage):
    """How the next utterances are said."""

    type: Literal["speech"]
    voice: str | None = None
    speed: Annotated[float, Field(ge=0.5, le=2.0)] = 1.0


class CallerSpeechActionMessage(CallMessage):
    """What happens when the caller begins to speak."""

    type: Literal["on_speech"]
    action: CallerSpeechAction


ClientMessage = TextMessage | CommandMessage | SpeechMessage | CallerSpeechActionMessage
_CLIENT_MESSAGE: TypeAdapter[ClientMessage] = TypeAdapter(
    Annotated[ClientMessage, Field(discriminator="type")]
)


class BadCallMessage(VivavoceError):
    """A message that the protocol does not have; the sentence says what is wrong with it."""


def parse_client_message(message: str) -> ClientMessage:
    """One text message of a client; raises BadCallMessage."""
    return validate_message(_CLIENT_MESSAGE, message)


def check_message_length(message: str) -> None:
    """Raise BadCallMessage where it is longer than any has to be, before anybody looks into it."""
    if len(message) > MAX_MESSAGE_CHARACTERS:
        raise BadCallMessage(
            f"a message of {len(message)} characters; at most {MAX_MESSAGE_CHARACTERS} are read"
        )


def validate_message(adapter: TypeAdapter[T], message: str) -> T:
    """A text message as one of these kinds; raises BadCallMessage."""
    check_message_length(message)
    try:
        return adapter.validate_json(message)
    except ValidationError as error:
        raise BadCallMessage(describe_validation_error(error, "message")) from None


def describe_validation_error(error: ValidationError, subject: str) -> str:
    """The first thing that is wrong, and where; ``whole``: what it is called where all of it is wrong."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place or subject}: {first['msg']}"


def describe_error(error: VivavoceError) -> dict[str, object]:
    """The message that tells a client what was not done, and after how many seconds to ask again, if ever."""
    message: dict[str, object] = {"type": "error", "message": str(error)}
    if isinstance(error, RateLimited | Overloaded):
        message["retry_after_s"] = round(error.retry_after_s, 1)
    return message


def describe_event(event: CallEvent) -> dict[str, object]:
    """An event as the JSON object that is sent for it; the caller's audio goes as bytes instead."""
    match event:
        case SpeechStarted(utterance):
            return {"type": "speech_started", "utterance": utterance}
        case WordHeard(utterance, word):
            return {
                "type": "word",
                "utterance": utterance,
                "text": word.text,
                "text_start": word.text_start,
                "text_stop": word.text_stop,
                "start_s": round(word.start_s, 4),
                "stop_s": round(word.stop_s, 4),
            }
        case SpeechFinished(utterance, outcome):
            return {"type": "speech_finished", "utterance": utterance, "outcome": outcome}
        case SpeechDiscarded(utterance, cut_ms, heard):
            return {
                "type": "discarded",
                "utterance": utterance,
                "cut_ms": round(cut_ms, 1),
                "heard": heard,
            }
        case CallerSpeaking():
            return {"type": "caller_speaking"}
        case CallerSilent():
            return {"type": "caller_silent"}
        case KeyPressed(digit):
            return {"type": "dtmf", "digit": digit}
        case HungUp():
            return {"type": "hung_up"}
        case CallerAudio(_, sample_rate):
            return {"type": "audio", "sample_rate": sample_rate}
        case _:
            assert_never(event)
