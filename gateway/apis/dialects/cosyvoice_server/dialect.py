"""The HTTP API of upstream CosyVoice's server."""

from typing import Final

from ....web.app import Mount
from ...dialect import Dialect, DialectHost, OpenDialect
from .http_api import CosyVoiceHttpApi


def _open(host: DialectHost) -> OpenDialect:
    http = CosyVoiceHttpApi(host.jobs)
    return OpenDialect((Mount(http.routes(), None),), (http,))


COSYVOICE_SERVER: Final = Dialect("cosyvoice_server", _open)
