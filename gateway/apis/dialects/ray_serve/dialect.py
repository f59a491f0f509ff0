"""The HTTP API of CosyVoice behind Ray Serve."""

from typing import Final

from ....web.app import Mount
from ...dialect import Dialect, DialectHost, OpenDialect
from .http_api import RAY_SERVE_ERROR_FORMAT, RayServeApi


def _open(host: DialectHost) -> OpenDialect:
    http = RayServeApi(host.jobs, host.guard, host.exchange_folder)
    return OpenDialect((Mount(http.routes(), None, [RAY_SERVE_ERROR_FORMAT]),), (http,))


RAY_SERVE: Final = Dialect("ray_serve", _open)
