"""DashScope's API: a socket of tasks, speech over HTTP, and enrolment of voices."""

from typing import Final

from ...dialect import Dialect, DialectHost, OpenDialect
from .audio_store import AudioStore
from .http_api import DashScopeHttpApi
from .socket_api import DASHSCOPE_SOCKET_OPERATION, DashScopeSocketApi


def _open(host: DialectHost) -> OpenDialect:
    store = AudioStore()
    http = DashScopeHttpApi(host.jobs, host.guard, store)
    return OpenDialect.of(http, DashScopeSocketApi(host.server, host.voices), close=store.close)


DASHSCOPE: Final = Dialect("dashscope", _open, (DASHSCOPE_SOCKET_OPERATION,), title="DashScope")
