"""Settings of OpenAI's API, as the modules of this folder use them."""

from dataclasses import dataclass, field
from typing import Literal

from ..model_names import ModelPolicy

VoiceListFormat = Literal["objects", "names"]


@dataclass(frozen=True, slots=True)
class OpenAIPolicy:
    """Settings of the API."""

    max_text_characters: int = 4_096  # of one request; OpenAI's own limit
    models: ModelPolicy = field(default_factory=ModelPolicy)
    voice_list: VoiceListFormat = "objects"  # entries of GET /v1/audio/voices
