"""The far ends of external media channels of a simulated Asterisk: what a caller hears and does."""

import asyncio
from typing import Protocol

from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from shared.calls.call_server import Phone
from shared.calls.peers.asterisk import SimulatedAsterisk
from shared.calls.rtp_phone import RtpTestPhone
from vivavoce.adapters.audiosocket.protocol import Dtmf
from vivavoce.gateway.calls.kits.message_socket import ClientMessageSocket, MessageSocket


class SimulatedMedia(Protocol):
    @property
    def heard(self) -> bytes:
        """All samples, s16le at 8 kHz."""

    async def press(self, digit: str) -> None:
        """Pass a key on, as a bridge does."""

    async def wait_ended(self) -> None:
        """Wait until the gateway has ended the media."""

    async def close(self) -> None: ...


class RtpMedia:
    def __init__(self, host: str) -> None:
        address, port = host.split(":")
        self.phone = RtpTestPhone((address, int(port)))

    @property
    def heard(self) -> bytes:
        return self.phone.heard

    async def press(self, digit: str) -> None:
        self.phone.press(digit)

    async def wait_ended(self) -> None:
        await asyncio.Event().wait()  # RTP does not say so

    async def close(self) -> None:
        await asyncio.to_thread(self.phone.close)


class AudioSocketMedia:
    def __init__(self, phone: Phone) -> None:
        self.phone = phone

    @classmethod
    async def dial(cls, host: str, call_id: str) -> "AudioSocketMedia":
        address, port = host.split(":")
        return cls(Phone(*await asyncio.open_connection(address, int(port)), call_id))

    @property
    def heard(self) -> bytes:
        return bytes(self.phone.heard)

    async def press(self, digit: str) -> None:
        self.phone.send(Dtmf(digit))

    async def wait_ended(self) -> None:
        await self.phone.hung_up.wait()

    async def close(self) -> None:
        await self.phone.aclose()


class WebSocketMedia:
    """Plays in real time, from when its WebSocket is open."""

    def __init__(self, socket: MessageSocket, connection_id: str) -> None:
        self._socket = socket
        self._peer = SimulatedAsterisk(connection_id)
        self._heard = bytearray()
        self._playing = asyncio.create_task(self._play())

    @classmethod
    async def dial(cls, url: str, client_name: str) -> "WebSocketMedia":
        socket = await connect(url, subprotocols=[Subprotocol("media")])
        return cls(ClientMessageSocket(socket), client_name)

    @property
    def heard(self) -> bytes:
        return bytes(self._heard)

    async def press(self, digit: str) -> None:
        for message in self._peer.press(digit):
            await self._socket.send(message)

    async def wait_ended(self) -> None:
        await asyncio.wait({self._playing})

    async def close(self) -> None:
        self._playing.cancel()
        await self.wait_ended()
        await self._socket.close()

    async def _play(self) -> None:
        for message in self._peer.start():
            await self._socket.send(message)
        receiving = asyncio.create_task(self._receive())
        try:
            while not receiving.done():
                step = self._peer.step()
                self._heard += step.pcm
                for message in step.messages:
                    await self._socket.send(message)
                await asyncio.sleep(0.02)
        finally:
            receiving.cancel()

    async def _receive(self) -> None:
        while (message := await self._socket.receive()) is not None and not self._peer.has_hung_up:
            self._peer.receive(message)
