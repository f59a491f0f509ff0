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

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NoReturn, cast, get_args

from ..tts_engine.chunk import SAMPLE_RATE
from ..tts_engine.errors import BadRequest, VivavoceError
from .encoders import AudioFormat, Codec

MAX_BODY_BYTES: Final = 16 * 2**20  # bytes: a reference recording of a minute in base64, and its transcript
MODELS: Final = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts", "gpt-4o-mini-tts-2025-12-15")
_MIN_SPEED, _MAX_SPEED, _MAX_VOLUME = 0.25, 4.0, 10.0
_MAX_NAME_CHARACTERS: Final = 256
_MAX_INSTRUCTION_CHARACTERS: Final = 4_096
_MAX_SEED: Final = 2**63 - 1


class InvalidRequestError(VivavoceError):
    """A request that is not one. param: the field at fault, None for the whole; code: OpenAI's, if any."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


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


def parse_json_object(body: str | bytes) -> Mapping[str, object]:
    """The JSON object in a body; raises ProtocolError."""
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"We could not parse the JSON body of your request: {error}") from None
    if not isinstance(value, dict):
        raise InvalidRequestError(f"got JSON that is a {type(value).__name__}; an object is needed")
    return value


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


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


class JsonFields:
    """The fields of a JSON object, each read with its type and its limits; null is the same as not there."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self.values = values

    def has(self, name: str) -> bool:
        """Whether a value is given."""
        return self.values.get(name) is not None

    def text(self, name: str, max_characters: int) -> str | None:
        """A string of at most ``longest`` characters, None where there is none; raises ProtocolError."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            self._refuse_type(name, value, "a string")
        if len(value) > max_characters:
            problem = f"has {len(value)} characters; at most {max_characters} are allowed"
            self.refuse(name, problem, "string_above_max_length")
        try:
            value.encode()
        except UnicodeEncodeError:
            self.refuse(name, "has half a surrogate pair in it", "invalid_value")
        return value

    def number(self, name: str, default: float, minimum: float, maximum: float) -> float:
        """A number within limits; raises ProtocolError."""
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._refuse_type(name, value, "a number")
        if not minimum <= value <= maximum:
            code = "decimal_below_min_value" if value < minimum else "decimal_above_max_value"
            self.refuse(name, f"is {value}; allowed is {minimum:g} to {maximum:g}", code)
        return float(value)

    def integer(self, name: str, default: int, minimum: int, maximum: int) -> int:
        """A whole number within limits; raises ProtocolError."""
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            self._refuse_type(name, value, "a whole number")
        if not minimum <= value <= maximum:
            self.refuse(name, f"is out of range; allowed is {minimum} to {maximum}", "invalid_value")
        return value

    def boolean(self, name: str) -> bool:
        """True or false, false where there is none; raises ProtocolError."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            self._refuse_type(name, value, "true or false")
        return bool(value)

    def choice(self, name: str, allowed: tuple[str, ...]) -> str | None:
        """One of several strings, None where there is none; raises ProtocolError."""
        value = self.text(name, _MAX_NAME_CHARACTERS)
        if value is not None and value not in allowed:
            self.refuse(name, f"is {value!r}; allowed are {', '.join(allowed)}", "invalid_value")
        return value

    def refuse(self, name: str, problem: str, code: str | None = None) -> NoReturn:
        """Raise ProtocolError about a field."""
        raise InvalidRequestError(f"'{name}' {problem}", name, code)

    def _refuse_type(self, name: str, value: object, wanted: str) -> NoReturn:
        self.refuse(name, f"is of type {type(value).__name__}; {wanted} is needed", "invalid_type")


# Answers


def error_body(
    message: str, error_type: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """An error in OpenAI's shape. kind: its ``type``."""
    return {"error": {"message": message, "type": error_type, "param": param, "code": code}}


def model_body(model: str, created: int) -> dict[str, Any]:
    """One model. created: Unix seconds."""
    return {"id": model, "object": "model", "created": created, "owned_by": "vivavoce"}


def models_body(models: tuple[str, ...], created: int) -> dict[str, Any]:
    """The list of models."""
    return {"object": "list", "data": [model_body(model, created) for model in models]}


def audio_delta_event(audio: bytes) -> bytes:
    """A piece of audio."""
    return _server_sent_event(
        {"type": "speech.audio.delta", "audio": base64.b64encode(audio).decode("ascii")}
    )


def audio_done_event(input_tokens: int, output_tokens: int) -> bytes:
    """The end, and what it took."""
    usage = {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
    }
    return _server_sent_event({"type": "speech.audio.done", "usage": usage})


def audio_error_event(error: Mapping[str, Any]) -> bytes:
    """The end of a stream that failed; ``error``: as ``error_body`` has it. vLLM-Omni's event."""
    return _server_sent_event({"type": "speech.audio.error", **error})


def _server_sent_event(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"
