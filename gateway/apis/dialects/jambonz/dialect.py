"""The custom speech API of jambonz: a socket, and speech over HTTP."""

from typing import Final

from ...dialect import Dialect, DialectHost, OpenDialect
from .http_api import JambonzHttpApi
from .socket_api import JAMBONZ_SOCKET_OPERATION, JambonzSocketApi


def _open(host: DialectHost) -> OpenDialect:
    return OpenDialect.of(JambonzHttpApi(host.jobs), JambonzSocketApi(host.server, host.voices))


JAMBONZ: Final = Dialect("jambonz", _open, (JAMBONZ_SOCKET_OPERATION,), title="jambonz")
