"""Inworld's API: a socket of contexts, and speech over HTTP."""

from typing import Final

from ...dialect import Dialect, DialectHost, OpenDialect
from .http_api import InworldHttpApi
from .socket_api import INWORLD_SOCKET_OPERATION, InworldSocketApi


def _open(host: DialectHost) -> OpenDialect:
    return OpenDialect.of(InworldHttpApi(host.jobs), InworldSocketApi(host.server, host.voices))


INWORLD: Final = Dialect("inworld", _open, (INWORLD_SOCKET_OPERATION,), title="Inworld")
