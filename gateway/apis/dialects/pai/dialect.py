"""The speech API of Alibaba Cloud's PAI: a socket, and speech over HTTP."""

from typing import Final

from ...dialect import Dialect, DialectHost, OpenDialect
from .http_api import PaiHttpApi
from .socket_api import PAI_SOCKET_OPERATION, PaiSocketApi


def _open(host: DialectHost) -> OpenDialect:
    return OpenDialect.of(PaiSocketApi(host.jobs), PaiHttpApi(host.jobs))


PAI: Final = Dialect("pai", _open, (PAI_SOCKET_OPERATION,), title="PAI")
