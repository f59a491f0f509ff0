"""vivavoce: streaming text-to-speech for live conversations.

The public names are imported when they are used first, so that the command line starts without the engine.

Every process that imports a part of the package runs this file first. So it is the place for what must be in
the environment before a library is imported: ONNX Runtime and Ray report their use to their makers otherwise.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .tts_engine.chunk import AudioChunk
    from .tts_engine.engine import Engine
    from .tts_engine.stream import Stream
    from .tts_engine.stream_request import Delivery
    from .tts_engine.voices.voices import Voice

__all__ = ["AudioChunk", "Delivery", "Engine", "Stream", "Voice", "__version__"]

__version__ = "0.1.0"

_LIBRARY_REPORTS_OFF = {
    "ORT_DISABLE_TELEMETRY": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_USAGE_STATS_REPORT_URL": "",  # to which a cluster reports that it reports nothing
}


def _stop_library_reports() -> None:
    """Stop the libraries' reports unless the operator has decided on them."""
    for name, value in _LIBRARY_REPORTS_OFF.items():
        os.environ.setdefault(name, value)


_stop_library_reports()

if not TYPE_CHECKING:  # a type checker would take any name for a public one
    _MODULES = {
        "AudioChunk": ".tts_engine.chunk",
        "Delivery": ".tts_engine.stream_request",
        "Engine": ".tts_engine.engine",
        "Stream": ".tts_engine.stream",
        "Voice": ".tts_engine.voices.voices",
    }

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULES[name], __name__), name)
