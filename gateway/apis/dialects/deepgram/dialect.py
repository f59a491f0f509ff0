"""Deepgram's API: two sockets, and speech over HTTP."""

from typing import Final

from ....web.app import Mount
from ...dialect import Dialect, DialectHost, OpenDialect
from .http_api import DEEPGRAM_ERROR_FORMATS, DeepgramHttpApi
from .socket_api import DEEPGRAM_SOCKET_OPERATIONS, DeepgramSocketApi


def _open(host: DialectHost) -> OpenDialect:
    sockets, http = DeepgramSocketApi(host.server, host.voices), DeepgramHttpApi(host.jobs)
    mounts = Mount(http.routes(), None, DEEPGRAM_ERROR_FORMATS), Mount(sockets.routes(), None)
    return OpenDialect(mounts, (sockets, http))


DEEPGRAM: Final = Dialect("deepgram", _open, DEEPGRAM_SOCKET_OPERATIONS)
