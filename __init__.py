"""vivavoce: streaming text-to-speech for live conversations."""

from .tts_engine.backends.base import Delivery
from .tts_engine.chunk import AudioChunk
from .tts_engine.engine import Engine
from .tts_engine.stream import Stream
from .tts_engine.voices.voices import Voice

__all__ = ["AudioChunk", "Delivery", "Engine", "Stream", "Voice", "__version__"]

__version__ = "0.1.0"
