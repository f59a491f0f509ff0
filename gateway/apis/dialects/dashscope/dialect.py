"""DashScope's API: a socket of tasks, speech over HTTP, and enrolment of voices."""

from typing import Final

from ....web.app import Mount
from ...dialect import Dialect, DialectHost, OpenDialect
from .audio_store import AudioStore
from .http_api import DASHSCOPE_ERROR_FORMATS, DashScopeHttpApi
from .socket_api import DASHSCOPE_SOCKET_OPERATION, DashScopeSocketApi


def _open(host: DialectHost) -> OpenDialect:
    store = AudioStore()
    sockets = DashScopeSocketApi(host.server, host.voices)
    http = DashScopeHttpApi(host.server, host.voices, host.guard, store)
    mounts = Mount(http.routes(), None, DASHSCOPE_ERROR_FORMATS), Mount(sockets.routes(), None)
    return OpenDialect(mounts, (sockets, http), store.close)


DASHSCOPE: Final = Dialect("dashscope", _open, (DASHSCOPE_SOCKET_OPERATION,))
