"""A server process that is attacked, and what is read from outside: memory, open files, its log."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from vivavoce.gateway.cli.bench.processes import own_resident_mb, process_tree

_COMMAND = (sys.executable, "-c", "from vivavoce.gateway.cli.main import main; main()", "serve")
TRACEBACK = "Traceback (most recent"  # in the line before the frames
_START_S = 60.0
_STOP_S = 60.0


@dataclass(frozen=True, slots=True)
class AttackedServer:
    """A running ``vivavoce serve`` and the processes that it started."""

    pid: int
    log: Path
    http: tuple[str, int]
    audiosocket: tuple[str, int]

    @property
    def url(self) -> str:
        """Address of HTTP without the scheme."""
        return "{}:{}".format(*self.http)

    def memory_mb(self) -> dict[str, float]:
        """Return the resident memory of the server and of its children, MB each."""
        server, *children = process_tree(self.pid)
        names = {f"child {number}": pid for number, pid in enumerate(children, 1)}
        return {name: own_resident_mb(pid) for name, pid in ({"server": server} | names).items()}

    def open_files(self) -> int:
        """Return the number of open descriptors of the server."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def count_tracebacks(self) -> int:
        """Return the number of tracebacks in the log so far."""
        with self.log.open(encoding="utf-8", errors="replace") as lines:
            return sum(TRACEBACK in line for line in lines)

    def log_lines(self) -> list[str]:
        """Return the lines of the log so far."""
        return self.log.read_text("utf-8", "replace").splitlines()


@asynccontextmanager
async def attacked_server(folder: Path, *flags: str) -> AsyncIterator[AttackedServer]:
    """Start a server in a process group of its own, with those flags too; its log is a file in the folder.

    Raises RuntimeError if it does not start or does not end cleanly.
    """
    log = folder / "server.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *_COMMAND, "--http-port", "0", "--audiosocket-port", "0", "--agent", "none", *flags,
            stdout=asyncio.subprocess.PIPE, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), _START_S)).decode()
        ports = re.findall(r"127\.0\.0\.1:(\d+)", line)
        if len(ports) != 2:
            raise RuntimeError(f"the server did not start: {line!r}, log {log}")
        audiosocket, http = (("127.0.0.1", int(port)) for port in ports)
        yield AttackedServer(process.pid, log, http, audiosocket)
        with suppress(ProcessLookupError):  # it has crashed, which its exit status says
            process.send_signal(signal.SIGTERM)
        if status := await asyncio.wait_for(process.wait(), _STOP_S):
            raise RuntimeError(f"the server ended with status {status}, log {log}")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
