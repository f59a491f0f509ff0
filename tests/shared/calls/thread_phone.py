"""A phone that reads its AudioSocket call in a thread, which a busy event loop does not delay."""

import socket
import struct
import threading
import time
from contextlib import suppress


class ThreadPhone:
    """Reads all packets of a call in a thread; ``arrivals`` has the time and whether it sounds, of each."""

    def __init__(self, sock: socket.socket) -> None:
        self.arrivals: list[tuple[float, bool]] = []
        self.hung_up = False
        self.sock = sock
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def close(self) -> None:
        with suppress(OSError):  # the other side may have closed
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
        self._thread.join()

    def sounding(self) -> int:
        return sum(sounds for _, sounds in self.arrivals)

    def _read(self) -> None:
        # A call that is ended at both sides at once may be reset.
        with suppress(ConnectionResetError), self.sock.makefile("rb") as stream:
            while len(header := stream.read(3)) == 3:
                kind, length = struct.unpack("!BH", header)
                payload = stream.read(length)
                if kind == 0x00:
                    self.hung_up = True
                else:
                    self.arrivals.append((time.monotonic(), any(payload)))
