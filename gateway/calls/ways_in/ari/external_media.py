"""The ways of external media, between Asterisk and the gateway, and the choice among them."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final, Protocol, TypeVar
from uuid import uuid4

from .....adapters.media_streams.asterisk import AsteriskStreamConnection
from .....adapters.rtp.codec import RtpCodec
from .....adapters.rtp.connection import RtpOptions
from .....adapters.rtp.source_lock import Address
from ....listening_sockets import format_address
from ...legs.message_socket import MessageSocket
from ...legs.websocket_calls import ASTERISK, WebSocketCalls
from ...legs.websocket_leg import KnownCaller, WebSocketCallOptions
from ..asterisk_websocket.sockets import connect_to_asterisk
from ..audiosocket.call_server import AudioSocketCallServer
from ..rtp.call_server import RtpCallServer
from .ari_call import AriCall
from .client import AriClient, AriFailed
from .models import AriChannel

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S: Final = 5.0  # for Asterisk to connect to the gateway


class ExternalMedia(Protocol):
    """A way in which Asterisk and the gateway exchange the audio of a caller."""

    name: str
    module: str  # of Asterisk

    async def serve(self, ari_call: AriCall) -> None:
        """Connect the media of a call, and serve it to its end.

        Raises Overloaded before anything is asked of Asterisk, AriFailed, AsteriskUnreachable, OSError.
        """


async def choose_media(client: AriClient, ways: Sequence[ExternalMedia]) -> ExternalMedia:
    """Return the first way whose module Asterisk runs, or else the last one."""
    missing: list[str] = []
    for way in ways[:-1]:
        try:
            if await client.is_module_running(way.module):
                break
            missing.append(f"{way.module} does not run")
        except AriFailed as error:
            missing.append(str(error))
    else:
        way = ways[-1]
    reason = "; ".join(missing) or ("it is configured" if len(ways) == 1 else f"{way.module} runs")
    logger.info("External media of Asterisk goes over %s: %s", way.name, reason)
    return way


class WebSocketExternalMedia:
    """chan_websocket: the gateway connects to Asterisk, or Asterisk to the gateway.

    The media's channel enters the application when it is connected. The call begins once it is bridged: what
    Asterisk gets before is lost.

    Args:
        format_name: of the audio, as Asterisk names it.
        client_name: of the connection in ``websocket_client.conf`` that Asterisk uses; "": the gateway
            connects.
    """

    name = "chan_websocket"
    module = "chan_websocket.so"

    def __init__(self, client: AriClient, calls: WebSocketCalls, format_name: str, client_name: str) -> None:
        self._client = client
        self._calls = calls
        self._format_name = format_name
        self._client_name = client_name

    async def serve(self, ari_call: AriCall) -> None:
        """Connect the media of a call, and serve it to its end."""

        async def open_socket() -> MessageSocket:
            if self._client_name:
                return await self._await_socket(ari_call)
            return await self._connect(ari_call)

        await self._calls.serve(
            ASTERISK,
            AsteriskStreamConnection(ari_call.channel.id),
            open_socket,
            peer=ari_call.channel.name,
            options=WebSocketCallOptions(
                KnownCaller(caller=ari_call.caller),
                ari_call.transfers,
                ari_call.agent,
                ari_call.connect,
                ari_call.owner,
            ),
        )

    async def _connect(self, ari_call: AriCall) -> MessageSocket:
        media = await self._open_media(ari_call, "INCOMING", "server", "f(json)")
        socket = await connect_to_asterisk(await self._client.media_url(media))
        async with AsyncExitStack() as undo:
            undo.push_async_callback(socket.close)
            await ari_call.bridge_media()
            undo.pop_all()
        return socket

    async def _await_socket(self, ari_call: AriCall) -> MessageSocket:
        key = str(uuid4())
        async with self._calls.awaited.awaiting(key) as awaited:
            await self._open_media(ari_call, self._client_name, "client", f"f(json)v(call={key})")
            socket = await _connected(awaited)
            await ari_call.bridge_media()
            return socket

    async def _open_media(self, ari_call: AriCall, host: str, connection_type: str, data: str) -> AriChannel:
        return await ari_call.open_media(
            host,
            transport="websocket",
            encapsulation="none",
            connection_type=connection_type,
            format=self._format_name,
            transport_data=data,
        )


class AudioSocketExternalMedia:
    """AudioSocket: Asterisk connects to the gateway.

    Args:
        address: that Asterisk connects to.
        codec: whose rate the audio has; it is linear.
    """

    name = "AudioSocket"
    module = "chan_audiosocket.so"

    def __init__(self, server: AudioSocketCallServer, address: Address, codec: RtpCodec) -> None:
        self._server = server
        self._address = address
        self._sample_rate = codec.sample_rate
        # Asterisk would label any other format as linear audio at 8 kHz.
        self._format_name = "slin" if codec.sample_rate == 8_000 else "slin16"

    async def serve(self, ari_call: AriCall) -> None:
        """Connect the media of a call, and serve it to its end."""
        self._server.registry.require_place(peer=ari_call.channel.name)
        media_id = uuid4()
        with self._server.awaiting(media_id) as awaited:
            await ari_call.open_media(
                format_address(self._address),
                transport="tcp",
                encapsulation="audiosocket",
                format=self._format_name,
                data=str(media_id),
            )
            phone = await _connected(awaited)
            await ari_call.bridge_media()
            call = self._server.open_call(
                phone,
                ari_call.agent or self._server.agent,
                ari_call.caller,
                call_id=ari_call.channel.id,
                caller_sample_rate=self._sample_rate,
                transfers=ari_call.transfers,
                owner=ari_call.owner,
            )
        ari_call.connect(call)
        await call.wait_closed()


class RtpExternalMedia:
    """RTP, both ways between two UDP ports."""

    name = "RTP"
    module = "chan_rtp.so"

    def __init__(self, server: RtpCallServer, codec: RtpCodec) -> None:
        self._server = server
        self._codec = codec

    async def serve(self, ari_call: AriCall) -> None:
        """Connect the media of a call, and serve it to its end."""
        reservation = self._server.reserve(
            ari_call.channel.name,
            caller=ari_call.caller,
            transfers=ari_call.transfers,
            owner=ari_call.owner,
        )
        try:
            media = await ari_call.open_media(format_address(reservation.address), format=self._codec.name)
            await ari_call.bridge_media()
            options = RtpOptions(self._codec, _media_address(media), key_type=None)
            call = self._server.open(reservation, options, call_id=ari_call.channel.id, agent=ari_call.agent)
        finally:
            self._server.cancel(reservation, ari_call.ended or "Asterisk did not connect it")
        ari_call.connect(call)
        await call.wait_closed()


AnyConnection = TypeVar("AnyConnection")


async def _connected(awaited: "asyncio.Future[AnyConnection]") -> AnyConnection:
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            return await awaited
    except TimeoutError:
        raise AriFailed("Asterisk did not connect to the gateway") from None


def _media_address(media: AriChannel) -> Address | None:
    """Return where Asterisk expects RTP; None for the place from which it sends."""
    host = media.channelvars.get("UNICASTRTP_LOCAL_ADDRESS", "")
    port = media.channelvars.get("UNICASTRTP_LOCAL_PORT", "")
    return (host, int(port)) if host and port.isdecimal() else None
