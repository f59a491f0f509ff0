"""Pipecat services and transport: everything that a Pipecat user imports.

    from vivavoce.adapters.pipecat import VivavoceTTSService

Raises MissingExtra, whose message is the pip line, if Pipecat is not installed. These plug-ins use the
sockets of Pipecat, websockets and asyncio.
"""

from ...tts_engine.errors import MissingExtra
from ..playback.background import BackgroundSounds

try:
    from .audiosocket.params import AudioSocketCaller, AudioSocketParams
    from .audiosocket.server import PipecatAudioSocketServer
    from .audiosocket.transport import AudioSocketTransport
    from .engine_tts_service import VivavoceTTSService
    from .remote_tts_service import VivavoceWebsocketTTSService
    from .tts_settings import VivavoceTTSSettings
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("pipecat", "loguru"):  # loguru comes with Pipecat
        raise
    raise MissingExtra("Pipecat support", "pipecat") from error

__all__ = [
    "AudioSocketCaller",
    "AudioSocketParams",
    "AudioSocketTransport",
    "BackgroundSounds",
    "PipecatAudioSocketServer",
    "VivavoceTTSService",
    "VivavoceTTSSettings",
    "VivavoceWebsocketTTSService",
]
