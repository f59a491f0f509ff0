"""The servers of upstream CosyVoice: its HTTP API, and its gRPC service on a port of its own."""

from typing import Final

from ...dialect import Dialect, DialectHost, OpenDialect
from .http_api import CosyVoiceHttpApi


def _open(host: DialectHost) -> OpenDialect:
    return OpenDialect.of(CosyVoiceHttpApi(host.jobs))


COSYVOICE_SERVER: Final = Dialect("cosyvoice_server", _open)
