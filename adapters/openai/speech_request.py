"""OpenAI's speech API as values: requests read, answers and events written. No sockets, no voices, no keys.

    POST /v1/audio/speech    JSON in; the audio itself, or server-sent events with it in base64
    GET  /v1/models, /v1/audio/voices; POST and DELETE of the latter

Fields that clients send and OpenAI does not have are read where they mean something here (``sample_rate``,
``seed``, ``language``, ``volume_multiplier``, ``ref_audio``, ``ref_text``: vLLM-Omni, Kokoro-FastAPI), and
ignored otherwise, as OpenAI's own clients send fields that are younger than a server.

Source: platform.openai.com/docs/api-reference/audio; openai-python 1.109 and 3.54 (resources/audio),
openai-node 7.57; livekit-plugins-openai 1.8.9 (tts.py reads the events); vLLM-Omni at 0131cb55
(entrypoints/openai/protocol/audio.py) for the fields that are not OpenAI's.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, cast, get_args

from ...tts_engine.chunk import SAMPLE_RATE
from ...tts_engine.errors import BadRequest
from ..audio.encoders import AudioFormat, Codec
from .json_fields import _MAX_NAME_CHARACTERS, InvalidRequestError, JsonFields, parse_json_object

MAX_BODY_BYTES: Final = 16 * 2**20  # bytes: a reference recording of a minute in base64, and its transcript
MODELS: Final = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts", "gpt-4o-mini-tts-2025-12-15")
_MIN_SPEED, _MAX_SPEED, _MAX_VOLUME = 0.25, 4.0, 10.0
_MAX_INSTRUCTION_CHARACTERS: Final = 4_096
_MAX_SEED: Final = 2**63 - 1


class OpenAIStreamFormat(StrEnum):
    """What the answer is: the audio itself, or events."""

    AUDIO = "audio"
    SSE = "sse"


@dataclass(frozen=True, slots=True)
class OpenAISpeechSettings:
    """How something is to be spoken. model, voice, language: None where the client leaves them to us.

    volume: a factor. ref_audio: a URL or data URL of a recording to speak like; ref_text: what is said in it.
    """

    model: str | None
    voice: str | None
    audio: AudioFormat
    speed: float
    volume: float
    seed: int
    instructions: str
    language: str | None
    ref_audio: str | None
    ref_text: str


@dataclass(frozen=True, slots=True)
class CreateSpeechRequest:
    """One ``POST /v1/audio/speech``."""

    text: str
    settings: OpenAISpeechSettings
    stream_format: OpenAIStreamFormat


def parse_speech_request(body: bytes, max_text_characters: int) -> CreateSpeechRequest:
    """The request in a body; raises ProtocolError. max_text_characters: characters."""
    fields = JsonFields(parse_json_object(body))
    text = fields.text("input", max_text_characters)
    if text is None:
        fields.refuse("input", "is required", "missing_required_parameter")
    if not text:
        fields.refuse("input", "is empty; at least 1 character is needed", "string_below_min_length")
    stream_format = fields.choice("stream_format", tuple(OpenAIStreamFormat)) or OpenAIStreamFormat.AUDIO
    return CreateSpeechRequest(text, parse_speech_settings(fields, "mp3"), OpenAIStreamFormat(stream_format))


def parse_speech_settings(fields: "JsonFields", codec: Codec) -> OpenAISpeechSettings:
    """What a request and a socket's configuration have in common; ``codec``: the format if none is named."""
    return OpenAISpeechSettings(
        model=fields.text("model", _MAX_NAME_CHARACTERS),
        voice=_parse_voice(fields),
        audio=_parse_audio_format(fields, codec),
        speed=fields.number("speed", 1.0, _MIN_SPEED, _MAX_SPEED),
        volume=fields.number("volume_multiplier", 1.0, 0.0, _MAX_VOLUME),
        seed=fields.integer("seed", 0, -_MAX_SEED - 1, _MAX_SEED) & _MAX_SEED,
        instructions=fields.text("instructions", _MAX_INSTRUCTION_CHARACTERS) or "",
        language=fields.text("language", _MAX_NAME_CHARACTERS) or None,
        ref_audio=fields.text("ref_audio", MAX_BODY_BYTES),
        ref_text=fields.text("ref_text", _MAX_INSTRUCTION_CHARACTERS) or "",
    )


def _parse_voice(fields: "JsonFields") -> str | None:
    """A name, or an object with an id; vLLM-Omni's clients call it speaker."""
    name = "voice" if fields.has("voice") else "speaker"
    custom = fields.values.get(name)
    if isinstance(custom, dict):
        fields = JsonFields({name: custom.get("id")})
        if not fields.has(name):
            fields.refuse(name, "is an object without an id")
    return fields.text(name, _MAX_NAME_CHARACTERS)


def _parse_audio_format(fields: "JsonFields", codec: Codec) -> AudioFormat:
    codec_name = fields.choice("response_format", get_args(Codec)) or codec
    rate = fields.integer("sample_rate", SAMPLE_RATE, 1, 1_000_000)
    try:
        return AudioFormat(cast(Codec, codec_name), rate)
    except BadRequest as error:
        raise InvalidRequestError(str(error), "sample_rate", "invalid_value") from None


# Answers
