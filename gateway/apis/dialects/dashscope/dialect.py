"""DashScope's API: a socket of tasks, speech over HTTP, and enrolment of voices."""

from typing import Final

from ...dialect import Dialect, OpenDialect
from ...shell.speech_server import SpeechServer
from .audio_store import AudioStore
from .http_api import DashScopeHttpApi
from .socket_api import DASHSCOPE_SOCKET_OPERATION, DashScopeSocketApi


def _open(server: SpeechServer) -> OpenDialect:
    store = AudioStore()
    http = DashScopeHttpApi(server, server.guard, store)
    return OpenDialect.of(http, DashScopeSocketApi(server, server.voices), close=store.close)


DASHSCOPE: Final = Dialect("dashscope", _open, (DASHSCOPE_SOCKET_OPERATION,), title="DashScope")
