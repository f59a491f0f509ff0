"""Client of the native speech socket of a vivavoce server, with a pool of open connections.

async with SpeechClient("ws://127.0.0.1:8080", api_key=KEY) as client:
    async with client.utterance(SpeechOptions(voice="heart")) as utterance:
        await utterance.push_text("Hello.")
        await utterance.end_input()
        async for piece in utterance:
            play(piece.audio)
"""

from .connection import SPEECH_STREAM_PATH, ServerUnavailable
from .pool import PoolPolicy, SpeechClient
from .utterance import RemoteUtterance, SpeechOptions, SpeechPiece

__all__ = [
    "SPEECH_STREAM_PATH",
    "PoolPolicy",
    "RemoteUtterance",
    "ServerUnavailable",
    "SpeechClient",
    "SpeechOptions",
    "SpeechPiece",
]
