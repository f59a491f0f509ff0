"""The server's own socket, which takes the text of one utterance after the other."""

from typing import Final

from ....web.app import Mount
from ...dialect import Dialect, OpenDialect
from ...kits.openai.voice_resolver import OpenAIVoiceResolver
from ...shell.speech_server import SpeechServer
from .socket_api import NATIVE_STREAM_OPERATION, NativeStreamApi


def _open(server: SpeechServer) -> OpenDialect:
    voices = OpenAIVoiceResolver(server.voices, server.guard, server.models)
    sockets = NativeStreamApi(server, voices)
    return OpenDialect((Mount(sockets.routes(), None),), (sockets,))


NATIVE_STREAM: Final = Dialect("native_stream", _open, (NATIVE_STREAM_OPERATION,), title="vivavoce stream")
