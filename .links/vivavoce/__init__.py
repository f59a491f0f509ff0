"""vivavoce: streaming text-to-speech for live conversations.

The public names are imported when they are used first, so that the command line starts without the engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .tts_engine.backends.base import Delivery
    from .tts_engine.chunk import AudioChunk
    from .tts_engine.engine import Engine
    from .tts_engine.stream import Stream
    from .tts_engine.voices.voices import Voice

__all__ = ["AudioChunk", "Delivery", "Engine", "Stream", "Voice", "__version__"]

__version__ = "0.1.0"

if not TYPE_CHECKING:  # a type checker would take any name for a public one
    _MODULES = {
        "AudioChunk": ".tts_engine.chunk",
        "Delivery": ".tts_engine.backends.base",
        "Engine": ".tts_engine.engine",
        "Stream": ".tts_engine.stream",
        "Voice": ".tts_engine.voices.voices",
    }

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULES[name], __name__), name)
