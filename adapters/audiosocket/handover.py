"""Connections that are handed over, socket and all, once the caller has sent the call's id.

Who accepts connections need not be who serves calls: a slow accept, refusal or wait for the id is then heard
by nobody.
"""

import os
import socket
from typing import Protocol
from uuid import UUID

from .call import AudioSocketCall, CallApplication


class HandoverApplication(CallApplication, Protocol):
    """Accepts connections and takes their sockets. ``open`` is never called."""

    def take_over(self, call: "HandoverCall", call_id: UUID, sock: socket.socket, received: bytes) -> None:
        """Take an identified connection; ``received`` is all that was read from it, with the call's id."""


class HandoverCall(AudioSocketCall):
    """A connection until its call id has arrived; it ends here if that does not happen."""

    def __init__(self, application: HandoverApplication, *arguments: object) -> None:
        super().__init__(application, *arguments)  # type: ignore[arg-type]
        self._handover_application = application
        self._received = bytearray()

    def data_received(self, data: bytes) -> None:
        """Handle received messages, and keep them for who takes the socket."""
        if not self.ended:
            self._received += data
        super().data_received(data)

    def _open(self, call_id: UUID) -> None:
        self.call_id = call_id
        self.ended = True  # here
        sock = socket.socket(fileno=os.dup(self._transport.get_extra_info("socket").fileno()))
        self._set_timer(None)
        self._transport.abort()  # closes this descriptor of the connection, not the connection
        self._handover_application.take_over(self, call_id, sock, bytes(self._received))


class NoPacer:
    """Pacer of connections that send no packets here."""

    def join(self, call: AudioSocketCall, /) -> float:
        """Raise AssertionError: a connection that is handed over is not ticked."""
        raise AssertionError("a connection that is handed over has no pacer")

    def leave(self, call: AudioSocketCall, /) -> None:
        """Do nothing."""
