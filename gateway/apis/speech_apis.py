"""Every speech API of one server, over one engine, one door, one registry of voices and one record.

The next API is one file beside this one and one line in ``mounts``.
"""

import asyncio

from ...tts_engine.engine import Engine
from ..access.access_control import AccessControl
from ..access.url_guard import UrlGuard
from ..voice_registry import VoiceRegistry
from ..web.app import Mount
from ..web.openapi.document import OpenApiRoutes
from ..web.request_log import RequestLog
from .dashscope.audio_store import AudioStore
from .dashscope.http_api import DashScopeHttpApi
from .dashscope.socket_api import DashScopeSocketApi
from .native_stream.socket_api import NativeStreamApi
from .openai.speech_api import OpenAISpeechApi
from .openai.voices_api import OpenAIVoicesApi
from .speech_server import SpeechServer


class SpeechApis:
    """The APIs, mounted together and ended together.

    guard: fetches the recordings that clients name. max_text_characters: characters of one request of OpenAI's.
    """

    def __init__(
        self,
        engine: Engine,
        access: AccessControl,
        voices: VoiceRegistry,
        guard: UrlGuard,
        max_text_characters: int,
    ) -> None:
        log = RequestLog(engine.metrics)
        self.openai = OpenAISpeechApi(engine, access, voices, log, guard, max_text_characters)
        self.openai_voices = OpenAIVoicesApi(self.openai, voices)
        self.native_stream = NativeStreamApi(self.openai)
        server = SpeechServer(engine, access, log)
        self.dashscope = DashScopeSocketApi(server, voices)
        self._audio_store = AudioStore()
        self.dashscope_http = DashScopeHttpApi(server, voices, guard, self._audio_store)

    def mounts(self) -> list[Mount]:
        """The routes of each, which ask for keys themselves."""
        apis = (
            self.openai,
            self.openai_voices,
            self.native_stream,
            self.dashscope,
            self.dashscope_http,
            OpenApiRoutes(),
        )
        return [Mount(api.routes(), None) for api in apis]

    async def finish(self, within_s: float) -> None:
        """Take nothing new, and let what is being said end, at most ``within_s``."""
        apis = (self.openai, self.native_stream, self.dashscope, self.dashscope_http)
        await asyncio.gather(*(api.finish(within_s) for api in apis))

    async def aclose(self) -> None:
        """End what is being said, and delete the audio that is kept for its links."""
        await self.finish(0.0)
        self._audio_store.close()
