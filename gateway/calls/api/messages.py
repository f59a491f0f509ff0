"""Messages between a call and its attached peers: programs on a WebSocket, pages on a data channel.

    client -> server   text | flush | end | play | discard | hang_up | transfer | record | speech |
                       on_speech | ask | dtmf | send_keys
    server -> client   started | resumed | audio | speech_started | word | mark | speech_finished |
                       discarded | caller_speaking | caller_silent | dtmf | hold | call_state | answered_by |
                       recording | error | hung_up
                       with all events: utterance | stats, and more fields of speech_started

Each is a JSON object with a ``type``. Pure: text in, values out.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ....adapters.answerer import Answerer
from ....tts_engine.errors import BadRequest
from ...web.client_json import require_few_values
from ..call_options import CallerSpeechAction
from ..outgoing.states import OutgoingState
from ..transfers import RefusedTransferAction
from ..utterance_tracker import UtteranceOutcome

MAX_TEXT_CHARACTERS = 64 * 1024  # in one message
MAX_MESSAGE_CHARACTERS = 8 * MAX_TEXT_CHARACTERS  # of JSON, in which every character may be escaped


class CallMessage(BaseModel):
    """Base of all messages; an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def fields(self) -> dict[str, Any]:
        """Return the JSON object; optional fields that were not given are left out."""
        return self.model_dump(mode="json", exclude_unset=True)


MAX_RESULT_CHARACTERS = 1000
ResultText = Annotated[
    str,
    Field(
        max_length=MAX_RESULT_CHARACTERS, description="Result of the call, for the telephone system to read."
    ),
]

# Client to server


class TextMessage(CallMessage):
    """Text of the current utterance; the first text after an ``end`` or ``discard`` begins a new one.

    If the caller or another peer interrupts an utterance before its ``end``, the text that still comes for it
    is dropped, up to the next ``end`` or ``discard``. The first piece that is dropped is answered with an
    ``error``.

    Text that begins with ``<speak``, first in an utterance or after a document or a ``flush``, is an SSML
    document. It is spoken when its end has come. One that is not well-formed is answered with an ``error``
    that has line and column, and the rest of its utterance is dropped.
    """

    type: Literal["text"]
    text: str = Field(
        max_length=MAX_TEXT_CHARACTERS, description="A piece of text, split anywhere, even mid-word."
    )


class SoundToPlay(CallMessage):
    """A sound file, as an utterance of its own."""

    file: str = Field(
        min_length=1,
        max_length=1000,
        description="Name in the folder of sounds, or a URL.",
        examples=["menu.mp3"],
    )
    marks: dict[
        Annotated[str, Field(min_length=1, max_length=256)],
        Annotated[float, Field(ge=0, allow_inf_nan=False)],
    ] = Field(
        default={}, max_length=100, description="Seconds from its beginning, by the names of the marks."
    )


class PlayMessage(SoundToPlay):
    """Plays a sound file after what was written so far; the current utterance is complete.

    It has no words: `speech_started`, `mark`, `speech_finished` and `discarded` tell how far it was heard.
    """

    type: Literal["play"]


class CommandMessage(CallMessage):
    """A message without other fields."""

    type: Literal["flush", "end", "discard"] = Field(
        description="flush: speak the text so far without waiting for the end of a sentence. "
        "end: the current utterance is complete. "
        "discard: stop speaking and drop every utterance that waits; answered with `discarded`."
    )


class HangUpMessage(CallMessage):
    """Ends the call."""

    type: Literal["hang_up"]
    result: ResultText = ""
    after_speech: bool = Field(
        default=False, description="Not before what was written so far is heard, at most 60 s later."
    )


