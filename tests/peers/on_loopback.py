"""Run a program with its traffic restricted to loopback: ``python on_loopback.py PROGRAM [ARGUMENTS]``.

WebRTC offers 127.0.0.1 alone, which aioice omits by default. Host names other than this machine's cannot be
resolved, so a test reaches no STUN server and no phone provider's API.
"""

import runpy
import socket
import sys
from typing import Any

import aioice.ice

LOOPBACK = {None, "", "localhost", "127.0.0.1", "::1", "0.0.0.0"}


def restrict_to_loopback() -> None:
    """Patch name resolution and the ICE addresses of this process."""
    look_up = socket.getaddrinfo

    def look_up_loopback(host: Any, *arguments: Any, **keywords: Any) -> Any:
        if host in LOOPBACK:
            return look_up(host, *arguments, **keywords)
        raise socket.gaierror(socket.EAI_NONAME, f"{host} is not a loopback name")

    socket.getaddrinfo = look_up_loopback
    aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]


if __name__ == "__main__":
    restrict_to_loopback()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
