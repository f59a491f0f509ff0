"""Cartesia's API: a socket of contexts, and speech over HTTP."""

from typing import Final

from ...dialect import Dialect, OpenDialect
from ...shell.speech_server import SpeechServer
from .http_api import CartesiaHttpApi
from .socket_api import CARTESIA_SOCKET_OPERATION, CartesiaSocketApi


def _open(server: SpeechServer) -> OpenDialect:
    return OpenDialect.of(CartesiaHttpApi(server), CartesiaSocketApi(server, server.voices))


CARTESIA: Final = Dialect("cartesia", _open, (CARTESIA_SOCKET_OPERATION,), title="Cartesia")