class AttendedOptions(BaseModel):
    """How the target of an attended transfer is called."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    announcement: str = Field(
        default="", max_length=1000, description="Spoken to the one who answers, before the caller is joined."
    )
    ring_s: float = Field(
        default=30.0, ge=1, le=300, allow_inf_nan=False, description="Seconds to wait for an answer."
    )


class TransferOrder(CallMessage):
    """Where to transfer a caller."""

    to: str = Field(
        pattern=r"^[\w.+*#@:;=/-]{1,200}$",
        description="Number, extension or SIP URI; over ARI also `call:ID`, the caller of another call. "
        "An attended transfer goes to an extension, or to an endpoint such as `PJSIP/200`.",
        examples=["200"],
    )
    result: ResultText = ""
    attended: AttendedOptions | None = Field(
        default=None,
        description="Call the target first; if it cannot be reached, the call goes on. Over ARI only.",
    )
    if_refused: RefusedTransferAction = Field(
        default=RefusedTransferAction.KEEP,
        description="If the caller's telephone refuses a transfer to an address: keep the call, or let "
        "the caller go on in the dial plan.",
    )


class TransferMessage(TransferOrder):
    """Transfers the caller and ends the call; if the transfer fails, an `error` says why."""

    type: Literal["transfer"]


class RecordMessage(CallMessage):
    """Begins or ends a recording of the call; answered with `recording`."""

    type: Literal["record"]
    on: bool = True


class SpeechMessage(CallMessage):
    """Voice and speed of the utterances that begin after this message."""

    type: Literal["speech"]
    voice: str | None = Field(default=None, description="Voice id or alias; null for the default voice.")
    speed: float = Field(default=1.0, ge=0.5, le=2.0, description="Factor of the voice's natural speed.")


class CallerSpeechActionMessage(CallMessage):
    """Sets what the call does when the caller begins to speak."""

    type: Literal["on_speech"]
    action: CallerSpeechAction = Field(
        description="tell: send `caller_speaking`. discard: also stop speaking, as a barge-in."
    )


class AskMessage(CallMessage):
    """A question for the language model, which interrupts the call and is answered aloud."""

    type: Literal["ask"]
    text: str = Field(min_length=1, max_length=MAX_TEXT_CHARACTERS, description="The question.")


class KeyMessage(CallMessage):
    """A key pressed on behalf of the caller, as on the keypad of the page."""

    type: Literal["dtmf"]
    digit: str = Field(pattern=r"^[0-9*#A-D]$", description="One of 0-9 * # A-D.")


class KeysOrder(CallMessage):
    """Keys of the far end to press."""

    digits: str = Field(
        pattern=r"^[0-9*#A-Dw]{1,64}$",
        description="Of 0-9 * # A-D; w is a pause of half a second.",
        examples=["2w1234#"],
    )


class SendKeysMessage(KeysOrder):
    """Presses keys of the far end, as to get through its menu, after the utterance being spoken."""

    type: Literal["send_keys"]


ClientMessage = (
    TextMessage
    | PlayMessage
    | CommandMessage
    | HangUpMessage
    | TransferMessage
    | RecordMessage
    | SpeechMessage
    | CallerSpeechActionMessage
    | AskMessage
    | KeyMessage
    | SendKeysMessage
)
CLIENT_MESSAGE: TypeAdapter[ClientMessage] = TypeAdapter(
    Annotated[ClientMessage, Field(discriminator="type")]
)

# Server to client


class VoiceDescription(CallMessage):
    """A voice that ``speech`` may name."""

    id: str = Field(description="Id for `speech`.")
    name: str = Field(description="Name to show.")
    language: str = Field(description="BCP 47 tag.")
    description: str


class CallerDescription(CallMessage):
    """The caller, as far as the way in tells; unknown fields are empty."""

    number: str
    name: str
    called: str = Field(description="Number or extension that was called.")
    variables: dict[str, str]


KnownAnswerer = Annotated[
    Answerer | None,
    Field(description="What answered; null if that is not known, or `detect_answer` was not asked for."),
]


class CallDescription(CallMessage):
    """A call that is up."""

    call: str = Field(description="Id of the call.")
    kind: str = Field(description="How the call came in: audiosocket, rtp, webrtc, asterisk, or a carrier.")
    peer: str = Field(description="Network address of the caller.")
    caller: CallerDescription
    opened_at: float = Field(description="Unix seconds.")
    held: bool = Field(description="Whether a program is attached to the call.")
    on_hold: bool = Field(description="Whether the caller put the call on hold.")
    answered_by: KnownAnswerer
    sample_rate: int = Field(description="Hz, of the speech sent; the caller's is in `audio`.")


SipStatus = Annotated[
    int | None, Field(description="SIP status, or the one that says the same; null if none is known.")
]


class OutgoingDescription(CallMessage):
    """A call that the gateway makes or made, and that is not up."""

    call: str = Field(description="Id of the call.")
    kind: str
    caller: CallerDescription
    placed_at: float = Field(description="Unix seconds.")
    state: OutgoingState
    sip: SipStatus
    answered_by: KnownAnswerer


class CallStartedMessage(CallDescription):
    """The first message: the peer is attached to the call."""

    type: Literal["started"]
    voices: list[VoiceDescription] = Field(description="Voices that `speech` may name.")
    voice: str | None = Field(description="Id of the current voice; null if it may not be named.")
    speed: float = Field(description="Current speed factor.")
    answers: bool = Field(description="Whether a language model answers `ask`.")


class ResumedMessage(CallMessage):
    """First on another socket of a program, which goes on with its call; it is not counted in `received`.

    The messages that the program has not received come next.
    """

    type: Literal["resumed"]
    call: str = Field(description="Id of the call.")
    taken: int = Field(description="Messages of the program that were taken, over all its sockets.")
    missed: int = Field(description="Messages that are not sent again: more than 1000 were missed.")


class AudioFormatMessage(CallMessage):
    """Format of the binary messages that follow; sent before the first one and at each change."""

    type: Literal["audio"]
    sample_rate: int = Field(description="Hz, of the caller's audio.")
    encoding: Literal["pcm_s16le"] = Field(description="16-bit samples, little-endian, mono.")


class UtteranceTextMessage(CallMessage):
    """Text as it is written, by any writer on the call and before it is spoken. With all events only."""

    type: Literal["utterance"]
    turn: int = Field(description="Number of the utterance in the order of writing, from 0.")
    text: str = Field(description="At most 8192 characters, to be appended.")


class SpeechStartedMessage(CallMessage):
    """The first audio of an utterance is ready."""

    type: Literal["speech_started"]
    utterance: int = Field(description="Number of the utterance in the order of speech, from 0.")
    turn: int = Field(default=0, description="The turn it was written as. With all events only.")
    after_text_ms: float = Field(
        default=0.0, description="From its first text to its first audio. With all events only."
    )


class WordMessage(CallMessage):
    """A word that the caller has heard."""

    type: Literal["word"]
    utterance: int
    text: str
    text_start: int = Field(description="Its first character in the text of the utterance.")
    text_stop: int = Field(description="The character after its last one.")
    start_s: float = Field(description="Seconds from the start of the utterance's audio.")
    stop_s: float = Field(description="Seconds from the start of the utterance's audio.")


class MarkMessage(CallMessage):
    """A mark of an SSML document that the caller has heard: the words before it, and none after it."""

    type: Literal["mark"]
    utterance: int
    name: str
    at_s: float = Field(description="Seconds from the start of the utterance's audio.")


class SpeechFinishedMessage(CallMessage):
    """An utterance has been played to its end."""

    type: Literal["speech_finished"]
    utterance: int
    outcome: UtteranceOutcome


class DiscardedMessage(CallMessage):
    """A barge-in, of this peer or not. Every ``discard`` is answered with one."""

    type: Literal["discarded"]
    utterance: int | None = Field(description="The utterance that was cut; null if none was playing.")
    cut_ms: float = Field(description="Speech that was dropped.")
    heard: str = Field(description="Text of the utterance up to the last word heard.")
    marks: list[str] = Field(description="Names of its marks that were heard.")
    heard_s: float = Field(description="Seconds of its audio that were heard.")


class CallerSpeakingMessage(CallMessage):
    """The caller began to speak."""

    type: Literal["caller_speaking"]


class CallerSilentMessage(CallMessage):
    """The caller stopped speaking."""

    type: Literal["caller_silent"]


class KeyPressedMessage(CallMessage):
    """The caller pressed a key."""

    type: Literal["dtmf"]
    digit: str = Field(description="One of 0-9 * # A-D.")


class HoldMessage(CallMessage):
    """The caller put the call on hold, or is back. Meanwhile speech waits; it goes on at a word."""

    type: Literal["hold"]
    on: bool


class AnswererMessage(CallMessage):
    """What answered a call that the gateway makes, if `detect_answer` was asked for."""

    type: Literal["answered_by"]
    by: Answerer
    at_s: float = Field(description="Seconds of audio after the answer.")


class OutgoingStateMessage(CallMessage):
    """A call that the gateway makes has come further."""

    type: Literal["call_state"]
    state: OutgoingState
    sip: SipStatus


class RecordingMessage(CallMessage):
    """A recording has begun or ended, as this peer asked, or ended by itself."""

    type: Literal["recording"]
    on: bool
    file: str = Field(description="Name of the file in `recordings`; empty if there was none.")
    error: str | None = Field(default=None, description="Why it ended by itself, with its name; else absent.")


class CallStatsMessage(CallMessage):
    """Counters of the call, once a second. With all events only."""

    type: Literal["stats"]
    lead_ms: int = Field(description="Speech that is ready and not yet played.")
    packets: int = Field(description="Packets sent, silence included.")
    late_packets: int = Field(description="Of these, sent more than 20 ms late.")
    skipped_packets: int = Field(description="Packets left out after a stall of the server.")
    underruns: int = Field(description="Gaps of more than 60 ms in speech.")


class CallErrorMessage(CallMessage):
    """A message was not executed, or speech failed; the call goes on."""

    type: Literal["error"]
    message: str
    retry_after_s: float | None = Field(
        default=None, description="Seconds after which it may succeed; absent if it never will."
    )


class HungUpMessage(CallMessage):
    """The last message: the call has ended."""

    type: Literal["hung_up"]
    reason: str | None = Field(
        default=None, description="Why the server ended a browser's call; absent on other calls."
    )


ServerMessage = (
    CallStartedMessage
    | ResumedMessage
    | AudioFormatMessage
    | UtteranceTextMessage
    | SpeechStartedMessage
    | WordMessage
    | MarkMessage
    | SpeechFinishedMessage
    | DiscardedMessage
    | CallerSpeakingMessage
    | CallerSilentMessage
    | KeyPressedMessage
    | HoldMessage
    | AnswererMessage
    | OutgoingStateMessage
    | RecordingMessage
    | CallStatsMessage
    | CallErrorMessage
    | HungUpMessage
)


class BadCallMessage(BadRequest):
    """A message that the protocol does not have, or that does not fit now."""


def parse_client_message(message: str) -> ClientMessage:
    """Parse one JSON message of a client; raises BadCallMessage."""
    check_message_length(message)
    try:
        return CLIENT_MESSAGE.validate_json(message)
    except ValidationError as error:
        raise BadCallMessage(describe_validation_error(error, "message")) from None


def check_message_length(message: str) -> None:
    """Raise BadCallMessage if the message is too long to be parsed."""
    if len(message) > MAX_MESSAGE_CHARACTERS:
        raise BadCallMessage(
            f"a message of {len(message)} characters; at most {MAX_MESSAGE_CHARACTERS} are read"
        )
    try:
        require_few_values(message)
    except ValueError as error:
        raise BadCallMessage(f"a message of {error}") from None


def describe_validation_error(error: ValidationError, subject: str) -> str:
    """Return the first fault and its field, or ``subject`` where the fault is not in one field."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    return f"{field or subject}: {first['msg']}"
