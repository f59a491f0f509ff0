"""Deepgram's API: two sockets, and speech over HTTP."""

from typing import Final

from ...dialect import Dialect, OpenDialect
from ...shell.speech_server import SpeechServer
from .http_api import DeepgramHttpApi
from .socket_api import DEEPGRAM_SOCKET_OPERATIONS, DeepgramSocketApi


def _open(server: SpeechServer) -> OpenDialect:
    return OpenDialect.of(DeepgramHttpApi(server), DeepgramSocketApi(server, server.voices))


DEEPGRAM: Final = Dialect("deepgram", _open, DEEPGRAM_SOCKET_OPERATIONS, title="Deepgram")
