"""ElevenLabs' API: sockets, speech over HTTP, and lists."""

from typing import Final

from ...dialect import Dialect, OpenDialect
from ...shell.speech_server import SpeechServer
from .http_api import ElevenLabsHttpApi
from .listings import ElevenLabsListings
from .socket_api import ELEVENLABS_SOCKET_OPERATIONS, ElevenLabsSocketApi


def _open(server: SpeechServer) -> OpenDialect:
    sockets = ElevenLabsSocketApi(server, server.voices)
    return OpenDialect.of(ElevenLabsListings(server), ElevenLabsHttpApi(server), sockets)


ELEVENLABS: Final = Dialect("elevenlabs", _open, ELEVENLABS_SOCKET_OPERATIONS, title="ElevenLabs")
