"""Cartesia's API: a socket of contexts, and speech over HTTP."""

from typing import Final

from ....web.app import Mount
from ...dialect import Dialect, DialectHost, OpenDialect
from .http_api import CARTESIA_ERROR_FORMATS, CartesiaHttpApi
from .socket_api import CARTESIA_SOCKET_OPERATION, CartesiaSocketApi


def _open(host: DialectHost) -> OpenDialect:
    sockets, http = CartesiaSocketApi(host.server, host.voices), CartesiaHttpApi(host.jobs)
    mounts = Mount(http.routes(), None, CARTESIA_ERROR_FORMATS), Mount(sockets.routes(), None)
    return OpenDialect(mounts, (sockets, http))


CARTESIA: Final = Dialect("cartesia", _open, (CARTESIA_SOCKET_OPERATION,))
