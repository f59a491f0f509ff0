"""A real coturn on loopback that takes time-limited credentials, for tests: Debian's package coturn."""

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

needs_coturn = pytest.mark.skipif(
    shutil.which("turnserver") is None, reason="needs coturn: apt-get install coturn"
)


@asynccontextmanager
async def serve_coturn(secret: str, folder: Path) -> AsyncIterator[str]:
    """Serve TURN with a shared secret for the duration of the context; yields its URL."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *("turnserver", "-n", "--listening-ip=127.0.0.1", f"--listening-port={port}", "--relay-ip=127.0.0.1"),
        *("--use-auth-secret", f"--static-auth-secret={secret}", "--realm=tests", "--allow-loopback-peers"),
        *("--no-cli", "--no-tls", "--no-dtls", "--log-file=stdout", "--simple-log"),
        *(f"--pidfile={folder / 'pid'}", f"--userdb={folder / 'db'}"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=folder,
    )
    try:
        await _wait_until_it_answers(port, process)
        yield f"turn:127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


async def _wait_until_it_answers(port: int, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(30):
        while process.returncode is None:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            return
    raise RuntimeError(f"turnserver ended with {process.returncode}")
