"""ElevenLabs' API: sockets, speech over HTTP, and lists."""

from typing import Final

from ....web.app import Mount
from ...dialect import Dialect, DialectHost, OpenDialect
from .http_api import ELEVENLABS_ERROR_FORMATS, ElevenLabsHttpApi
from .listings import ElevenLabsListings
from .socket_api import ELEVENLABS_SOCKET_OPERATIONS, ElevenLabsSocketApi


def _open(host: DialectHost) -> OpenDialect:
    sockets, http = ElevenLabsSocketApi(host.server, host.voices), ElevenLabsHttpApi(host.jobs)
    mounts = (
        Mount(ElevenLabsListings(host.server, host.voices).routes(), None),
        Mount(http.routes(), None, ELEVENLABS_ERROR_FORMATS),
        Mount(sockets.routes(), None),
    )
    return OpenDialect(mounts, (sockets, http))


ELEVENLABS: Final = Dialect("elevenlabs", _open, ELEVENLABS_SOCKET_OPERATIONS)
