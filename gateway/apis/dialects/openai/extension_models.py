"""Requests and answers of Open WebUI's and Kokoro-FastAPI's clients that OpenAI's API does not have.

Source: Open WebUI at 6adde203 (backend/open_webui/routers/audio.py); Kokoro-FastAPI at 0fac1bf5
(api/src/structures/schemas.py).
"""

from typing import Annotated, Literal, Self

from pydantic import Field

from ...kits.openai.errors import OpenAIAnswer
from .models import CreateSpeechRequest


class AudioModel(OpenAIAnswer):
    """A name that ``model`` may have, as Open WebUI reads it."""

    id: str
    name: str


class AudioModelList(OpenAIAnswer):
    """The names that ``model`` may have, as Open WebUI reads them."""

    models: list[AudioModel]


class CaptionedSpeechRequest(CreateSpeechRequest):
    """A text to speak with word times, for clients of Kokoro-FastAPI; 'stream_format' has no effect."""

    stream: Annotated[bool, Field(description="Whether the audio comes in pieces, while it is made.")] = True
    return_timestamps: Annotated[bool, Field(description="Whether the word times are wanted.")] = True
    return_phonemes: Annotated[
        bool,
        Field(description="Whether lines have 'phonemes', of voices that know their times. An extension."),
    ] = False
    subtitles_format: Annotated[
        Literal["srt", "vtt", "json"] | None,
        Field(description="Of 'subtitles', which the last line of the answer has then. An extension."),
    ] = None

    def with_complete_wav(self) -> Self:
        """The request itself: its clients read lines, of which 'stream' says how many there are."""
        return self


class WordTimestamp(OpenAIAnswer):
    """A word and when it is spoken."""

    word: str
    start_time: Annotated[float, Field(description="Seconds from the beginning of the speech.")]
    end_time: Annotated[float, Field(description="Seconds from the beginning of the speech.")]


class PhonemeTimestamp(OpenAIAnswer):
    """A sound and the shape of the mouth, or the silence before or after words."""

    phoneme: Annotated[str, Field(description="IPA without stress; '' is silence.")]
    viseme: Annotated[int, Field(description="Microsoft's, 0 (silence) to 21.")]
    start_time: Annotated[float, Field(description="Seconds from the beginning of the speech.")]
    end_time: Annotated[float, Field(description="Seconds from the beginning of the speech.")]


class CaptionedSpeech(OpenAIAnswer):
    """A piece of speech, or all of it, with the words that begin in it."""

    audio: Annotated[str, Field(description="Base64.")]
    audio_format: Annotated[str, Field(description="Media type.")]
    timestamps: list[WordTimestamp]
    phonemes: Annotated[
        list[PhonemeTimestamp] | None,
        Field(description="Of the words that begin in the audio, if they were asked for."),
    ] = None
    subtitles: Annotated[
        str | None, Field(description="Of the whole speech, in the last line, if a format was asked for.")
    ] = None
