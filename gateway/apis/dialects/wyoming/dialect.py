"""Wyoming's record."""

from typing import Final

from ...dialect import Dialect, DialectHost, DialectPort, DrainableApi, OpenDialect
from ...shell.speech_job import JobServer
from .server import WyomingServer


async def _listen(jobs: JobServer, address: tuple[str, int]) -> tuple[DrainableApi, int]:
    server = WyomingServer(jobs)
    return server, await server.start(address)


def _open(host: DialectHost) -> OpenDialect:
    return OpenDialect((), ())


WYOMING: Final = Dialect("wyoming", _open, ports=(DialectPort("wyoming", _listen),), title="Wyoming")
