"""TODO."""

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator

from .engine_watch import TIMEOUT_S
from .report import BenchFailed

_READY_LINE = re.compile(r"HTTP on (http://\S+?),")


@contextlib.contextmanager
def run_server_process(*flags: str) -> Iterator[str]:
    """A server on free ports, as its address; ``flags``: more of them for ``vivavoce serve``."""
    command = (
        "from vivavoce.gateway.cli.main import main; import sys; "
        "sys.argv[1:1] = 'serve --http-port 0 --audiosocket-port 0 --agent none'.split(); "
        "sys.argv += ['--log-level', 'WARNING']; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", command, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            ready_line = _READY_LINE.search(process.stdout.readline())
            if ready_line is None:
                _, errors = process.communicate(timeout=TIMEOUT_S)
                raise BenchFailed(f"the server did not start: {errors.strip()[-300:]}")
            yield ready_line[1]
        finally:
            process.terminate()
