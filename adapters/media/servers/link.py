"""Messages and file descriptors between two threads or processes, over a pair of Unix stream sockets.

A message is its length and its number (4 bytes each, little-endian) and its pickle. Both ends are this
program, so what arrives is trusted; a number that is not the next one ends the link, because messages of
calls were lost, repeated or cut. Sending never blocks: what the peer does not read is queued.
"""

import asyncio
import os
import pickle
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Final

_HEAD: Final = struct.Struct("<II")  # length of the pickle, number of the message
_MAX_NUMBER: Final = 0xFFFFFFFF  # then 0 again
_READ_BYTES: Final = 64 * 1024  # glibc maps and unmaps a buffer over 128 KiB at each read
_MAX_DESCRIPTORS: Final = 64  # in one read
_MAX_JOINED_BYTES: Final = 64 * 1024  # messages after these are another write


class MessageLink:
    """One end of a link on the running event loop.

    Args:
        on_message: takes a message and a descriptor, which it owns, or -1: the message had none, or this
            process may open no more (RLIMIT_NOFILE).
        on_closed: called once, when the peer has closed its end or is gone; not after ``close``.
    """

    def __init__(
        self, sock: socket.socket, on_message: Callable[[Any, int], None], on_closed: Callable[[], None]
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._on_message = on_message
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._descriptors: deque[int] = deque()  # received, in the order of their messages
        self._unsent: deque[tuple[bytes, int]] = deque()  # rest of a frame, descriptor to send with it or -1
        self.unsent_bytes = 0
        self._closed = False
        self._is_flush_scheduled = False
        self._waits_to_send = False  # for room in the socket
        self._next_sent = self._next_received = 0  # numbers of messages
        self._loop.add_reader(sock, self._receive)

    def send(self, message: object, descriptor: int = -1) -> None:
        """Send a message, and a copy of ``descriptor``, which is closed here once it is sent."""
        if self._closed:
            close_descriptor(descriptor)
            return
        self._queue(message, descriptor)
        if len(self._unsent) == 1:
            self._send_queued()

    def send_soon(self, message: object) -> None:
        """Send a message in one write with others of this turn of the event loop."""
        if self._closed:
            return
        self._queue(message, -1)
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Close this end; the peer gets what was sent before the queue, and then its ``on_closed``."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()
        for descriptor in (*self._descriptors, *(descriptor for _, descriptor in self._unsent)):
            close_descriptor(descriptor)
        self._descriptors.clear()
        self._unsent.clear()

    def _queue(self, message: object, descriptor: int) -> None:
        body = pickle.dumps((message, descriptor >= 0), pickle.HIGHEST_PROTOCOL)
        self._unsent.append((_HEAD.pack(len(body), self._next_sent) + body, descriptor))
        self._next_sent = (self._next_sent + 1) & _MAX_NUMBER
        self.unsent_bytes += _HEAD.size + len(body)

    def _flush(self) -> None:
        self._is_flush_scheduled = False
        if not self._closed:
            self._send_queued()

    def _send_queued(self) -> None:
        try:
            while self._unsent:
                frame, descriptor = self._join_first()
                if descriptor >= 0:
                    sent = socket.send_fds(self._sock, [frame], [descriptor])
                    os.close(descriptor)
                else:
                    sent = self._sock.send(frame)
                self.unsent_bytes -= sent
                self._unsent.popleft()
                if sent < len(frame):
                    self._unsent.appendleft((frame[sent:], -1))
        except BlockingIOError:
            self._loop.add_writer(self._sock, self._send_queued)
            self._waits_to_send = True
        except OSError:
            self._lose()
        else:
            if self._waits_to_send:
                self._loop.remove_writer(self._sock)
            self._waits_to_send = False

    def _join_first(self) -> tuple[bytes, int]:
        """Join the frames at the head of the queue up to the next one with a descriptor; return the first."""
        unsent, frames, size = self._unsent, [], 0
        while unsent and unsent[0][1] < 0 and size < _MAX_JOINED_BYTES:
            frames.append(unsent.popleft()[0])
            size += len(frames[-1])
        if frames:
            unsent.appendleft((b"".join(frames) if len(frames) > 1 else frames[0], -1))
        return unsent[0]

    def _receive(self) -> None:
        try:
            data, descriptors, flags, _ = socket.recv_fds(self._sock, _READ_BYTES, _MAX_DESCRIPTORS)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors, flags = b"", [], 0
        self._descriptors += descriptors
        if flags & socket.MSG_CTRUNC:  # the kernel dropped the descriptor; a read has that of one message
            self._descriptors.append(-1)
        if not data:
            self._lose()
            return
        self._received += data
        self._deliver()

    def _deliver(self) -> None:
        start = 0
        try:
            while not self._closed and len(self._received) - start >= _HEAD.size:
                length, number = _HEAD.unpack_from(self._received, start)
                if number != self._next_received:
                    self._lose()
                    break
                stop = start + _HEAD.size + length
                if len(self._received) < stop:
                    break
                self._next_received = (number + 1) & _MAX_NUMBER
                body = memoryview(self._received)[start + _HEAD.size : stop]
                start = stop
                with body:
                    message, has_descriptor = pickle.loads(body)
                self._on_message(message, self._descriptors.popleft() if has_descriptor else -1)
        finally:  # a message that raised is not delivered again
            del self._received[:start]

    def _lose(self) -> None:
        if not self._closed:
            self.close()
            self._on_closed()


def close_descriptor(descriptor: int) -> None:
    """Close a descriptor, unless it is -1."""
    if descriptor >= 0:
        os.close(descriptor)


def socket_identity(descriptor: int) -> tuple[int, int]:
    """Return what names an open socket in every process: its device and inode."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
