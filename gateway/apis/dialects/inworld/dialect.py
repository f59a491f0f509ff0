"""Inworld's API: a socket of contexts, and speech over HTTP."""

from typing import Final

from ....web.app import Mount
from ...dialect import Dialect, DialectHost, OpenDialect
from .http_api import INWORLD_ERROR_FORMATS, InworldHttpApi
from .socket_api import INWORLD_SOCKET_OPERATION, InworldSocketApi


def _open(host: DialectHost) -> OpenDialect:
    sockets, http = InworldSocketApi(host.server, host.voices), InworldHttpApi(host.jobs)
    mounts = Mount(http.routes(), None, INWORLD_ERROR_FORMATS), Mount(sockets.routes(), None)
    return OpenDialect(mounts, (sockets, http))


INWORLD: Final = Dialect("inworld", _open, (INWORLD_SOCKET_OPERATION,))
