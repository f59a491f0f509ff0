"""Inworld's API: a socket of contexts, and speech over HTTP."""

from typing import Final

from ...dialect import Dialect, OpenDialect
from ...shell.speech_server import SpeechServer
from .http_api import InworldHttpApi
from .socket_api import INWORLD_SOCKET_OPERATION, InworldSocketApi


def _open(server: SpeechServer) -> OpenDialect:
    return OpenDialect.of(InworldHttpApi(server), InworldSocketApi(server, server.voices))


INWORLD: Final = Dialect("inworld", _open, (INWORLD_SOCKET_OPERATION,), title="Inworld")
