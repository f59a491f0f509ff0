"""What goes over a socket that holds a call, as JSON text: the messages of a client, and events told to it.

    to us    text {text} | flush | end | discard | hang_up | speech {voice, speed} | on_speech {action}
    from us  started | speech_started | word | speech_finished | discarded | caller_speaking |
             caller_silent | dtmf | error {message, retry_after_s?} | hung_up

Programs (``calls_api``) and pages (``browser.session``, which knows a few more) say the same. Pure: text in,
values out.
"""

from typing import Annotated, Literal, TypeVar, assert_never

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ..tts_engine.errors import Overloaded, VivavoceError
from .access.errors import RateLimited
from .call import OnSpeech
from .call_events import (
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

MOST_TEXT = 64 * 1024  # characters in one message
MOST_MESSAGE = 8 * MOST_TEXT  # characters; every one of the text may be escaped
MOST_WAITING = 256 * 1024  # characters not yet pushed into a stream, all utterances together
NOT_SPOKEN = "This could not be spoken; the server's log says why."


class Message(BaseModel):
    """What a client says; a field that is not known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TextMessage(Message):
    """A piece of text, split anywhere."""

    type: Literal["text"]
    text: Annotated[str, Field(max_length=MOST_TEXT)]


class CommandMessage(Message):
    """A message without anything else."""

    type: Literal["flush", "end", "discard", "hang_up"]


class SpeechMessage(Message):
    """How the next utterances are said."""

    type: Literal["speech"]
    voice: str | None = None
    speed: Annotated[float, Field(ge=0.5, le=2.0)] = 1.0


class OnSpeechMessage(Message):
    """What happens when the caller begins to speak."""

    type: Literal["on_speech"]
    action: OnSpeech


ClientMessage = TextMessage | CommandMessage | SpeechMessage | OnSpeechMessage
_CLIENT_MESSAGE: TypeAdapter[ClientMessage] = TypeAdapter(
    Annotated[ClientMessage, Field(discriminator="type")]
)


class BadMessage(VivavoceError):
    """A message that the protocol does not have; the sentence says what is wrong with it."""


def parse(message: str) -> ClientMessage:
    """One text message of a client; raises BadMessage."""
    return read(_CLIENT_MESSAGE, message)


def check_length(message: str) -> None:
    """Raise BadMessage where it is longer than any has to be, before anybody looks into it."""
    if len(message) > MOST_MESSAGE:
        raise BadMessage(f"a message of {len(message)} characters; at most {MOST_MESSAGE} are read")


def read(kinds: TypeAdapter[T], message: str) -> T:
    """A text message as one of these kinds; raises BadMessage."""
    check_length(message)
    try:
        return kinds.validate_json(message)
    except ValidationError as error:
        raise BadMessage(complaint(error, "message")) from None


def complaint(error: ValidationError, whole: str) -> str:
    """The first thing that is wrong, and where; ``whole``: what it is called where all of it is wrong."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place or whole}: {first['msg']}"


def describe_error(error: VivavoceError) -> dict[str, object]:
    """The message that tells a client what was not done, and after how many seconds to ask again, if ever."""
    message: dict[str, object] = {"type": "error", "message": str(error)}
    if isinstance(error, RateLimited | Overloaded):
        message["retry_after_s"] = round(error.retry_after_s, 1)
    return message


def describe(event: CallEvent) -> dict[str, object]:
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
