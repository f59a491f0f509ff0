"""All speech APIs of one server, over one engine, access control, voice registry and request log.

A new dialect is a folder beside this file, and one line in ``__init__``, ``mounts`` and ``finish`` each;
``adapters/README.md`` has the steps.
"""

import asyncio
from pathlib import Path
from typing import Final, Protocol

from ...tts_engine.reading.pronunciation.lexicon_files import NamedLexicons
from ...tts_engine.speech_engine import SpeechEngine
from ..access.access_control import AccessControl
from ..access.url_guard import UrlGuard
from ..calls.api.operations import CALL_SOCKET
from ..voice_registry import VoiceRegistry
from ..web.app import Mount
from ..web.openapi.document import OpenApiRoutes
from ..web.request_log import RequestLog
from .cartesia.http_api import CARTESIA_ERROR_FORMATS, CartesiaHttpApi
from .cartesia.socket_api import CARTESIA_SOCKET_OPERATION, CartesiaSocketApi
from .cosyvoice_server.http_api import CosyVoiceHttpApi
from .dashscope.audio_store import AudioStore
from .dashscope.http_api import DASHSCOPE_ERROR_FORMATS, DashScopeHttpApi
from .dashscope.socket_api import DASHSCOPE_SOCKET_OPERATION, DashScopeSocketApi
from .deepgram.http_api import DEEPGRAM_ERROR_FORMATS, DeepgramHttpApi
from .deepgram.socket_api import DEEPGRAM_SOCKET_OPERATIONS, DeepgramSocketApi
from .elevenlabs.http_api import ELEVENLABS_ERROR_FORMATS, ElevenLabsHttpApi
from .elevenlabs.listings import ElevenLabsListings
from .elevenlabs.socket_api import ELEVENLABS_SOCKET_OPERATIONS, ElevenLabsSocketApi
from .exchange_folder import ExchangeFolder
from .inworld.http_api import INWORLD_ERROR_FORMATS, InworldHttpApi
from .inworld.socket_api import INWORLD_SOCKET_OPERATION, InworldSocketApi
from .jambonz.http_api import JAMBONZ_ERROR_FORMATS, JambonzHttpApi
from .jambonz.socket_api import JAMBONZ_SOCKET_OPERATION, JambonzSocketApi
from .model_names import ModelNames
from .native_stream.socket_api import NATIVE_STREAM_OPERATION, NativeStreamApi
from .openai.captioned_speech import CaptionedSpeechApi
from .openai.json_endpoint import OPENAI_ERROR_FORMAT
from .openai.policy import OpenAIPolicy
from .openai.speech_api import OpenAISpeechApi
from .openai.voice_resolver import OpenAIVoiceResolver
from .openai.voices_api import OpenAIVoicesApi
from .pai.http_api import PaiHttpApi
from .pai.socket_api import PAI_SOCKET_OPERATION, PaiSocketApi
from .ray_serve.http_api import RAY_SERVE_ERROR_FORMAT, RayServeApi
from .speech_job import JobServer
from .speech_server import SpeechServer
from .xtts.http_api import XTTS_ERROR_FORMATS, XttsSpeechApi
from .xtts.settings_store import XttsSettingsStore
from .xtts.voices_api import XttsVoicesApi

# In the OpenAPI document. The calls API mounts its socket itself; the document is of the whole server.
WEBSOCKETS: Final = (
    NATIVE_STREAM_OPERATION,
    DASHSCOPE_SOCKET_OPERATION,
    CARTESIA_SOCKET_OPERATION,
    PAI_SOCKET_OPERATION,
    *ELEVENLABS_SOCKET_OPERATIONS,
    *DEEPGRAM_SOCKET_OPERATIONS,
    INWORLD_SOCKET_OPERATION,
    JAMBONZ_SOCKET_OPERATION,
    CALL_SOCKET,
)


class DrainableApi(Protocol):
    """An API that can be ended."""

    async def finish(self, within_s: float) -> None:
        """Refuse new work and wait at most within_s for the work under way."""


