"""JSON messages of the native stream as pydantic models, in vLLM-Omni's shape.

    client   session.config  input.text*  input.done     input.text* ...      session.close
    server       audio.start  audio.words? audio.marks?  (binary)* ... audio.done  session.done

``audio.phonemes`` comes with ``audio.words``. Both, ``input.flush``, ``input.cancel``, ``audio.marks`` and
``code`` in errors are not vLLM-Omni's. Binary messages are audio. ``connection`` has the order of the
messages.

Source: vLLM-Omni at 0131cb55, entrypoints/openai/serving_speech_stream.py.
"""

from typing import Annotated, Final, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from .....adapters.audio.encoders import Codec
from .....tts_engine.chunk import Word
from ...kits.openai.errors import InvalidRequestError
from ...kits.openai.request_parsing import invalid_request_error, parse_json_object
from ...kits.openai.speech_settings import OpenAIRequest, OpenAISpeechSettings
from ...kits.request_fields import CodecName
from ...kits.visemes import MouthMovement

MAX_TEXT_CHARACTERS: Final = 64 * 1024  # of one message


def _refuse_word_timestamps(word_timestamps: bool) -> bool:
    if word_timestamps:
        problem = "'word_timestamps' is not supported; set 'word_times' to receive audio.words messages"
        raise PydanticCustomError("unsupported", problem)
    return word_timestamps


class SessionConfig(OpenAISpeechSettings):
    """Settings of the utterances that begin after it; null equals an absent field."""

    type: Literal["session.config"]
    response_format: Annotated[CodecName, Field(description="Encoding of the audio.")] = "wav"
    word_times: Annotated[bool, Field(description="Whether audio.words messages are sent.")] = False
    phoneme_times: Annotated[bool, Field(description="Whether audio.phonemes messages are sent.")] = False
    word_timestamps: Annotated[
        bool,
        AfterValidator(_refuse_word_timestamps),
        Field(description="vLLM-Omni's, which sends audio inside JSON. Must be false."),
    ] = False


class InputTextMessage(OpenAIRequest):
    """More text of the utterance, split anywhere; the first one begins it."""

    type: Literal["input.text"]
    text: Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS)]


class InputFlushMessage(OpenAIRequest):
    """Speak the buffered text without waiting for more."""

    type: Literal["input.flush"]


class InputDoneMessage(OpenAIRequest):
    """The utterance's text is complete; the connection stays open for another."""

    type: Literal["input.done"]


class InputCancelMessage(OpenAIRequest):
    """Drop the utterance, and every one before it that is not yet sent."""

    type: Literal["input.cancel"]


class SessionCloseMessage(OpenAIRequest):
    """Close the connection."""

    type: Literal["session.close"]


NativeStreamMessage = Annotated[
    SessionConfig
    | InputTextMessage
    | InputFlushMessage
    | InputDoneMessage
    | InputCancelMessage
    | SessionCloseMessage,
    Field(discriminator="type"),
]
_MESSAGE: TypeAdapter[NativeStreamMessage] = TypeAdapter(NativeStreamMessage)
_MESSAGE_MODELS: Final = get_args(get_args(NativeStreamMessage)[0])


def parse_message(data: str | bytes) -> NativeStreamMessage:
    """Parse a client's message; raises InvalidRequestError."""
    if isinstance(data, bytes):
        raise InvalidRequestError("got a binary message; only text messages are understood")
    values = parse_json_object(data)
    try:
        return _MESSAGE.validate_python(values)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        match fault["type"], fault["loc"]:
            case (("union_tag_not_found" | "union_tag_invalid"), _):
                allowed = ", ".join(
                    get_args(model.model_fields["type"].annotation)[0] for model in _MESSAGE_MODELS
                )
                raise InvalidRequestError(
                    f"Unknown message type: {values.get('type')!r}; there are {allowed}"
                ) from None
            case "missing", (message_type, field):
                raise InvalidRequestError(f"{message_type} requires a string value", str(field)) from None
        raise invalid_request_error(error, *_MESSAGE_MODELS) from None


