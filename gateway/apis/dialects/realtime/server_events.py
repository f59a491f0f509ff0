"""Events of a Realtime server as pydantic models; ``beta_names`` turns them into those of the beta."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ...kits.openai.errors import OpenAIErrorDetail
from .models import Modality, RealtimeAudioFormat, RealtimeItem


def _without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nulls(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: _without_nulls(one) for name, one in value.items() if one is not None}


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class RealtimeError(OpenAIErrorDetail):
    """An error; the connection stays open."""

    event_id: Annotated[str | None, Field(description="Of the client's event at fault.")] = None


class RealtimeOutput(_Answer):
    """How audio is spoken and sent."""

    format: RealtimeAudioFormat
    voice: str
    speed: float = 1.0


class RealtimeInput(_Answer):
    """Audio of a microphone; nothing is done with it."""

    format: RealtimeAudioFormat = RealtimeAudioFormat()
    transcription: None = None
    noise_reduction: None = None
    turn_detection: None = None


class RealtimeAudioSettings(_Answer):
    """Audio of a connection."""

    input: RealtimeInput = RealtimeInput()
    output: RealtimeOutput


class RealtimeConnectionSettings(_Answer):
    """The ``session`` object."""

    type: Literal["realtime"] = "realtime"
    object: Literal["realtime.session"] = "realtime.session"
    id: str
    model: str
    output_modalities: list[Modality]
    instructions: str
    tools: list[Any] = []
    tool_choice: Literal["auto"] = "auto"
    max_output_tokens: Literal["inf"] = "inf"
    tracing: None = None
    truncation: Literal["auto"] = "auto"
    audio: RealtimeAudioSettings


class RealtimeResponseOutput(_Answer):
    """Audio of a response."""

    output: RealtimeOutput


class RealtimeStatusDetails(_Answer):
    """Why a response ended."""

    type: Literal["cancelled", "failed"]
    reason: Literal["client_cancelled"] | None = None
    error: OpenAIErrorDetail | None = None


class RealtimeOutputTokens(_Answer):
    """Output, by its kind."""

    text_tokens: int
    audio_tokens: int


class RealtimeUsage(_Answer):
    """Size of a response: characters of text, and 25 a second of speech."""

    total_tokens: int
    input_tokens: int
    output_tokens: int
    output_token_details: RealtimeOutputTokens


class RealtimeResponse(_Answer):
    """A response and its state."""

    object: Literal["realtime.response"] = "realtime.response"
    id: str
    status: Literal["in_progress", "completed", "cancelled", "failed"]
    status_details: RealtimeStatusDetails | None = None
    output: list[RealtimeItem]
    conversation_id: str | None
    output_modalities: list[Modality]
    max_output_tokens: Literal["inf"] = "inf"
    audio: RealtimeResponseOutput
    usage: RealtimeUsage | None = None
    metadata: dict[str, str] | None = None


class RealtimePart(_Answer):
    """A part of a response's item."""

    type: Modality
    text: str | None = None
    transcript: str | None = None


class RealtimeServerEvent(_Answer):
    """Base class of all events."""

    type: str
    event_id: str = ""  # set when it is sent

    def encode(self, event_id: str) -> dict[str, Any]:
        """Return the event as it is sent; items have no fields that are null, unlike everything else."""
        values = {**self.model_dump(mode="json"), "event_id": event_id}
        if "item" in values:
            values["item"] = _without_nulls(values["item"])
        if "response" in values:
            values["response"]["output"] = [_without_nulls(item) for item in values["response"]["output"]]
        return values


class RealtimeErrorEvent(RealtimeServerEvent):
    """An event was refused."""

    type: Literal["error"] = "error"
    error: RealtimeError


class RealtimeSettingsEvent(RealtimeServerEvent):
    """The settings of the connection."""

    type: Literal["session.created", "session.updated"]
    session: RealtimeConnectionSettings


class InputAudioClearedEvent(RealtimeServerEvent):
    """There is no audio of a microphone."""

    type: Literal["input_audio_buffer.cleared"] = "input_audio_buffer.cleared"


class RealtimeItemEvent(RealtimeServerEvent):
    """An item of the conversation."""

    type: Literal["conversation.item.added", "conversation.item.done", "conversation.item.retrieved"]
    previous_item_id: str | None = None
    item: RealtimeItem


class ItemDeletedEvent(RealtimeServerEvent):
    """An item has been removed."""

    type: Literal["conversation.item.deleted"] = "conversation.item.deleted"
    item_id: str


class ItemTruncatedEvent(RealtimeServerEvent):
    """An item has been cut to what was heard."""

    type: Literal["conversation.item.truncated"] = "conversation.item.truncated"
    item_id: str
    content_index: int = 0
    audio_end_ms: int
    transcript: Annotated[str, Field(description="What was heard; the service does not say it.")]


class RealtimeResponseEvent(RealtimeServerEvent):
    """The beginning or the end of a response."""

    type: Literal["response.created", "response.done"]
    response: RealtimeResponse


class RealtimeOutputItemEvent(RealtimeServerEvent):
    """The beginning or the end of a response's item."""

    type: Literal["response.output_item.added", "response.output_item.done"]
    response_id: str
    output_index: int = 0
    item: RealtimeItem


class _OfPart(RealtimeServerEvent):
    response_id: str
    item_id: str
    output_index: int = 0
    content_index: int = 0


class RealtimePartEvent(_OfPart):
    """The beginning or the end of a part."""

    type: Literal["response.content_part.added", "response.content_part.done"]
    part: RealtimePart


class RealtimeDeltaEvent(_OfPart):
    """A piece of audio in base64, of its transcript, or of a text."""

    type: Literal[
        "response.output_audio.delta", "response.output_audio_transcript.delta", "response.output_text.delta"
    ]
    delta: str


class RealtimeAudioDoneEvent(_OfPart):
    """The end of the audio."""

    type: Literal["response.output_audio.done"] = "response.output_audio.done"


class RealtimeTranscriptDoneEvent(_OfPart):
    """The end of the transcript."""

    type: Literal["response.output_audio_transcript.done"] = "response.output_audio_transcript.done"
    transcript: str


class RealtimeTextDoneEvent(_OfPart):
    """The end of a text."""

    type: Literal["response.output_text.done"] = "response.output_text.done"
    text: str


RealtimeServerMessage = Annotated[
    RealtimeErrorEvent
    | RealtimeSettingsEvent
    | InputAudioClearedEvent
    | RealtimeItemEvent
    | ItemDeletedEvent
    | ItemTruncatedEvent
    | RealtimeResponseEvent
    | RealtimeOutputItemEvent
    | RealtimePartEvent
    | RealtimeDeltaEvent
    | RealtimeAudioDoneEvent
    | RealtimeTranscriptDoneEvent
    | RealtimeTextDoneEvent,
    Field(discriminator="type"),
]
