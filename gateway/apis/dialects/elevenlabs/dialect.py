"""ElevenLabs' API: sockets, speech over HTTP, and lists."""

from typing import Final

from ...dialect import Dialect, DialectHost, OpenDialect
from .http_api import ElevenLabsHttpApi
from .listings import ElevenLabsListings
from .socket_api import ELEVENLABS_SOCKET_OPERATIONS, ElevenLabsSocketApi


def _open(host: DialectHost) -> OpenDialect:
    sockets = ElevenLabsSocketApi(host.server, host.voices)
    return OpenDialect.of(ElevenLabsListings(host.jobs), ElevenLabsHttpApi(host.jobs), sockets)


ELEVENLABS: Final = Dialect("elevenlabs", _open, ELEVENLABS_SOCKET_OPERATIONS, title="ElevenLabs")
