"""The speech API of Alibaba Cloud's PAI: a socket, and speech over HTTP."""

from typing import Final

from ....web.app import Mount
from ...dialect import Dialect, DialectHost, OpenDialect
from .http_api import PaiHttpApi
from .socket_api import PAI_SOCKET_OPERATION, PaiSocketApi


def _open(host: DialectHost) -> OpenDialect:
    sockets, http = PaiSocketApi(host.jobs), PaiHttpApi(host.jobs)
    return OpenDialect((Mount(sockets.routes(), None), Mount(http.routes(), None)), (sockets, http))


PAI: Final = Dialect("pai", _open, (PAI_SOCKET_OPERATION,))
