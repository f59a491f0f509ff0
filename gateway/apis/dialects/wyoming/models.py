"""Data of Wyoming's events, as far as they concern speech.

Source: https://github.com/OHF-Voice/wyoming, wyoming/tts.py, info.py, audio.py@1.10.2.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from ..... import __version__
from ....voice_registry import ListedVoice

_ATTRIBUTION = {"name": "vivavoce", "url": ""}


class WyomingVoice(BaseModel):
    """The voice that a client asks for; its name comes before the language."""

    name: Annotated[str | None, Field(max_length=256)] = None
    language: Annotated[str | None, Field(max_length=35)] = None


class WyomingStart(BaseModel):
    """Data of ``synthesize-start``."""

    voice: WyomingVoice | None = None
    text_format: Literal["text", "ssml"] | None = None


class WyomingChunk(BaseModel):
    """Data of ``synthesize-chunk``."""

    text: str


class WyomingSynthesize(WyomingStart, WyomingChunk):
    """Data of ``synthesize``: a whole text."""


def describe_server(voices: Iterable[ListedVoice]) -> Mapping[str, Any]:
    """Return the data of ``info``."""
    program = {
        "name": "vivavoce",
        "description": "Speech while the text is still being written",
        "attribution": _ATTRIBUTION,
        "installed": True,
        "version": __version__,
        "voices": [_describe_voice(voice) for voice in voices],
        "supports_synthesize_streaming": True,
    }
    others: dict[str, list[object]] = {name: [] for name in ("asr", "handle", "intent", "wake", "mic", "snd")}
    return {"tts": [program], **others}


def _describe_voice(voice: ListedVoice) -> Mapping[str, Any]:
    return {
        "name": voice.id,
        "description": voice.description or voice.name,
        "attribution": _ATTRIBUTION,
        "installed": True,
        "version": __version__,
        "languages": [voice.language, *voice.further_languages],
    }
