"""The HTTP API of CosyVoice behind Ray Serve."""

from typing import Final

from ...dialect import Dialect, DialectHost, OpenDialect
from .http_api import RayServeApi


def _open(host: DialectHost) -> OpenDialect:
    return OpenDialect.of(RayServeApi(host.jobs, host.guard, host.exchange_folder))


RAY_SERVE: Final = Dialect("ray_serve", _open, title="CosyVoice on Ray Serve")
