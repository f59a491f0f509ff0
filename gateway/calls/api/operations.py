"""OpenAPI descriptions of the calls API, and the models of its answers."""

from typing import Annotated, Any, Final

from pydantic import BaseModel, Field, RootModel

from ...web.errors import native_errors
from ...web.openapi.operations import (
    Responses,
    WebSocketOperation,
    json_body,
    json_response,
    links,
    operation,
)
from ..utterance_tracker import UtteranceOutcome
from .messages import (
    CallDescription,
    ClientMessage,
    KeysOrder,
    OutgoingDescription,
    ServerMessage,
    SoundToPlay,
    TransferOrder,
)
from .request_bodies import FORM, CallAnnouncement


def _json_or_text(model: type[BaseModel]) -> Responses:
    return {200: {"model": model, "description": "OK", "content": {"text/plain": {}}}}


def _announcement_body() -> dict[str, Any]:
    body = json_body(CallAnnouncement)
    content = body["requestBody"]["content"]
    content[FORM] = content["application/json"]
    return body


_NO_CALL: Final = {404: "No such call is up."}


class AnyCallDescription(RootModel[CallDescription | OutgoingDescription]):
    """A call that is up, or one that the gateway makes and that is not."""


class CallList(BaseModel):
    """The calls that are up."""

    calls: list[CallDescription]


class HungUpCall(BaseModel):
    """A call that has been hung up."""

    call: str
    status: str = Field(json_schema_extra={"const": "hung up"})


class SentKeys(BaseModel):
    """Keys that the far end has got."""

    call: str
    digits: str


class TransferredCall(BaseModel):
    """A call whose caller is being transferred."""

    call: str
    status: str = Field(json_schema_extra={"const": "transferred"})


class ResultOfCall(BaseModel):
    """What a program decided on a call; empty if it decided nothing."""

    call: str
    value: str
    transfer_to: str


class ExpectedCallId(BaseModel):
    """The id under which the call is expected."""

    call: str


class RecordingOfCall(BaseModel):
    """A recording that has begun or ended."""

    call: str
    file: str = Field(description="Name of the file in `recordings`.")


class DiscardedSpeech(BaseModel):
    """Speech that has been interrupted."""

    cut_ms: float = Field(description="Speech that was dropped.")
    heard: str = Field(description="Text up to the last word heard.")
    words: list[str] = Field(description="The words of that text.")
    marks: list[str] = Field(description="Names of the marks that were heard.")
    heard_s: float = Field(description="Seconds of the utterance's audio that were heard.")


class PlayedSound(BaseModel):
    """The end of a sound."""

    call: str
    file: str
    outcome: UtteranceOutcome


class SpokenText(BaseModel):
    """The end of a text's speech."""

    call: str
    outcome: UtteranceOutcome


LIST_CALLS: Final = operation(
    "listCalls",
    "List the calls that are up.",
    json_response(
        CallList, links=links("call_id", "/calls/0/call", "getCall", "discard", "sayOnCall", "hangUp")
    ),
    native_errors(),
)
GET_CALL: Final = operation(
    "getCall",
    "Look a call up; one that the gateway makes also while it rings, and for 10 minutes after its end.",
    json_response(AnyCallDescription),
    native_errors(_NO_CALL),
)
SEND_KEYS: Final = operation(
    "sendKeys",
    "Press keys of the far end, after the utterance being spoken; answered when they are sent.",
    json_response(SentKeys),
    native_errors({400: "The body is wrong."}, _NO_CALL, {429: "The key has exceeded a limit."}),
    body=json_body(KeysOrder),
)
HANG_UP: Final = operation(
    "hangUp",
    "Hang up, with after_speech=true when the speech is heard; or cancel a call that rings.",
    json_response(HungUpCall),
    native_errors({400: "The result is too long."}, _NO_CALL),
)
TRANSFER: Final = operation(
    "transfer",
    "Transfer the caller, and hang up; answered when that is done, or cannot be.",
    json_response(TransferredCall),
    native_errors(
        {400: "The body is wrong, or a call of this kind cannot be transferred."},
        _NO_CALL,
        {409: "The target could not be reached, or the caller's telephone refused; the call goes on."},
    ),
    body=json_body(TransferOrder),
)
BEGIN_RECORDING: Final = operation(
    "beginRecording",
    "Record a call from now on. A call that is recorded goes on to be.",
    json_response(RecordingOfCall),
    native_errors({400: "Calls cannot be recorded here."}, _NO_CALL, {503: "The file cannot be written."}),
)
END_RECORDING: Final = operation(
    "endRecording",
    "End the recording of a call.",
    json_response(RecordingOfCall),
    native_errors({400: "The call is not recorded."}, _NO_CALL, {503: "The file cannot be written."}),
)
GET_RESULT: Final = operation(
    "getResult",
    "Look up what a program decided on a call, up to 10 minutes after its end; with `field`, as plain text.",
    _json_or_text(ResultOfCall),
    native_errors({400: "No such field."}, {404: "No such call is up or has ended lately."}),
)
EXPECT_CALL: Final = operation(
    "expectCall",
    "Announce a call before it comes in. A form is answered with the id as plain text.",
    _json_or_text(ExpectedCallId),
    native_errors({400: "The body is wrong, or no such agent is configured."}),
    body=_announcement_body(),
)
DISCARD: Final = operation(
    "discard", "Interrupt the speech.", json_response(DiscardedSpeech), native_errors(_NO_CALL)
)
SPEAK: Final = operation(
    "sayOnCall",
    "Speak the body as it arrives; the answer comes when it has been heard.",
    json_response(SpokenText),
    native_errors(
        {400: "The voice can read no word of the text, or an SSML document has a fault."},
        _NO_CALL,
        {409: "Another program is attached to the call."},
        {429: "The key has exceeded a limit; the text before that is spoken."},
    ),
    body={
        "requestBody": {"content": {"text/plain": {"schema": {"type": "string"}, "example": "Good morning."}}}
    },
)
PLAY: Final = operation(
    "playOnCall",
    "Play a sound file after what is being spoken; the answer comes when it has been heard.",
    json_response(PlayedSound),
    native_errors(
        {400: "The body is wrong, or the file cannot be played."},
        {404: "No such call is up, or no such file is there."},
        {409: "Another program is attached to the call."},
        {429: "The key has exceeded a limit."},
    ),
    body=json_body(SoundToPlay),
)
CALL_SOCKET: Final = WebSocketOperation(
    "/v1/calls/{call_id}/socket",
    "Attach to a call; id 'next' waits for one.",
    Annotated[ClientMessage, Field(discriminator="type")],
    Annotated[ServerMessage, Field(discriminator="type")],
)