class NativeStreamAnswer(BaseModel):
    """Base class of the server's messages; fields that are None are left out."""

    model_config = ConfigDict(frozen=True)

    def encode(self) -> str:
        """Return the message's JSON text."""
        return self.model_dump_json(exclude_none=True)


class AudioStart(NativeStreamAnswer):
    """Audio of an utterance follows."""

    type: Literal["audio.start"] = "audio.start"
    utterance_index: Annotated[int, Field(description="Utterances are counted from 0 on a connection.")]
    sentence_index: Literal[0] = 0
    sentence_text: Annotated[str, Field(description="The text that has come so far.")]
    format: Codec
    sample_rate: Annotated[int, Field(description="Hz.")]
    channels: Literal[1] = 1


class WordTime(BaseModel):
    """A word, its time in the utterance's audio and its place in the utterance's text."""

    word: str
    start_ms: int
    end_ms: int
    text_start: int
    text_end: int

    @classmethod
    def from_word(cls, word: Word) -> "WordTime":
        """Return a written word with times in ms."""
        return cls(
            word=word.text,
            start_ms=round(1_000 * word.start_s),
            end_ms=round(1_000 * word.stop_s),
            text_start=word.text_start,
            text_end=word.text_stop,
        )


class AudioWords(NativeStreamAnswer):
    """Words that begin in the audio that follows."""

    type: Literal["audio.words"] = "audio.words"
    utterance_index: int
    words: list[WordTime]


class PhonemeTime(BaseModel):
    """A sound with the shape of the mouth, or the silence before or after words."""

    phoneme: Annotated[str, Field(description="IPA without stress; '' is silence.")]
    viseme: Annotated[int, Field(description="Microsoft's, 0 (silence) to 21.")]
    start_ms: int
    end_ms: int

    @classmethod
    def from_movement(cls, movement: MouthMovement) -> "PhonemeTime":
        """Return a movement with times in ms."""
        return cls(
            phoneme=movement.phoneme,
            viseme=movement.viseme,
            start_ms=round(1_000 * movement.start_s),
            end_ms=round(1_000 * movement.stop_s),
        )


class AudioPhonemes(NativeStreamAnswer):
    """Sounds of the words that begin in the audio that follows, from voices that know their times."""

    type: Literal["audio.phonemes"] = "audio.phonemes"
    utterance_index: int
    phonemes: list[PhonemeTime]


class MarkTime(BaseModel):
    """A mark of an SSML document."""

    name: str
    at_s: Annotated[float, Field(description="Seconds from the start of the utterance.")]


class AudioMarks(NativeStreamAnswer):
    """Marks of an SSML document that are reached in the audio that follows."""

    type: Literal["audio.marks"] = "audio.marks"
    utterance_index: int
    marks: list[MarkTime]


class AudioDone(NativeStreamAnswer):
    """All audio of an utterance has been sent, or no more will be."""

    type: Literal["audio.done"] = "audio.done"
    utterance_index: int
    sentence_index: Literal[0] = 0
    total_bytes: int
    error: Annotated[bool, Field(description="Whether the speech failed.")] = False


class UtteranceDone(NativeStreamAnswer):
    """The end of an utterance: spoken, cancelled or failed."""

    type: Literal["session.done"] = "session.done"
    utterance_index: int
    total_sentences: Annotated[int, Field(description="1 for an utterance with audio, 0 for one without.")]
    cancelled: bool = False
    unread_characters: Annotated[
        int | None, Field(description="Letters that the voice cannot read; absent if it read all.")
    ] = None


class StreamErrorReport(NativeStreamAnswer):
    """A message was refused, or an utterance failed."""

    type: Literal["error"] = "error"
    message: str
    code: Annotated[str | None, Field(description="As in errors of POST /v1/audio/speech.")] = None
    param: Annotated[str | None, Field(description="The field at fault.")] = None
    utterance_index: Annotated[int | None, Field(description="The utterance that failed.")] = None
    retry_after_s: Annotated[float | None, Field(description="Seconds after which a retry may succeed.")] = (
        None
    )


NativeStreamServerMessage = Annotated[
    AudioStart | AudioWords | AudioPhonemes | AudioMarks | AudioDone | UtteranceDone | StreamErrorReport,
    Field(discriminator="type"),
]
