"""The transport between gateways and replicas: a TCP connection for each link, and one for each encoding.

    gateway -> replica    hello: {"token", "wants": "link" | "encode"}, then batches of commands or recordings
    replica -> gateway    batches of events, or the encoded prompt

A frame is its length in four bytes and its content: JSON for the hello, pickles after it. The token is secret
and comes to gateways over Ray, so a peer that has it may run programs in the cluster anyway; without it,
nothing is unpickled. A connection that the other machine does not acknowledge for 2 s is lost: the kernels
tell that, however busy the processes are.
"""

import asyncio
import json
import logging
import pickle
import secrets
import socket
import ssl
import struct
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

from ....tts_engine.errors import VivavoceError
from ....tts_engine.voices.recording import Recording
from ...background_tasks import cancel_and_wait
from .messages import ReplicaEndpoint, ReplicaEvent, ReplicaLost, StreamCommand
from .replica_host import ReplicaHost

logger = logging.getLogger(__name__)

_HEADER = struct.Struct(">I")
_MAX_FRAME_BYTES = 256 * 2**20  # recordings of some minutes
_MAX_HELLO_BYTES = 1024
_HELLO_WITHIN_S = 5.0
_CONNECT_WITHIN_S = 2.0
_MAX_UNACKNOWLEDGED_MS = 2000
# asyncio's IncompleteReadError is an EOFError.
_FAULTS = (OSError, EOFError, ValueError, RecursionError, pickle.PickleError)


@dataclass(frozen=True, slots=True)
class LinkSecurity:
    """TLS of the connections, for each side. None: in the clear, as Ray is without ``RAY_USE_TLS``."""

    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None


class ReplicaServer:
    """Serves gateways with a ``ReplicaHost``. Belongs to one event loop."""

    def __init__(self, host: ReplicaHost, security: LinkSecurity = LinkSecurity()) -> None:
        self._host, self._security = host, security
        self._token = secrets.token_hex(32)

    async def open(self, address: str) -> ReplicaEndpoint:
        """Listen on an address of this machine, on a free port."""
        self._server = await asyncio.start_server(self._serve, address, 0, ssl=self._security.server)
        return ReplicaEndpoint(address, self._server.sockets[0].getsockname()[1], self._token)

    async def aclose(self) -> None:
        """Take no more connections."""
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HELLO_WITHIN_S):
                hello = json.loads(await _read_frame(reader, _MAX_HELLO_BYTES))
            if not _is_known(hello, self._token):
                logger.warning("a connection without the token of this replica is refused")
                return
            _give_up_early(writer)
            await (self._encode if hello["wants"] == "encode" else self._link)(reader, writer)
        except (*_FAULTS, TimeoutError, ReplicaLost) as error:
            logger.debug("a connection ended: %s", error or type(error).__name__)
        finally:
            writer.close()

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = uuid.uuid4().hex
        sending = asyncio.create_task(self._send_events(link, writer), name=f"events of {link}")
        try:
            while True:
                self._host.run_commands(link, await _read_pickle(reader))
        finally:
            await cancel_and_wait(sending)

    async def _send_events(self, link: str, writer: asyncio.StreamWriter) -> None:
        try:
            async with aclosing(self._host.events(link)) as batches:
                async for batch in batches:
                    await _write_pickle(writer, batch)
        except OSError as error:
            logger.debug("the gateway of link %s is gone: %s", link, error)
        finally:
            writer.close()  # ends the reading too

    async def _encode(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        recordings, transcript = await _read_pickle(reader)
        await _write_pickle(writer, await self._host.encode(recordings, transcript))


class SocketChannel:
    """A gateway's way to one replica; a ``ReplicaChannel``."""

    def __init__(self, replica: str, endpoint: ReplicaEndpoint, security: LinkSecurity) -> None:
        self._replica, self._endpoint, self._security = replica, endpoint, security
        self._writer: asyncio.StreamWriter | None = None

    async def events(self) -> AsyncGenerator[tuple[ReplicaEvent, ...], None]:
        """Attach, and yield batches of events. Raises ReplicaLost."""
        writer = None
        try:
            reader, writer = await self._connect("link")
            self._writer = writer
            while True:
                yield await _read_pickle(reader)
        except (*_FAULTS, TimeoutError) as error:
            raise self._lost(error) from error
        finally:
            self._writer = None
            if writer is not None:
                writer.close()

    async def send(self, commands: tuple[StreamCommand, ...]) -> None:
        """Have a batch carried out. Raises ReplicaLost."""
        if self._writer is None:
            raise ReplicaLost(f"replica {self._replica} is not connected")
        try:
            await _write_pickle(self._writer, commands)
        except OSError as error:
            raise self._lost(error) from error

    async def encode(self, recordings: Sequence[Recording], transcript: str) -> bytes | VivavoceError:
        """As ``ReplicaHost.encode``. Raises ReplicaLost."""
        writer = None
        try:
            reader, writer = await self._connect("encode")
            await _write_pickle(writer, (recordings, transcript))
            answer: bytes | VivavoceError = await _read_pickle(reader)
        except (*_FAULTS, TimeoutError) as error:
            raise self._lost(error) from error
        finally:
            if writer is not None:
                writer.close()
        return answer

    async def _connect(self, wants: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        endpoint = self._endpoint
        async with asyncio.timeout(_CONNECT_WITHIN_S):
            reader, writer = await asyncio.open_connection(
                endpoint.address, endpoint.port, ssl=self._security.client
            )
        _give_up_early(writer)
        hello = {"token": endpoint.token, "wants": wants}
        writer.write(_frame(json.dumps(hello).encode()))
        return reader, writer

    def _lost(self, error: Exception) -> ReplicaLost:
        return ReplicaLost(f"replica {self._replica} is lost ({error or type(error).__name__})")


def _is_known(hello: object, token: str) -> bool:
    return isinstance(hello, dict) and secrets.compare_digest(
        str(hello.get("token")).encode(), token.encode()
    )


def _give_up_early(writer: asyncio.StreamWriter) -> None:
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        with suppress(OSError):
            writer.get_extra_info("socket").setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _MAX_UNACKNOWLEDGED_MS
            )


def _frame(content: bytes) -> bytes:
    return _HEADER.pack(len(content)) + content


async def _read_frame(reader: asyncio.StreamReader, max_bytes: int = _MAX_FRAME_BYTES) -> bytes:
    (count,) = _HEADER.unpack(await reader.readexactly(_HEADER.size))
    if count > max_bytes:
        raise ValueError(f"a frame has {count} bytes; at most {max_bytes} are allowed")
    return await reader.readexactly(count)


async def _read_pickle(reader: asyncio.StreamReader) -> Any:
    return pickle.loads(await _read_frame(reader))


async def _write_pickle(writer: asyncio.StreamWriter, content: object) -> None:
    writer.write(_frame(pickle.dumps(content, protocol=5)))
    await writer.drain()
