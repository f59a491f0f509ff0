"""Run a program so that nothing of it leaves this machine: ``python on_loopback.py PROGRAM [ARGUMENTS]``.

WebRTC is offered on 127.0.0.1 alone, which aioice leaves out by itself, and no name but this machine's is
looked up: a STUN server or a phone provider's API is not to be reached from a test.
"""

import runpy
import socket
import sys
from typing import Any

import aioice.ice

LOOPBACK = {None, "", "localhost", "127.0.0.1", "::1", "0.0.0.0"}


def stay_here() -> None:
    """Patch this process."""
    look_up = socket.getaddrinfo

    def look_up_here(host: Any, *arguments: Any, **named: Any) -> Any:
        if host in LOOPBACK:
            return look_up(host, *arguments, **named)
        raise socket.gaierror(socket.EAI_NONAME, f"{host} is not this machine")

    socket.getaddrinfo = look_up_here
    aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]


if __name__ == "__main__":
    stay_here()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
