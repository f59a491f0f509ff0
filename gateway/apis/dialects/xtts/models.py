"""Requests and answers of XTTS's servers.

Three servers share paths and differ in their fields:

    coqui      speaker_embedding, gpt_cond_latent    coqui-ai/xtts-streaming-server
    named      speaker_wav                           daswer123/xtts-api-server, SillyTavern's "XTTSv2"
    file       speaker                               a server that writes output.wav and streams audio/L16

A body with ``speaker_embedding`` is coqui's. Numbers in quotes are numbers, as those servers take them.

Source: coqui-ai/xtts-streaming-server server/main.py; daswer123/xtts-api-server 0.9 server.py; SillyTavern
1.13 public/scripts/extensions/tts/xtts.js.
"""

from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, RootModel, WithJsonSchema

from ...kits.request_fields import SpokenText
from ...kits.sampling_fields import SamplingFields

LANGUAGES: Final = {
    "Arabic": "ar",
    "Chinese": "zh-cn",
    "Czech": "cs",
    "Dutch": "nl",
    "English": "en",
    "French": "fr",
    "German": "de",
    "Hindi": "hi",
    "Hungarian": "hu",
    "Italian": "it",
    "Japanese": "ja",
    "Korean": "ko",
    "Polish": "pl",
    "Portuguese": "pt",
    "Russian": "ru",
    "Spanish": "es",
    "Turkish": "tr",
}
_NAMES: Final = frozenset(LANGUAGES.values()) | {"zh"}


def _known_language(language: object) -> object:
    if not isinstance(language, str) or language.lower() not in _NAMES:
        raise ValueError(f"must be one of {', '.join(sorted(_NAMES))}")
    return language.lower()


Language = Annotated[
    str, BeforeValidator(_known_language), Field(description="Of the text.", examples=["en"])
]
Text = Annotated[SpokenText, Field(examples=["Good morning."])]
Name = Annotated[str, Field(max_length=256)]
# Not validated, because it is not read and may have millions of numbers.
_Latent = Annotated[
    object,
    WithJsonSchema({"type": "array", "items": {"type": "array", "items": {"type": "number"}}}),
    Field(
        description="As /clone_speaker returns it; the embedding alone names the voice.",
        examples=[[[0.1, -0.2]]],
    ),
]


class XttsRequest(BaseModel):
    """Base of request bodies; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class XttsSettings(XttsRequest):
    """Settings of the requests that follow, of one key."""

    temperature: Annotated[float, Field(ge=0.01, le=1.0, examples=[0.7])] = 0.75
    length_penalty: float = 1.0
    repetition_penalty: Annotated[float, Field(ge=0.1, le=10.0)] = 5.0
    top_k: Annotated[int, Field(ge=1, le=100)] = 50
    top_p: Annotated[float, Field(ge=0.01, le=1.0)] = 0.85
    speed: Annotated[float, Field(ge=0.2, le=2.0)] = 1.0
    enable_text_splitting: bool = True
    stream_chunk_size: Annotated[int, Field(ge=20, le=400)] = 100


class CoquiSpeechRequest(XttsRequest):
    """A text and the numbers of a voice: xtts-streaming-server."""

    text: Text
    language: Language
    speaker_embedding: Annotated[list[float], Field(min_length=1, max_length=4096, examples=[[0.1, -0.2]])]
    gpt_cond_latent: _Latent
    add_wav_header: Annotated[bool, Field(description="Of a stream.")] = True
    stream_chunk_size: Annotated[int | None, Field(ge=1, description="Speech ids of the first piece.")] = None


class NamedSpeechRequest(XttsRequest):
    """A text and the name of a voice: xtts-api-server."""

    text: Text
    speaker_wav: Annotated[
        Name, Field(description="Name of a voice, with or without '.wav'.", examples=["heart"])
    ]
    language: Language = "en"


class FileSpeechRequest(NamedSpeechRequest):
    """A text, a voice and the name of a file: xtts-api-server."""

    file_name_or_path: Annotated[
        Name, Field(description="A name inside the server's folder.", examples=["morning.wav"])
    ]


class SpeakerSpeechRequest(SamplingFields, XttsRequest):
    """A text and the name of a speaker, with parameters of sampling."""

    text: Text
    speaker: Annotated[Name, Field(description="Name of a voice.")] = "default"
    language: Language = "en"
    output_path: Annotated[Name, Field(description="A name inside the server's folder.")] = "output.wav"
    speed: Annotated[float | None, Field(ge=0.25, le=4)] = None


class XttsErrorBody(BaseModel):
    """An error; the servers differ in the field in which it is."""

    error: str
    detail: str


class XttsMessage(BaseModel):
    """The result of an action."""

    message: str


class XttsFileWritten(XttsMessage):
    """A file of speech."""

    output_path: str


class XttsSpeaker(BaseModel):
    """A voice, as SillyTavern lists it."""

    name: str
    voice_id: str
    preview_url: str


class XttsLatents(BaseModel):
    """The numbers of a voice."""

    gpt_cond_latent: list[list[float]]
    speaker_embedding: list[float]


class XttsSpeakers(RootModel[list[XttsSpeaker]]):
    """The voices, as SillyTavern lists them."""


class XttsNamedLatents(RootModel[dict[str, XttsLatents]]):
    """The numbers of each voice by its name."""


class XttsLanguages(RootModel[dict[str, dict[str, str]]]):
    """The languages by name, as xtts-api-server lists them."""


class XttsFolders(BaseModel):
    """The folders of the server, which are the operator's."""

    speaker_folder: str
    output_folder: str
    model_folder: str


class CloneSpeakerForm(BaseModel):
    """A recording to make a voice of."""

    wav_file: Annotated[bytes, Field(description="A sound file.")]
