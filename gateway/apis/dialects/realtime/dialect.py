"""OpenAI's Realtime API: a socket."""

from typing import Final

from ...dialect import Dialect, DialectHost, OpenDialect
from .socket_api import REALTIME_OPERATION, RealtimeSocketApi


def _open(host: DialectHost) -> OpenDialect:
    return OpenDialect.of(RealtimeSocketApi(host.server, host.voices))


REALTIME: Final = Dialect("realtime", _open, (REALTIME_OPERATION,), title="OpenAI Realtime")
