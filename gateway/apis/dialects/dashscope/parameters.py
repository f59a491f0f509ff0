"""The parameters of a synthesis, with DashScope's names, limits and defaults.

A task has them in ``payload.parameters`` of run-task, an HTTP request in ``input``. The defaults are those of
the WebSocket; ``models.SpeechSynthesizerInput`` has the others.

Source: Alibaba Cloud Model Studio's CosyVoice pages; the AudioFormat enum of dashscope-sdk-python
(audio/tts_v2/speech_synthesizer.py).
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final, Literal, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import PydanticUseDefault

from .....adapters.audio.encoders import Codec
from .....tts_engine.reading.pronunciation.lexicon import (
    MAX_RESPELLING_CHARACTERS,
    Lexicon,
    Pronunciation,
    fold_phrase,
)
from .....tts_engine.reading.pronunciation.pinyin import read_pinyin
from ...kits.dashscope.errors import InvalidDashScopeField
from ...kits.dashscope.validation import DashScopeMessage, explained, refused, to_integer

logger = logging.getLogger(__name__)

DashScopeCodec = Literal["mp3", "pcm", "wav", "opus"]

CODECS: Final[tuple[Codec, ...]] = get_args(DashScopeCodec)
SAMPLE_RATES: Final = (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)  # Hz
DEFAULT_SAMPLE_RATE: Final = 22_050  # Hz; the SDKs send 0 for it
MAX_VOICE_CHARACTERS: Final = 128
MAX_INSTRUCTION_CHARACTERS: Final = 128
MAX_SEED: Final = 65_535
MAX_REPLACEMENTS: Final = 100  # of one text
NEUTRAL_VOLUME: Final = 50  # the voice's own volume

_MAX_WORD_CHARACTERS: Final = 16  # of a field that is one word
_OPUS_BIT_RATE_RANGE: Final = (6_000, 256_000)  # bit/s, of libopus
_MAX_KBPS: Final = 512  # the SDK's enum sends kbit/s, a program without it bit/s
_KBPS_PATTERN: Final = re.compile(r"\d{1,3}k", re.ASCII | re.IGNORECASE)


def _read_codec(value: object) -> object:
    if not isinstance(value, str) or len(value) > _MAX_WORD_CHARACTERS:
        return value  # not a codec: refused by the field's type
    codec = value.lower()
    if codec == "default":
        return "mp3"
    if codec not in CODECS:
        raise refused(f"parameters.format: got {codec!r}; allowed are {', '.join(CODECS)} and Default")
    return codec


def _read_text_type(value: object) -> object:
    if not isinstance(value, str) or len(value) > _MAX_WORD_CHARACTERS:
        return value  # not a text type: refused by the field's type
    text_types = {"": "PlainText", "plaintext": "PlainText", "ssml": "SSML"}
    word = value.lower()
    if word not in text_types:
        raise refused(f"parameters.text_type: got {word!r}; allowed are PlainText and SSML")
    return text_types[word]


def _check_sample_rate(value: int) -> int:
    if value and value not in SAMPLE_RATES:
        allowed = ", ".join(map(str, SAMPLE_RATES))
        raise refused(f"parameters.sample_rate: got {value}; allowed are {allowed}, and 0 for 22050")
    return value or DEFAULT_SAMPLE_RATE


def _read_kbps(value: object) -> object:
    if isinstance(value, str) and _KBPS_PATTERN.fullmatch(value):
        return int(value[:-1])
    return to_integer(value)


def _to_bits_per_second(value: int) -> int:
    bit_rate = value * 1_000 if value <= _MAX_KBPS else value
    min_bit_rate, max_bit_rate = _OPUS_BIT_RATE_RANGE
    if not min_bit_rate <= bit_rate <= max_bit_rate:
        raise refused(
            f"parameters.bit_rate: got {bit_rate} bit/s; allowed are {min_bit_rate} to {max_bit_rate}"
        )
    return bit_rate


AudioFormatName = Annotated[
    DashScopeCodec,
    BeforeValidator(_read_codec),
    explained(f"parameters.format must be a string of at most {_MAX_WORD_CHARACTERS} characters"),
    WithJsonSchema({"type": "string", "enum": ["Default", *CODECS]}),
    Field(description="In upper or lower case; 'Default' is mp3."),
]
SampleRate = Annotated[
    int,
    Field(strict=True, ge=0, le=SAMPLE_RATES[-1]),
    BeforeValidator(to_integer),
    explained(
        f"parameters.sample_rate must be a number from 0 to {SAMPLE_RATES[-1]}",
        fraction=f"parameters.sample_rate must be a whole number from 0 to {SAMPLE_RATES[-1]}",
    ),
    AfterValidator(_check_sample_rate),
    WithJsonSchema({"type": "integer", "enum": [0, *SAMPLE_RATES]}),
    Field(description="Hz; 0 is 22050."),
]
BitRate = Annotated[
    int,
    Field(strict=True, ge=0, le=1_000_000),
    BeforeValidator(_read_kbps),
    explained(
        "parameters.bit_rate must be a number from 0 to 1000000",
        fraction="parameters.bit_rate must be a whole number from 0 to 1000000",
    ),
    AfterValidator(_to_bits_per_second),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": _OPUS_BIT_RATE_RANGE[1]}),
]
LanguageCode = Annotated[str, Field(strict=True, max_length=16)]


_HOT_FIX_LIST: Final = (
    f"must be a list of at most {MAX_REPLACEMENTS} objects, each with words and how they are read, at most "
    f"{MAX_RESPELLING_CHARACTERS} characters each"
)
_Reading = Annotated[str, Field(strict=True, max_length=MAX_RESPELLING_CHARACTERS)]


class HotFix(DashScopeMessage):
    """How words of one text are read. Of a word in both lists, voices without pinyin use ``replace``."""

    pronunciation: Annotated[
        tuple[dict[_Reading, _Reading], ...],
        Field(
            max_length=MAX_REPLACEMENTS,
            description="Pinyin with tone digits by word or phrase, in each object.",
            examples=[[{"天气": "tian1 qi4"}]],
        ),
        explained(f"parameters.hot_fix.pronunciation {_HOT_FIX_LIST}"),
    ] = ()
    replace: Annotated[
        tuple[dict[_Reading, _Reading], ...],
        Field(max_length=MAX_REPLACEMENTS, description="The reading by word or phrase, in each object."),
        explained(f"parameters.hot_fix.replace {_HOT_FIX_LIST}"),
    ] = ()

    @property
    def lexicon(self) -> Lexicon | None:
        """The readings, None without any; a warning reports those that no voice can follow.

        Raises InvalidDashScopeField if there are too many.
        """
        texts = _entries("replace", self.replace, str)
        pinyin = _entries("pronunciation", self.pronunciation, read_pinyin)
        said = {
            word: Pronunciation(texts.get(word, ""), pinyin=pinyin.get(word, "")) for word in texts | pinyin
        }
        return Lexicon(said) if said else None


def _entries(field: str, objects: Sequence[Mapping[str, str]], read: Callable[[str], str]) -> dict[str, str]:
    """The entries of all objects of a field of ``hot_fix``. Raises InvalidDashScopeField."""
    written = {word: said for each in objects for word, said in each.items()}
    if len(written) > MAX_REPLACEMENTS:
        raise InvalidDashScopeField(f"parameters.hot_fix.{field} {_HOT_FIX_LIST}")
    readings = {}
    for word, said in written.items():
        try:
            readings[fold_phrase(word)] = read(said)
        except ValueError as error:  # BadPinyin is one; a wrong entry must not cost the whole text
            logger.debug("hot_fix.%s: %s", field, error)
    if len(readings) < len(written):
        left_out = len(written) - len(readings)
        logger.warning("hot_fix.%s: %d of %d entries are wrong and left out", field, left_out, len(written))
    return readings


class SpeechParameters(DashScopeMessage):
    """How a text is spoken: ``parameters`` of a task, and part of ``input`` over HTTP.

    The error sentences say ``parameters`` over HTTP too.
    """

    voice: Annotated[
        str,
        Field(strict=True, min_length=1, max_length=MAX_VOICE_CHARACTERS),
        explained(
            f"parameters.voice must be a string of at most {MAX_VOICE_CHARACTERS} characters",
            missing="parameters.voice is required",
        ),
        Field(
            description="A voice's id or alias, or one of DashScope's presets, which are the default voice.",
            examples=["longanyang"],
        ),
    ]
    format: AudioFormatName = "mp3"
    sample_rate: SampleRate = DEFAULT_SAMPLE_RATE
    bit_rate: Annotated[
        BitRate | None,
        Field(description="Of opus only: kbit/s up to 512, bit/s beyond; 0 or absent for a usual one."),
    ] = None
    volume: Annotated[
        float,
        Field(strict=True, ge=0, le=100, description="50 is the voice's own volume, 100 twice as much."),
        explained("parameters.volume must be a number from 0 to 100"),
    ] = NEUTRAL_VOLUME
    rate: Annotated[
        float,
        Field(strict=True, ge=0.5, le=2.0, description="Speed, a factor."),
        explained("parameters.rate must be a number from 0.5 to 2.0"),
    ] = 1.0
    pitch: Annotated[
        float,
        Field(strict=True, ge=0.5, le=2.0, description="A factor."),
        explained("parameters.pitch must be a number from 0.5 to 2.0"),
    ] = 1.0
    seed: Annotated[
        int,
        Field(
            strict=True, ge=0, le=MAX_SEED, description="The same seed gives the same speech; 0 is random."
        ),
        BeforeValidator(to_integer),
        explained(
            f"parameters.seed must be a number from 0 to {MAX_SEED}",
            fraction=f"parameters.seed must be a whole number from 0 to {MAX_SEED}",
        ),
    ] = 0
    instruction: Annotated[
        str,
        Field(
            strict=True,
            max_length=MAX_INSTRUCTION_CHARACTERS,
            description="How to say it, for a voice model that follows instructions.",
            examples=["Speak softly."],
        ),
        explained(
            f"parameters.instruction must be a string of at most {MAX_INSTRUCTION_CHARACTERS} characters"
        ),
    ] = ""
    language_hints: Annotated[
        tuple[LanguageCode, ...],
        explained("parameters.language_hints must be a list of language codes"),
        Field(description="Language codes; the first is used.", examples=[["en"]]),
    ] = ()
    word_timestamp_enabled: Annotated[
        bool,
        Field(strict=True, description="Whether the end of each sentence carries its word times."),
        explained("parameters.word_timestamp_enabled must be true or false"),
    ] = False
    enable_ssml: Annotated[
        bool,
        Field(strict=True, description="Whether a text that begins with <speak is an SSML document."),
        explained("parameters.enable_ssml must be true or false"),
    ] = False
    hot_fix: Annotated[HotFix, Field(description="How words of this text are read.")] = HotFix()
    text_type: Annotated[
        Literal["PlainText", "SSML"],
        BeforeValidator(_read_text_type),
        explained(f"parameters.text_type must be a string of at most {_MAX_WORD_CHARACTERS} characters"),
        Field(description="SSML: every text must be an SSML document."),
    ] = "PlainText"

    @field_validator("format", mode="before")
    @classmethod
    def _read_empty_format_as_absent(cls, value: object) -> object:
        if value == "":
            raise PydanticUseDefault
        return value

    @field_validator("bit_rate", mode="before")
    @classmethod
    def _ignore_bit_rate_of_other_codecs(cls, value: object, info: ValidationInfo) -> object:
        if info.data.get("format") != "opus" or value == 0:
            raise PydanticUseDefault
        return value

    @property
    def language(self) -> str | None:
        """The language of the text, if the client named one."""
        return self.language_hints[0] or None if self.language_hints else None

    def is_ssml(self, text: str) -> bool:
        """Return whether ``text`` is to be read as SSML.

        The Python SDK sets ``enable_ssml`` in every plain call, so only what looks like SSML is. Raises
        InvalidDashScopeField if ``text_type`` demands SSML and ``text`` is not.
        """
        looks_like_ssml = text.lstrip().startswith("<speak")
        if self.text_type == "SSML" and not looks_like_ssml:
            raise InvalidDashScopeField(
                "input.text: text_type is SSML, so each text must be a <speak> document"
            )
        return looks_like_ssml and (self.enable_ssml or self.text_type == "SSML")
