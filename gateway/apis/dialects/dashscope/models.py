"""DashScope's HTTP messages, as pydantic models: speech synthesis, voice enrolment, answers and errors.

The models are the only declaration of fields, limits and defaults: requests are validated against them,
answers are built from them and the OpenAPI document is generated from them. ``frames.py`` has the messages of
the WebSocket. Whether a voice exists and whether a text is valid SSML is checked elsewhere.

Source: dashscope-sdk-python 2.0.2 (audio/tts_v2/enrollment.py, audio/http_tts/http_speech_synthesizer.py);
Alibaba Cloud Model Studio's CosyVoice pages.
"""

import re
from typing import Annotated, Final, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, Discriminator, Field, WithJsonSchema

from ...kits.dashscope.errors import DashScopeModelNotFound
from ...kits.dashscope.frames import MAX_TEXT_CHARACTERS, CharacterUsage, ResultPayload
from ...kits.dashscope.validation import DashScopeMessage, explained, to_integer
from .parameters import AudioFormatName, LanguageCode, SampleRate, SpeechParameters

HTTP_SAMPLE_RATE: Final = 24_000  # Hz; default of the HTTP API, as in its documentation
DEFAULT_PROMPT_S: Final = 10.0  # seconds of a recording that the voice model reads
MIN_PROMPT_S: Final = 3.0
MAX_PROMPT_S: Final = 30.0
MAX_PAGE_INDEX: Final = 1_000_000
MAX_PAGE_SIZE: Final = 1_000  # voices
MAX_TRANSCRIPT_CHARACTERS: Final = 1_000
MAX_CONSENT_CHARACTERS: Final = 2_000
PREFIX_PATTERN: Final = r"[a-z0-9]{1,10}"
TARGET_MODEL_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"

_MODEL_PATTERN: Final = re.compile(r"(cosyvoice|vivavoce)([.-].*)?", re.ASCII | re.IGNORECASE)


def check_dashscope_model(model: str) -> str:
    """Return ``model``; raise DashScopeModelNotFound unless it is a CosyVoice (an ASR model, for example)."""
    if not _MODEL_PATTERN.fullmatch(model):
        raise DashScopeModelNotFound(f"Model not exist: {model!r}; any cosyvoice-* is the voice loaded here")
    return model


def _keep_first(value: object) -> object:
    return value[:1] if isinstance(value, list) else value


class SpeechSynthesizerInput(SpeechParameters):
    """A text and how it is spoken."""

    format: AudioFormatName = "wav"
    sample_rate: SampleRate = HTTP_SAMPLE_RATE
    text: Annotated[
        str,
        Field(
            strict=True,
            min_length=1,
            max_length=MAX_TEXT_CHARACTERS,
            description="Plain text, or an SSML document.",
            examples=["Good morning."],
        ),
        explained(
            "text is required",
            string_too_long=f"input.text: {{length}} characters; at most {MAX_TEXT_CHARACTERS} are allowed",
        ),
    ]


class SpeechSynthesizerRequest(DashScopeMessage):
    """A text to speak. Unknown fields are ignored; null is the same as an absent field."""

    input: SpeechSynthesizerInput
    model: Annotated[
        str,
        Field(
            strict=True,
            min_length=1,
            description="A bundle of the server; any cosyvoice-* is the voice model that is loaded.",
            examples=["cosyvoice-v3-flash"],
        ),
        explained("model is required"),
    ]


class StoredAudioLink(BaseModel):
    """Where the audio can be fetched."""

    id: str
    url: Annotated[str, Field(description="Needs no key; valid until expires_at.")]
    data: Annotated[Literal[""], Field(description="Always empty: the audio is behind the URL.")] = ""
    expires_at: Annotated[int, Field(description="Unix seconds.")]


class SpeechSynthesizerOutput(BaseModel):
    """The audio of a whole text."""

    finish_reason: Literal["stop"] = "stop"
    audio: StoredAudioLink


class SpeechSynthesizerResponse(BaseModel):
    """The answer to a text, and the last of its events."""

    request_id: str
    output: SpeechSynthesizerOutput
    usage: CharacterUsage


class SpeechSynthesizerEvent(ResultPayload):
    """An event of a streamed answer; the last event is a SpeechSynthesizerResponse."""

    request_id: str


# Fields of create_voice and update_voice that describe the recording.

RecordingUrl = Annotated[
    str,
    Field(
        strict=True,
        min_length=1,
        description="The recording, as an http, https or data URL.",
        examples=["https://example.org/anna.wav"],
    ),
    explained("input.url is required: http, https or data"),
]
Transcript = Annotated[
    str,
    Field(
        strict=True,
        max_length=MAX_TRANSCRIPT_CHARACTERS,
        description="The words of the recording. Not a field of DashScope's.",
    ),
    explained(f"input.transcript must be a string of at most {MAX_TRANSCRIPT_CHARACTERS} characters"),
]
Consent = Annotated[
    str,
    Field(
        strict=True,
        max_length=MAX_CONSENT_CHARACTERS,
        description="What the speaker agreed to. Not a field of DashScope's.",
    ),
    explained(f"input.consent must be a string of at most {MAX_CONSENT_CHARACTERS} characters"),
]
RecordingLanguages = Annotated[
    tuple[LanguageCode, ...],
    BeforeValidator(_keep_first),
    explained("input.language_hints must be a list of language codes"),
    Field(description="Language codes; the first is used.", examples=[["en"]]),
]
PromptSeconds = Annotated[
    float,
    Field(
        strict=True, ge=MIN_PROMPT_S, le=MAX_PROMPT_S, description="Seconds of the recording that are used."
    ),
    explained(f"input.max_prompt_audio_length must be a number from {MIN_PROMPT_S:g} to {MAX_PROMPT_S:g}"),
]

