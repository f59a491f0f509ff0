"""``vivavoce bench serve`` on the device, if the packages of the gateway are installed."""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec

from gpu_check.findings import CheckOptions, Finding

_MAIN = "from vivavoce.gateway.cli.main import main; main()"
_COUNTS = (1, 4, 8, 16, 32, 64)
_STREAM_S = 4.0  # of speech, about


def measure(options: CheckOptions) -> Iterator[Finding]:
    """Yield the figures of each load, or why there are none."""
    if missing := [name for name in ("fastapi", "uvicorn", "av", "httpx") if find_spec(name) is None]:
        yield Finding("skipped", f"without {', '.join(missing)}")
        return
    for count in (1,) if options.is_quick else _COUNTS:
        requests = 1 if options.is_quick else max(4, 2 * count)
        command = [sys.executable, "-c", _MAIN, "bench", "serve", "--json", "--bundle", str(options.bundle)]
        command += ["--device", options.device, "--streams", str(count), "--requests", str(requests)]
        done = subprocess.run([*command, "--rate", str(count / _STREAM_S)], capture_output=True, text=True)
        if not done.stdout:
            yield Finding(
                f"serve, {count} streams, failed", (done.stderr.splitlines() or ["ended"])[-1][:300]
            )
            continue
        for figure in json.loads(done.stdout)["figures"]:
            yield Finding(f"serve, {count} streams, {figure['name']}", figure["value"], figure["unit"])
