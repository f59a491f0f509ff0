"""Cartesia's API: a socket of contexts, and speech over HTTP."""

from typing import Final

from ...dialect import Dialect, DialectHost, OpenDialect
from .http_api import CartesiaHttpApi
from .socket_api import CARTESIA_SOCKET_OPERATION, CartesiaSocketApi


def _open(host: DialectHost) -> OpenDialect:
    return OpenDialect.of(CartesiaHttpApi(host.jobs), CartesiaSocketApi(host.server, host.voices))


CARTESIA: Final = Dialect("cartesia", _open, (CARTESIA_SOCKET_OPERATION,), title="Cartesia")