VoiceId = Annotated[str, Field(strict=True, min_length=1), explained("input.voice_id is required")]
VoicePrefix = Annotated[
    str,
    Field(
        strict=True,
        pattern=f"^{PREFIX_PATTERN}$",
        description="Part of the voice's id.",
        examples=["anna"],
    ),
    explained(f"input.prefix must match {PREFIX_PATTERN}"),
]


class CreateVoiceInput(DashScopeMessage):
    """Enrol a voice from a recording."""

    action: Literal["create_voice"]
    target_model: Annotated[
        str,
        Field(
            strict=True,
            pattern=f"^{TARGET_MODEL_PATTERN}$",
            description="Any cosyvoice-*; part of the voice's id.",
            examples=["cosyvoice-v3-flash"],
        ),
        explained(f"input.target_model must match {TARGET_MODEL_PATTERN}"),
        AfterValidator(check_dashscope_model),
    ]
    prefix: VoicePrefix
    transcript: Transcript = ""
    language_hints: RecordingLanguages = ()
    consent: Consent = ""
    max_prompt_audio_length: PromptSeconds = DEFAULT_PROMPT_S
    url: RecordingUrl


class ListVoiceInput(DashScopeMessage):
    """List the voices of the key, oldest first."""

    action: Literal["list_voice"]
    prefix: VoicePrefix | None = None
    page_index: Annotated[
        int,
        Field(strict=True, ge=0, le=MAX_PAGE_INDEX),
        BeforeValidator(to_integer),
        explained(
            f"input.page_index must be a number from 0 to {MAX_PAGE_INDEX}",
            fraction="input.page_index must be a whole number",
        ),
    ] = 0
    page_size: Annotated[
        int,
        Field(strict=True, ge=1, le=MAX_PAGE_SIZE),
        BeforeValidator(to_integer),
        explained(
            f"input.page_size must be a number from 1 to {MAX_PAGE_SIZE}",
            fraction="input.page_size must be a whole number",
        ),
    ] = 10


class QueryVoiceInput(DashScopeMessage):
    """Look a voice up."""

    action: Literal["query_voice"]
    voice_id: VoiceId


class UpdateVoiceInput(DashScopeMessage):
    """Replace the recording of a voice."""

    action: Literal["update_voice"]
    voice_id: VoiceId
    transcript: Transcript = ""
    language_hints: RecordingLanguages = ()
    consent: Consent = ""
    max_prompt_audio_length: PromptSeconds = DEFAULT_PROMPT_S
    url: RecordingUrl


class DeleteVoiceInput(DashScopeMessage):
    """Delete a voice."""

    action: Literal["delete_voice"]
    voice_id: VoiceId


VoiceAction = CreateVoiceInput | ListVoiceInput | QueryVoiceInput | UpdateVoiceInput | DeleteVoiceInput

_ACTION_SENTENCE: Final = "input.action must be one of " + ", ".join(
    get_args(action.model_fields["action"].annotation)[0] for action in get_args(VoiceAction)
)


class VoiceCustomizationRequest(DashScopeMessage):
    """An action on the enrolled voices. Unknown fields are ignored; null is the same as an absent field."""

    input: Annotated[
        VoiceAction,
        Discriminator("action"),
        explained(
            "input must be an object",
            union_tag_not_found=_ACTION_SENTENCE,
            union_tag_invalid=_ACTION_SENTENCE,
        ),
    ]
    model: Annotated[
        object,
        WithJsonSchema({"type": "string"}),
        Field(description="Not checked.", examples=["voice-enrollment"]),
    ] = "voice-enrollment"


class CreatedVoice(BaseModel):
    """The id of a new voice."""

    voice_id: Annotated[str, Field(description="target_model, prefix and 32 hexadecimal digits.")]


class EnrolledVoice(BaseModel):
    """A voice in a list. Times are UTC."""

    voice_id: str
    gmt_create: Annotated[str, Field(examples=["2026-01-31 12:00:00"])]
    gmt_modified: Annotated[str, Field(examples=["2026-01-31 12:00:00"])]
    status: Literal["OK"] = "OK"


class VoiceDetails(EnrolledVoice):
    """A voice that was looked up."""

    target_model: str
    resource_link: Annotated[
        Literal[""], Field(description="Always empty: recordings are not handed out.")
    ] = ""


class VoiceList(BaseModel):
    """A page of voices."""

    voice_list: list[EnrolledVoice]


class NoVoiceOutput(BaseModel):
    """The output of update_voice and delete_voice: an empty object."""


VoiceOutput = VoiceDetails | CreatedVoice | VoiceList | NoVoiceOutput


class CustomizationUsage(BaseModel):
    """Actions that were counted."""

    count: Literal[1] = 1


class VoiceCustomizationResponse(BaseModel):
    """The answer to an action on the enrolled voices."""

    request_id: str
    output: VoiceOutput
    usage: CustomizationUsage = CustomizationUsage()


class MissingAudioBody(BaseModel):
    """The answer for audio that does not exist or has expired."""

    code: Literal["NoSuchKey"] = "NoSuchKey"
    message: str
