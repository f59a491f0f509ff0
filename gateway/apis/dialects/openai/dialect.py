"""OpenAI's speech API, with custom voices and the captions of Kokoro-FastAPI."""

from typing import Final

from ...dialect import Dialect, DialectHost, OpenDialect
from ...kits.openai.voice_resolver import OpenAIVoiceResolver
from .captioned_speech import OpenAICompatibleApi
from .transcriptions_api import OpenAITranscriptionsApi
from .voices_api import OpenAIVoicesApi


def _open(host: DialectHost) -> OpenDialect:
    resolver = OpenAIVoiceResolver(host.voices, host.guard, host.server.models)
    further = OpenAIVoicesApi(host.jobs), OpenAITranscriptionsApi(host.jobs)
    return OpenDialect.of(OpenAICompatibleApi(host.jobs, resolver), *further)


OPENAI: Final = Dialect("openai", _open, title="OpenAI")
