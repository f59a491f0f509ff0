"""What a DashScope task asks for: ``payload.parameters`` read into values, defaults and limits included.

The same fields come with the HTTP request, there in ``input``. Unknown fields are ignored, as DashScope does;
a known one that is out of its range is refused with a sentence.

Source: Alibaba Cloud Model Studio's CosyVoice pages; the AudioFormat enum of dashscope-sdk-python.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ...tts_engine.errors import VivavoceError

CODECS: Final = ("mp3", "pcm", "wav", "opus")
SAMPLE_RATE_OF_KIND: Final = (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)
DEFAULT_SAMPLE_RATE: Final = 22_050  # what clients take 0 for
MAX_VOICE_CHARACTERS: Final = 128
MAX_INSTRUCTION_CHARACTERS: Final = 128
MAX_SEED: Final = 65_535
_OPUS_BIT_RATE_RANGE: Final = (6_000, 256_000)
_KBPS_PATTERN: Final = re.compile(r"\d{1,3}k", re.ASCII | re.IGNORECASE)
_MAX_KBPS: Final = 512  # the enum sends kbit/s, a bare request bit/s


class InvalidDashScopeField(VivavoceError):
    """A field is not what is allowed; the message says what is."""


@dataclass(frozen=True, slots=True)
class TaskParameters:
    """How a task wants to sound.

    volume: factor, 1.0 as the voice is. rate, pitch: 0.5 to 2.0. bit_rate: bit/s, None for the codec's own.
    seed: 0 for any. include_words: whether word times are wanted. ssml_allowed: text that looks like SSML is.
    """

    voice: str
    codec: str = "mp3"
    sample_rate: int = DEFAULT_SAMPLE_RATE
    bit_rate: int | None = None
    volume: float = 1.0
    rate: float = 1.0
    pitch: float = 1.0
    seed: int = 0
    instruction: str = ""
    language: str = ""
    include_words: bool = False
    ssml_allowed: bool = False
    ssml_required: bool = False

    def is_ssml(self, text: str) -> bool:
        """Whether text is an SSML document; the Python SDK allows SSML in every plain call.

        Raises Invalid where SSML is demanded and this is none.
        """
        looks_like_ssml = text.lstrip().startswith("<speak")
        if self.ssml_required and not looks_like_ssml:
            raise InvalidDashScopeField(
                "input.text: text_type is SSML, so each text must be a <speak> document"
            )
        return looks_like_ssml and (self.ssml_allowed or self.ssml_required)


def parse_task_parameters(payload: Mapping[str, object]) -> TaskParameters:
    """The parameters of a run-task payload; raises Invalid."""
    parameters = payload.get("parameters")
    if parameters is None:
        parameters = {}
    if not isinstance(parameters, dict):
        raise InvalidDashScopeField("parameters must be an object")
    return parse_parameter_fields(parameters)


def parse_parameter_fields(
    fields: Mapping[str, object], codec: str = "mp3", sample_rate: int = DEFAULT_SAMPLE_RATE
) -> TaskParameters:
    """The parameters among these fields, ``codec`` and ``sample_rate`` unless they say; raises Invalid."""
    voice = _string(fields, "voice", MAX_VOICE_CHARACTERS)
    if not voice:
        raise InvalidDashScopeField("parameters.voice is required")
    codec = _codec(fields, codec)
    return TaskParameters(
        voice=voice,
        codec=codec,
        sample_rate=_sample_rate(fields, sample_rate),
        bit_rate=_bit_rate(fields) if codec == "opus" else None,
        volume=_number(fields, "volume", 50, 0, 100) / 50,
        rate=_number(fields, "rate", 1.0, 0.5, 2.0),
        pitch=_number(fields, "pitch", 1.0, 0.5, 2.0),
        seed=_integer(fields, "seed", 0, 0, MAX_SEED),
        instruction=_string(fields, "instruction", MAX_INSTRUCTION_CHARACTERS),
        language=_language(fields),
        include_words=_boolean(fields, "word_timestamp_enabled"),
        ssml_allowed=_boolean(fields, "enable_ssml"),
        ssml_required=_text_type(fields) == "ssml",
    )


# Unicode's script Han: radicals, marks, numerals, extension A, unified, compatibility, planes 2 and 3.
_HAN_CHARACTERS: Final = re.compile(
    "[\u2e80-\u2fd5\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003fffd]+"
)


def billed_characters(text: str) -> int:
    """How many characters DashScope counts: Han ones, those of Japanese and Korean included, are two."""
    if text.isascii():
        return len(text)
    return len(text) + sum(len(run) for run in _HAN_CHARACTERS.findall(text))


def _codec(fields: Mapping[str, object], default: str) -> str:
    codec = (_string(fields, "format", 16) or default).lower()
    if codec == "default":
        return "mp3"
    if codec not in CODECS:
        raise InvalidDashScopeField(
            f"parameters.format: got {codec!r}; allowed are {', '.join(CODECS)} and Default"
        )
    return codec


def _sample_rate(fields: Mapping[str, object], default: int) -> int:
    sample_rate = _integer(fields, "sample_rate", default, 0, SAMPLE_RATE_OF_KIND[-1]) or DEFAULT_SAMPLE_RATE
    if sample_rate not in SAMPLE_RATE_OF_KIND:
        allowed = ", ".join(map(str, SAMPLE_RATE_OF_KIND))
        raise InvalidDashScopeField(
            f"parameters.sample_rate: got {sample_rate}; allowed are {allowed}, and 0 for 22050"
        )
    return sample_rate


def _bit_rate(fields: Mapping[str, object]) -> int | None:
    value = fields.get("bit_rate")
    if isinstance(value, str) and _KBPS_PATTERN.fullmatch(value):
        value = int(value[:-1])
    if value is None or value == 0:
        return None
    bit_rate = _integer({"bit_rate": value}, "bit_rate", 0, 0, 1_000_000)
    if bit_rate <= _MAX_KBPS:
        bit_rate *= 1000
    min_bit_rate, max_bit_rate = _OPUS_BIT_RATE_RANGE
    if not min_bit_rate <= bit_rate <= max_bit_rate:
        raise InvalidDashScopeField(
            f"parameters.bit_rate: got {bit_rate} bit/s; allowed are {min_bit_rate} to {max_bit_rate}"
        )
    return bit_rate


def _text_type(fields: Mapping[str, object]) -> str:
    kind = (_string(fields, "text_type", 16) or "PlainText").lower()
    if kind not in ("plaintext", "ssml"):
        raise InvalidDashScopeField(f"parameters.text_type: got {kind!r}; allowed are PlainText and SSML")
    return kind


def _language(fields: Mapping[str, object]) -> str:
    hints = fields.get("language_hints")
    if hints is None:
        return ""
    if not isinstance(hints, list) or not all(isinstance(hint, str) and len(hint) <= 16 for hint in hints):
        raise InvalidDashScopeField("parameters.language_hints must be a list of language codes")
    return hints[0] if hints else ""


def _string(fields: Mapping[str, object], name: str, max_characters: int) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > max_characters:
        raise InvalidDashScopeField(
            f"parameters.{name} must be a string of at most {max_characters} characters"
        )
    return value


def _boolean(fields: Mapping[str, object], name: str) -> bool:
    value = fields.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise InvalidDashScopeField(f"parameters.{name} must be true or false")
    return value


def _number(fields: Mapping[str, object], name: str, default: float, minimum: float, maximum: float) -> float:
    value = fields.get(name)
    if value is None:
        return default
    # Not ``isinstance(value, float)`` alone: 1 is a number too, True is none; JSON's 1e999 is infinite.
    if isinstance(value, bool) or not isinstance(value, int | float) or not minimum <= value <= maximum:
        raise InvalidDashScopeField(f"parameters.{name} must be a number from {minimum} to {maximum}")
    return float(value)


def _integer(fields: Mapping[str, object], name: str, default: int, minimum: int, maximum: int) -> int:
    value = _number(fields, name, default, minimum, maximum)
    if not math.floor(value) == value:
        raise InvalidDashScopeField(f"parameters.{name} must be a whole number from {minimum} to {maximum}")
    return int(value)
