"""Notifications to the service manager: ready, stopping, and alive.

A no-op unless the manager has named its socket in ``NOTIFY_SOCKET``. With ``WATCHDOG_USEC``, the manager
restarts a server that has not been alive for that time. A task of the event loop reports it three times as
often, so a loop that hangs reports nothing.

Source: sd_notify(3), sd_watchdog_enabled(3).
"""

import asyncio
import os
import socket
from collections.abc import MutableMapping
from typing import Final

_ALIVE_PER_TIMEOUT: Final = 3


class ServiceNotifier:
    """Sends the notifications of this process."""

    def __init__(self, environment: MutableMapping[str, str] | None = None) -> None:
        """Take the manager's variables, and out of the environment: they are not for child processes."""
        variables = os.environ if environment is None else environment
        address = variables.pop("NOTIFY_SOCKET", "")
        timeout_us = variables.pop("WATCHDOG_USEC", "")
        watched_pid = variables.pop("WATCHDOG_PID", str(os.getpid()))
        # "@" stands for the zero byte of an abstract socket.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        is_watched = timeout_us.isdecimal() and watched_pid == str(os.getpid())
        self._timeout_s = int(timeout_us) / 1e6 if is_watched else None

    def ready(self) -> None:
        """Tell that the server answers."""
        self._send("READY=1")

    def stopping(self) -> None:
        """Tell that the server takes nothing new."""
        self._send("STOPPING=1")

    async def report_alive(self) -> None:
        """Tell that the event loop runs, as long as the task does; return at once without a watchdog."""
        while self._timeout_s is not None:
            self._send("WATCHDOG=1")
            await asyncio.sleep(self._timeout_s / _ALIVE_PER_TIMEOUT)

    def _send(self, state: str) -> None:
        if self._address:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.sendto(state.encode(), self._address)
