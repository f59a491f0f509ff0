"""A proxy with TLS before a gateway on loopback: Caddy, with a certificate that the test makes."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

SEARCH_PATH: Final = "/usr/bin:/bin:/usr/sbin:/sbin"
_START_TIMEOUT_S: Final = 30.0
_CADDYFILE: Final = """
{{
    admin off
    auto_https off
}}
https://{name}:{port} {{
    bind 127.0.0.1
    tls {folder}/cert.pem {folder}/key.pem
    reverse_proxy {upstream}
}}
"""


def need_programs(*names: str) -> None:
    """Skip the test if one of the programs is not installed."""
    for name in names:
        if shutil.which(name, path=SEARCH_PATH) is None:
            pytest.skip(f"needs {name} (apt-get install nginx-light caddy openssl)")


def make_certificate(folder: Path, name: str) -> None:
    """Write ``cert.pem`` and ``key.pem`` of a host, signed by itself."""
    certificate = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *certificate, *files],
        check=True,
        capture_output=True,
    )


def caddy_command(folder: Path, name: str, port: int, upstream: str) -> list[str]:
    """Return the command of a Caddy that passes ``https://name:port`` on to ``upstream``, host:port."""
    (folder / "Caddyfile").write_text(
        _CADDYFILE.format(folder=folder, name=name, port=port, upstream=upstream)
    )
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


def free_port() -> int:
    """Return a TCP port of loopback that was free."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def tls_proxy(folder: Path, url: str) -> Iterator[str]:
    """Run a proxy of the server at ``url``; yield its URL. Its certificate is ``folder / "cert.pem"``."""
    need_programs("caddy", "openssl")
    make_certificate(folder, "localhost")
    port = free_port()
    environment = {"HOME": str(folder), "PATH": SEARCH_PATH}
    command = caddy_command(folder, "localhost", port, url.removeprefix("http://"))
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_open(port, process)
            yield f"https://localhost:{port}"
        finally:
            process.terminate()


def _wait_open(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_TIMEOUT_S
    while True:
        assert process.poll() is None, "the proxy ended"
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            assert time.monotonic() < end, "the proxy does not listen"
            time.sleep(0.05)
        else:
            return
