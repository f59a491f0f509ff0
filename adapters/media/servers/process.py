"""Process of a media server: ``python -m vivavoce.adapters.media.servers.process DESCRIPTOR MODULE...``.

The descriptor is an inherited Unix stream socket, this end of the link; the modules of the wires are imported
first. The process ends when control closes the link or is gone; it ignores the signals of a terminal and of a
service manager, which end control.
"""

import contextlib
import gc
import importlib
import os
import signal
import socket
import sys
from typing import Final

from ....tts_engine.process_limits import raise_descriptor_limit
from ...voice_activity import VoiceActivityDetector
from .server import serve_media

_PRIORITY: Final = -10  # niceness; negative values need a privilege


def main() -> None:
    """Serve until control is gone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
    raise_descriptor_limit()
    descriptor, *wire_modules = sys.argv[1:]
    for name in wire_modules:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what is loaded so far is not collected: collections during calls are short
    gc.collect()  # of nothing: else the next full one waits for a quarter as many objects as are frozen
    serve_media(socket.socket(fileno=int(descriptor)), VoiceActivityDetector)


if __name__ == "__main__":
    main()
