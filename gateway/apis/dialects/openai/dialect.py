"""OpenAI's speech API, with custom voices and the captions of Kokoro-FastAPI."""

from typing import Final

from ....web.app import Mount
from ...dialect import Dialect, DialectHost, OpenDialect
from .captioned_speech import CaptionedSpeechApi
from .json_endpoint import OPENAI_ERROR_FORMAT
from .speech_api import OpenAISpeechApi
from .voice_resolver import OpenAIVoiceResolver
from .voices_api import OpenAIVoicesApi


def _open(host: DialectHost) -> OpenDialect:
    speech = OpenAISpeechApi(host.jobs, OpenAIVoiceResolver(host.voices, host.guard, host.server.models))
    mounts = (
        Mount(speech.routes(), None, [OPENAI_ERROR_FORMAT]),
        Mount(OpenAIVoicesApi(host.access, host.voices, host.policy.voice_list).routes(), None),
        Mount(CaptionedSpeechApi(speech).routes(), None),
    )
    return OpenDialect(mounts, (speech,))


OPENAI: Final = Dialect("openai", _open)
