"""Every speech API of one server, over one engine, one door, one registry of voices and one record.

The next API is one file beside this one and one line in ``mounts``.
"""

import asyncio

from ...tts_engine.engine import Engine
from ..access.access import Access
from ..access.url_guard import UrlGuard
from ..http import Mount
from ..voice_registry import VoiceRegistry
from .audio_store import AudioStore
from .dashscope import DashScopeSockets
from .dashscope_http import DashScopeHttp
from .openai import OpenAISpeech
from .openai_voices import OpenAIVoices
from .openapi import OpenApi
from .request_log import RequestLog
from .speech_socket import SpeechSockets


class SpeechApis:
    """The APIs, mounted together and ended together.

    guard: fetches the recordings that clients name. longest_text: characters of one request of OpenAI's.
    """

    def __init__(
        self, engine: Engine, access: Access, voices: VoiceRegistry, guard: UrlGuard, longest_text: int
    ) -> None:
        log = RequestLog(engine.metrics)
        self.openai = OpenAISpeech(engine, access, voices, log, guard, longest_text)
        self.openai_voices = OpenAIVoices(self.openai, voices)
        self.sockets = SpeechSockets(self.openai)
        self.dashscope = DashScopeSockets(engine, access, voices, log)
        self._kept = AudioStore()
        self.dashscope_http = DashScopeHttp(engine, access, voices, log, guard, self._kept)

    def mounts(self) -> list[Mount]:
        """The routes of each, which ask for keys themselves."""
        apis = (self.openai, self.openai_voices, self.sockets, self.dashscope, self.dashscope_http, OpenApi())
        return [Mount(api.routes(), None) for api in apis]

    async def finish(self, within_s: float) -> None:
        """Take nothing new, and let what is being said end, at most ``within_s``."""
        apis = (self.openai, self.sockets, self.dashscope, self.dashscope_http)
        await asyncio.gather(*(api.finish(within_s) for api in apis))

    async def aclose(self) -> None:
        """End what is being said, and delete the audio that is kept for its links."""
        await self.finish(0.0)
        self._kept.close()
