"""A real Redis on a free port of the loopback interface; it can be stopped and started again."""

import contextlib
import random
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

import pytest

_START_TIMEOUT_S = 30.0


class RedisServer:
    """A process of redis-server that keeps nothing on disk. Skips the test if there is none."""

    def __init__(self) -> None:
        pytest.importorskip("redis")
        program = shutil.which("redis-server") or shutil.which("valkey-server")
        if program is None:
            pytest.skip("redis-server is not installed (apt-get install redis-server)")
        self._program = program
        self._folder = tempfile.TemporaryDirectory()
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """For ``cluster.redis_url``."""
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._folder.cleanup()

    def start(self) -> None:
        """Start, empty, and wait until it answers."""
        settings = ["--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--appendonly", "no"]
        folder = Path(self._folder.name)
        self._process = subprocess.Popen(
            [self._program, *settings, "--dir", str(folder)], stdout=subprocess.DEVNULL
        )
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._answers():
            assert time.monotonic() < deadline and self._process.poll() is None, "redis-server did not start"
            time.sleep(0.02)

    def stop(self) -> None:
        """Kill the process; connections break."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as client:
                client.sendall(b"PING\r\n")
                return client.recv(7) == b"+PONG\r\n"
        except OSError:
            return False


def _free_port() -> int:
    """A free port below those that the system gives to clients, one of which might take it meanwhile."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
