"""OpenAI's speech API, with custom voices and the captions of Kokoro-FastAPI."""

from typing import Final

from ...dialect import Dialect, OpenDialect
from ...kits.openai.voice_resolver import OpenAIVoiceResolver
from ...shell.speech_server import SpeechServer
from .captioned_speech import OpenAICompatibleApi
from .transcriptions_api import OpenAITranscriptionsApi
from .voices_api import OpenAIVoicesApi


def _open(server: SpeechServer) -> OpenDialect:
    resolver = OpenAIVoiceResolver(server.voices, server.guard, server.models)
    further = OpenAIVoicesApi(server), OpenAITranscriptionsApi(server)
    return OpenDialect.of(OpenAICompatibleApi(server, resolver), *further)


OPENAI: Final = Dialect("openai", _open, title="OpenAI")
