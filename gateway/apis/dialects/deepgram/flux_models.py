"""Messages of Deepgram's ``/v2/speak`` sockets, whose turns can be interrupted.

Source: deepgram-sdk 7.17.0 (speak/v2/types).
"""

from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter

from .models import DeepgramAnswer, DeepgramMessage, SpokenText


class FluxSpeakMessage(DeepgramMessage):
    """Text of the turn; begins one."""

    type: Literal["Speak"]
    text: SpokenText


class FluxFlushMessage(DeepgramMessage):
    """The turn's text ends."""

    type: Literal["Flush"]


class FluxPlaybackOffset(DeepgramMessage):
    """How much audio the client has played."""

    type: Literal["time_ms"]
    value: Annotated[int, Field(ge=0, description="Milliseconds of the session's audio.")]


class FluxInterruptMessage(DeepgramMessage):
    """Drop what has not been played."""

    type: Literal["Interrupt"]
    playback_offset: FluxPlaybackOffset | None = None


class FluxConfigureMessage(DeepgramMessage):
    """Change the speed of the turns that follow."""

    type: Literal["Configure"]
    speed: float | None = None


class FluxCloseMessage(DeepgramMessage):
    """Speak all text so far and close."""

    type: Literal["Close"]


FluxClientMessage = Annotated[
    FluxSpeakMessage | FluxFlushMessage | FluxInterruptMessage | FluxConfigureMessage | FluxCloseMessage,
    Field(discriminator="type"),
]
FLUX_CLIENT_MESSAGE: Final[TypeAdapter[FluxClientMessage]] = TypeAdapter(FluxClientMessage)


class FluxConnectedMessage(DeepgramAnswer):
    """The first message."""

    type: Literal["Connected"] = "Connected"
    request_id: str
    model_name: str
    model_version: str = "1"
    model_uuids: list[str]


class FluxSpeechStartedMessage(DeepgramAnswer):
    """A turn has begun."""

    type: Literal["SpeechStarted"] = "SpeechStarted"
    speech_id: str


class FluxFlushedMessage(DeepgramAnswer):
    """The text of a turn has ended; its audio may still come."""

    type: Literal["Flushed"] = "Flushed"
    speech_id: str


class FluxControlsApplied(DeepgramAnswer):
    """Inline controls, of which there are none here."""

    pronunciations_applied: int = 0
    breaks_applied: int = 0
    pronunciation_warnings: int = 0


class FluxTurnMetadata(DeepgramAnswer):
    """What a turn amounts to."""

    speech_id: str
    audio_duration_ms: int
    input_character_count: int
    billable_character_count: int
    controls_applied: FluxControlsApplied = FluxControlsApplied()


class FluxSpeechMetadataMessage(FluxTurnMetadata):
    """All audio of a turn has been sent."""

    type: Literal["SpeechMetadata"] = "SpeechMetadata"


class FluxSpeechInterruptedMessage(DeepgramAnswer):
    """A turn is over; ``text_spoken`` and ``text_remaining`` are there if the client said what it played."""

    type: Literal["SpeechInterrupted"] = "SpeechInterrupted"
    audio_played_ms: int
    text_spoken: str | None = None
    text_remaining: str | None = None
    metadata: FluxTurnMetadata


class FluxSessionMetadataMessage(DeepgramAnswer):
    """The last message: what the connection amounts to."""

    type: Literal["SessionMetadata"] = "SessionMetadata"
    total_audio_duration_ms: int
    total_input_character_count: int
    total_billable_character_count: int


class FluxAppliedConfiguration(DeepgramAnswer):
    """Settings of the turns that follow."""

    speed: float | None = None


class FluxConfigureSuccessMessage(DeepgramAnswer):
    """Settings have been changed."""

    type: Literal["ConfigureSuccess"] = "ConfigureSuccess"
    applied: FluxAppliedConfiguration


class FluxConfigureFailureMessage(DeepgramAnswer):
    """Settings stay as they were."""

    type: Literal["ConfigureFailure"] = "ConfigureFailure"
    code: str
    field: Literal["speed"] = "speed"
    value: float
    description: str


class FluxWarningMessage(DeepgramAnswer):
    """A message was ignored, or a turn has nothing to say."""

    type: Literal["Warning"] = "Warning"
    code: str
    description: str


class FluxErrorMessage(DeepgramAnswer):
    """The connection is over."""

    type: Literal["Error"] = "Error"
    code: str
    description: str


FluxServerMessage = Annotated[
    FluxConnectedMessage
    | FluxSpeechStartedMessage
    | FluxFlushedMessage
    | FluxSpeechMetadataMessage
    | FluxSpeechInterruptedMessage
    | FluxSessionMetadataMessage
    | FluxConfigureSuccessMessage
    | FluxConfigureFailureMessage
    | FluxWarningMessage
    | FluxErrorMessage,
    Field(discriminator="type"),
]
