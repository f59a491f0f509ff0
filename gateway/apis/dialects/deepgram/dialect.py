"""Deepgram's API: two sockets, and speech over HTTP."""

from typing import Final

from ...dialect import Dialect, DialectHost, OpenDialect
from .http_api import DeepgramHttpApi
from .socket_api import DEEPGRAM_SOCKET_OPERATIONS, DeepgramSocketApi


def _open(host: DialectHost) -> OpenDialect:
    return OpenDialect.of(DeepgramHttpApi(host.jobs), DeepgramSocketApi(host.server, host.voices))


DEEPGRAM: Final = Dialect("deepgram", _open, DEEPGRAM_SOCKET_OPERATIONS, title="Deepgram")
