"""The custom speech API of jambonz: a socket, and speech over HTTP."""

from typing import Final

from ....web.app import Mount
from ...dialect import Dialect, DialectHost, OpenDialect
from .http_api import JAMBONZ_ERROR_FORMATS, JambonzHttpApi
from .socket_api import JAMBONZ_SOCKET_OPERATION, JambonzSocketApi


def _open(host: DialectHost) -> OpenDialect:
    sockets, http = JambonzSocketApi(host.server, host.voices), JambonzHttpApi(host.jobs)
    mounts = Mount(http.routes(), None, JAMBONZ_ERROR_FORMATS), Mount(sockets.routes(), None)
    return OpenDialect(mounts, (sockets, http))


JAMBONZ: Final = Dialect("jambonz", _open, (JAMBONZ_SOCKET_OPERATION,))