class SpeechApis:
    """The APIs, mounted together and ended together; belongs to an event loop."""

    def __init__(
        self,
        engine: SpeechEngine,
        access: AccessControl,
        voices: VoiceRegistry,
        guard: UrlGuard,
        policy: OpenAIPolicy,
        exchange_folder: Path | None = None,
        lexicons: NamedLexicons | None = None,
    ) -> None:
        """Make the APIs.

        guard: fetches the recordings that clients name. policy: settings of OpenAI's API.
        exchange_folder: of files that clients name. lexicons: those that requests name.
        """
        models = ModelNames(policy.models)
        self._server = server = SpeechServer(engine, access, RequestLog(engine.metrics), models, lexicons)
        openai_voices = OpenAIVoiceResolver(voices, guard, models)
        host = JobServer(server, voices, policy.max_text_characters)
        self.openai = OpenAISpeechApi(host, openai_voices)
        self.openai_voices = OpenAIVoicesApi(access, voices, policy.voice_list)
        self.captioned_speech = CaptionedSpeechApi(self.openai)
        self.native_stream = NativeStreamApi(server, openai_voices)
        self.dashscope = DashScopeSocketApi(server, voices)
        self.cartesia = CartesiaSocketApi(server, voices)
        self.cartesia_http = CartesiaHttpApi(host)
        self._further: list[DrainableApi] = []
        self.job_server = host  # for APIs with a port of their own
        self.cosyvoice = CosyVoiceHttpApi(host)
        folder, xtts_settings = ExchangeFolder(exchange_folder), XttsSettingsStore()
        self.pai = PaiSocketApi(host)
        self.pai_http = PaiHttpApi(host)
        self.ray_serve = RayServeApi(host, guard, folder)
        self.xtts = XttsSpeechApi(host, folder, xtts_settings)
        self.xtts_voices = XttsVoicesApi(host, xtts_settings)
        self.elevenlabs = ElevenLabsSocketApi(server, voices)
        self.elevenlabs_http = ElevenLabsHttpApi(host)
        self._elevenlabs_listings = ElevenLabsListings(server, voices)
        self.deepgram = DeepgramSocketApi(server, voices)
        self.deepgram_http = DeepgramHttpApi(host)
        self.inworld = InworldSocketApi(server, voices)
        self.inworld_http = InworldHttpApi(host)
        self.jambonz = JambonzSocketApi(server, voices)
        self.jambonz_http = JambonzHttpApi(host)
        self._audio_store = AudioStore()
        self.dashscope_http = DashScopeHttpApi(server, voices, guard, self._audio_store)

    def add(self, api: "DrainableApi") -> None:
        """End an API that has a port of its own together with the others."""
        self._further.append(api)

    def mounts(self) -> list[Mount]:
        """Return the routes of each; they check keys themselves."""
        apis = (
            self.openai_voices,
            self.captioned_speech,
            self.native_stream,
            self.dashscope,
            self.cartesia,
            self.xtts_voices,
            self.cosyvoice,
            self.pai,
            self.pai_http,
            self.elevenlabs,
            self.deepgram,
            self.inworld,
            self.jambonz,
            OpenApiRoutes(WEBSOCKETS),
        )
        return [
            Mount(self._elevenlabs_listings.routes(), None),  # before OpenAI's: /v1/models is of both
            Mount(self.elevenlabs_http.routes(), None, ELEVENLABS_ERROR_FORMATS),
            Mount(self.openai.routes(), None, [OPENAI_ERROR_FORMAT]),
            Mount(self.dashscope_http.routes(), None, DASHSCOPE_ERROR_FORMATS),
            Mount(self.inworld_http.routes(), None, INWORLD_ERROR_FORMATS),  # before Cartesia's /tts
            Mount(self.cartesia_http.routes(), None, CARTESIA_ERROR_FORMATS),
            Mount(self.xtts.routes(), None, XTTS_ERROR_FORMATS),
            Mount(self.ray_serve.routes(), None, [RAY_SERVE_ERROR_FORMAT]),
            Mount(self.deepgram_http.routes(), None, DEEPGRAM_ERROR_FORMATS),
            Mount(self.jambonz_http.routes(), None, JAMBONZ_ERROR_FORMATS),
            *(Mount(api.routes(), None) for api in apis),
        ]

    async def finish(self, within_s: float) -> None:
        """Refuse new requests and wait at most within_s for the speech under way."""
        apis: tuple[DrainableApi, ...] = (
            self.openai,
            self.native_stream,
            self.dashscope,
            self.dashscope_http,
            self.cartesia,
            self.cartesia_http,
            self.xtts,
            self.cosyvoice,
            self.ray_serve,
            self.pai,
            self.pai_http,
            *self._further,
            self.elevenlabs,
            self.elevenlabs_http,
            self.deepgram,
            self.deepgram_http,
            self.inworld,
            self.inworld_http,
            self.jambonz,
            self.jambonz_http,
        )
        await asyncio.gather(*(api.finish(within_s) for api in apis))

    async def aclose(self) -> None:
        """End all speech, and delete the audio that is stored for DashScope's links."""
        await self.finish(0.0)
        self._audio_store.close()
        self._server.encoding_threads.close()
