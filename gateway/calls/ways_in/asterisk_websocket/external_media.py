"""External media of Asterisk over chan_websocket."""

from contextlib import AsyncExitStack
from uuid import uuid4

from .....adapters.media_streams.asterisk import AsteriskStreamConnection
from ...kits.external_media import ExternalMedia, SystemCall, SystemChannel, wait_connected
from ...kits.message_socket import MessageSocket
from ...kits.websocket_calls import WebSocketCalls
from ...kits.websocket_leg import KnownCaller, WebSocketCallOptions
from .sockets import ASTERISK, AwaitedSockets, connect_to_asterisk


class WebSocketExternalMedia(ExternalMedia):
    """chan_websocket: the gateway connects to Asterisk, or Asterisk to the gateway.

    The media's channel enters the application when it is connected. The call begins once it is bridged: what
    Asterisk gets before is lost.

    Args:
        format_name: of the audio, as Asterisk names it.
        client_name: of the connection in ``websocket_client.conf`` that Asterisk uses; "": the gateway
            connects.
    """

    name = "chan_websocket"
    setting = "websocket"
    module = "chan_websocket.so"

    def __init__(
        self, calls: WebSocketCalls, awaited: AwaitedSockets, format_name: str, client_name: str
    ) -> None:
        self._calls = calls
        self._awaited = awaited
        self._format_name = format_name
        self._client_name = client_name

    async def serve(self, caller: SystemCall) -> None:
        """Connect the media of a call, and serve it to its end."""

        async def open_socket() -> MessageSocket:
            if self._client_name:
                return await self._await_socket(caller)
            return await self._connect(caller)

        await self._calls.serve(
            ASTERISK,
            AsteriskStreamConnection(caller.call_id),
            open_socket,
            peer=caller.channel.name,
            options=WebSocketCallOptions(
                KnownCaller(caller=caller.caller),
                caller.transfers,
                caller.agent,
                caller.connect,
                caller.owner,
            ),
        )

    async def _connect(self, caller: SystemCall) -> MessageSocket:
        media = await self._open_media(caller, "INCOMING", "server", "f(json)")
        socket = await connect_to_asterisk(await caller.media_url(media))
        async with AsyncExitStack() as undo:
            undo.push_async_callback(socket.close)
            await caller.bridge_media()
            undo.pop_all()
        return socket

    async def _await_socket(self, caller: SystemCall) -> MessageSocket:
        key = str(uuid4())
        async with self._awaited.awaiting(key) as awaited:
            await self._open_media(caller, self._client_name, "client", f"f(json)v(call={key})")
            socket = await wait_connected(awaited)
            await caller.bridge_media()
            return socket

    async def _open_media(
        self, caller: SystemCall, host: str, connection_type: str, data: str
    ) -> SystemChannel:
        return await caller.open_media(
            host,
            transport="websocket",
            encapsulation="none",
            connection_type=connection_type,
            format=self._format_name,
            transport_data=data,
        )
