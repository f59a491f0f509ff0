"""Events of a Realtime client as pydantic models; unknown fields are ignored, ``null`` equals an absent one.

Events of the beta name some fields otherwise; ``beta_names`` turns them into these first.

Source: platform.openai.com/docs/api-reference/realtime-client-events; openai 3.57.0 (types/realtime).
"""

from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from .....adapters.audio.encoders import AudioFormat
from .....tts_engine.chunk import SAMPLE_RATE
from ...kits.openai.errors import InvalidRequestError
from ...kits.openai.request_parsing import invalid_request_error
from ...kits.openai.speech_settings import Name, OpenAIRequest, VoiceName

MAX_TEXT_CHARACTERS: Final = 64 * 1024  # of one part of an item
_MAX_PARTS: Final = 64  # of an item
_MAX_ITEMS: Final = 128  # of one response's input
_Text = Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS)]
_Key = Annotated[str, Field(max_length=64)]
_Value = Annotated[str, Field(max_length=512)]
Modality = Literal["text", "audio"]


class RealtimeAudioFormat(OpenAIRequest):
    """An encoding of audio."""

    type: Literal["audio/pcm", "audio/pcmu", "audio/pcma"] = "audio/pcm"
    rate: Annotated[int, Field(description="Hz, of audio/pcm; the service has 24000 only.")] = SAMPLE_RATE

    @property
    def audio(self) -> AudioFormat:
        """The encoding in terms of the encoders; raises BadRequest for a rate that there is not."""
        if self.type == "audio/pcm":
            return AudioFormat("pcm", self.rate)
        return AudioFormat("ulaw" if self.type == "audio/pcmu" else "alaw", 8_000)


class RealtimeAudioOutput(OpenAIRequest):
    """How audio is spoken and sent."""

    format: RealtimeAudioFormat | None = None
    voice: VoiceName = None
    speed: Annotated[float, Field(ge=0.25, le=4.0)] | None = None


class RealtimeAudio(OpenAIRequest):
    """Audio of a connection; what is heard is not processed."""

    output: RealtimeAudioOutput = RealtimeAudioOutput()


class RealtimeSettings(OpenAIRequest):
    """What ``session.update`` changes; absent fields stay as they are."""

    instructions: Annotated[_Text | None, Field(description="Kept and repeated, without effect.")] = None
    output_modalities: Annotated[list[Modality], Field(max_length=2)] | None = None
    audio: RealtimeAudio = RealtimeAudio()


class RealtimeContent(BaseModel):
    """A part of an item; audio that a client adds is not kept."""

    model_config = ConfigDict(strict=True, extra="ignore")

    type: Annotated[str, Field(max_length=32)]
    text: _Text | None = None
    transcript: _Text | None = None


class RealtimeItem(BaseModel):
    """An item of the conversation: a message, or a call of a function and its result."""

    model_config = ConfigDict(strict=True, extra="ignore")

    id: Annotated[str, Field(max_length=64)] | None = None
    object: Literal["realtime.item"] = "realtime.item"
    type: Annotated[str, Field(max_length=64)]
    status: Annotated[str, Field(max_length=32)] | None = None
    role: Literal["assistant", "user", "system"] | None = None
    content: Annotated[list[RealtimeContent], Field(max_length=_MAX_PARTS)] | None = None
    name: Name | None = None
    call_id: Name | None = None
    arguments: _Text | None = None
    output: _Text | None = None

    @property
    def text(self) -> str:
        """The text of a message."""
        return "".join(part.text or part.transcript or "" for part in self.content or ())

    @property
    def characters(self) -> int:
        """Characters that are kept of it."""
        return len(self.text) + len(self.arguments or "") + len(self.output or "")


class RealtimeResponseSettings(RealtimeSettings):
    """What ``response.create`` asks for; absent fields are the connection's."""

    instructions: Annotated[
        _Text | None,
        Field(description="Manner of speaking; the text itself if there is no item to speak."),
    ] = None
    conversation: Literal["auto", "none"] = "auto"
    input: Annotated[list[RealtimeItem], Field(max_length=_MAX_ITEMS)] | None = None
    metadata: Annotated[dict[_Key, _Value], Field(max_length=16)] | None = None


class _ClientEvent(OpenAIRequest):
    event_id: Annotated[Name | None, Field(description="Repeated in an error.")] = None


class SessionUpdateEvent(_ClientEvent):
    """Change the settings of the responses that begin from now on."""

    type: Literal["session.update"]
    session: RealtimeSettings


class InputAudioAppendEvent(_ClientEvent):
    """Audio of a microphone; not listened to."""

    type: Literal["input_audio_buffer.append"]


class InputAudioCommitEvent(_ClientEvent):
    """Make an item of the audio; an error, because none is kept."""

    type: Literal["input_audio_buffer.commit"]


class InputAudioClearEvent(_ClientEvent):
    """Drop the audio."""

    type: Literal["input_audio_buffer.clear"]


class ItemCreateEvent(_ClientEvent):
    """Add an item to the conversation."""

    type: Literal["conversation.item.create"]
    previous_item_id: Annotated[Name | None, Field(description="'root' is the beginning.")] = None
    item: RealtimeItem


class ItemRetrieveEvent(_ClientEvent):
    """Ask for an item."""

    type: Literal["conversation.item.retrieve"]
    item_id: Name


class ItemTruncateEvent(_ClientEvent):
    """Cut an item to what has been heard of it."""

    type: Literal["conversation.item.truncate"]
    item_id: Name
    content_index: Literal[0] = 0
    audio_end_ms: Annotated[int, Field(ge=0, le=2**53, description="Milliseconds of it that were heard.")]


class ItemDeleteEvent(_ClientEvent):
    """Remove an item."""

    type: Literal["conversation.item.delete"]
    item_id: Name


class ResponseCreateEvent(_ClientEvent):
    """Speak."""

    type: Literal["response.create"]
    response: RealtimeResponseSettings = RealtimeResponseSettings()


class ResponseCancelEvent(_ClientEvent):
    """Speak no more of a response, or of all that there are."""

    type: Literal["response.cancel"]
    response_id: Name | None = None


RealtimeClientEvent = Annotated[
    SessionUpdateEvent
    | InputAudioAppendEvent
    | InputAudioCommitEvent
    | InputAudioClearEvent
    | ItemCreateEvent
    | ItemRetrieveEvent
    | ItemTruncateEvent
    | ItemDeleteEvent
    | ResponseCreateEvent
    | ResponseCancelEvent,
    Field(discriminator="type"),
]
_EVENT: Final[TypeAdapter[RealtimeClientEvent]] = TypeAdapter(RealtimeClientEvent)
_EVENT_MODELS: Final = get_args(get_args(RealtimeClientEvent)[0])
_TYPES: Final = [get_args(model.model_fields["type"].annotation)[0] for model in _EVENT_MODELS]


def parse_realtime_event(values: dict[str, Any]) -> RealtimeClientEvent:
    """Validate a client's event; raises InvalidRequestError."""
    try:
        return _EVENT.validate_python(values)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        if fault["type"] in ("union_tag_not_found", "union_tag_invalid"):
            sentence = f"Invalid value: {str(values.get('type'))[:64]!r}. Supported values are: "
            raise InvalidRequestError(sentence + ", ".join(_TYPES), "type", "invalid_value") from None
        raise invalid_request_error(error, ItemTruncateEvent, RealtimeAudioOutput) from None
