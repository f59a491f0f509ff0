"""A gateway in a process of its own, with the settings' defaults."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_SERVER = """
import asyncio, sys
from shared.browser.chromium import loopback_only
from vivavoce.gateway.cli.commands.serve.process import serve
from vivavoce.gateway.cli.configuration.settings_loader import load_settings

settings = load_settings(flags={"http_port": int(sys.argv[1]), "audiosocket_port": 0})
with loopback_only():
    asyncio.run(serve(settings, announce=lambda line: print(line, flush=True)))
"""


@asynccontextmanager
async def server_process(port: int = 0) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Run a gateway on an HTTP port, 0 for any; yield its process and its URL."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _SERVER, str(port)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        yield process, "http://" + line.partition("http://")[2].partition(",")[0]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
