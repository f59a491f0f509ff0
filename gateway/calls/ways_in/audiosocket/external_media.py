"""External media of Asterisk over AudioSocket."""

from uuid import uuid4

from ....listening_sockets import format_address
from ...kits.external_media import ExternalMedia, SystemCall, wait_connected
from .call_server import AudioSocketCallServer, rate_for


class AudioSocketExternalMedia(ExternalMedia):
    """AudioSocket: Asterisk connects to the gateway.

    Args:
        address: that Asterisk connects to.
        sample_rate: of the audio, Hz, 8000 or 16000.
    """

    name = "AudioSocket"
    setting = "audiosocket"
    module = "chan_audiosocket.so"

    def __init__(self, server: AudioSocketCallServer, address: tuple[str, int], sample_rate: int) -> None:
        self._server = server
        self._address = address
        self._sample_rate = sample_rate
        # Asterisk would label any other format as linear audio at 8 kHz.
        self._format_name = "slin" if sample_rate == 8_000 else "slin16"

    async def serve(self, caller: SystemCall) -> None:
        """Connect the media of a call, and serve it to its end."""
        self._server.registry.require_place(peer=caller.channel.name)
        media_id = uuid4()
        with self._server.awaiting(media_id) as awaited:
            await caller.open_media(
                format_address(self._address),
                transport="tcp",
                encapsulation="audiosocket",
                format=self._format_name,
                data=str(media_id),
            )
            phone = await wait_connected(awaited)
            await caller.bridge_media()
            call = self._server.open_call(
                phone,
                caller.agent or self._server.agent,
                caller.caller,
                call_id=caller.call_id,
                sample_rate=rate_for(self._sample_rate),  # wideband is wideband both ways
                transfers=caller.transfers,
                owner=caller.owner,
            )
        caller.connect(call)
        await call.end.wait_closed()
