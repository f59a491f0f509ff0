"""External media of Asterisk over RTP."""

from .....adapters.rtp.codec import RtpCodec
from .....adapters.rtp.connection import RtpOptions
from .....adapters.rtp.source_lock import Address
from ....listening_sockets import format_address
from ...kits.external_media import ExternalMedia, SystemCall, SystemChannel
from ...kits.rtp_calls import RtpCallServer


class RtpExternalMedia(ExternalMedia):
    """RTP, both ways between two UDP ports."""

    name = "RTP"
    setting = "rtp"
    module = "chan_rtp.so"

    def __init__(self, server: RtpCallServer, codec: RtpCodec) -> None:
        self._server = server
        self._codec = codec

    async def serve(self, caller: SystemCall) -> None:
        """Connect the media of a call, and serve it to its end."""
        reservation = self._server.reserve(
            caller.channel.name,
            caller=caller.caller,
            transfers=caller.transfers,
            owner=caller.owner,
        )
        try:
            media = await caller.open_media(format_address(reservation.address), format=self._codec.name)
            await caller.bridge_media()
            options = RtpOptions(self._codec, _media_address(media), key_type=None)
            call = self._server.open(
                reservation,
                options,
                call_id=caller.call_id,
                agent=caller.agent,
                may_be_silent=True,  # Asterisk knows whether a caller is there
            )
        finally:
            self._server.cancel(reservation, caller.ended or "Asterisk did not connect it")
        caller.connect(call)
        await call.end.wait_closed()


def _media_address(media: SystemChannel) -> Address | None:
    """Return where Asterisk expects RTP; None for the place from which it sends."""
    host = media.channelvars.get("UNICASTRTP_LOCAL_ADDRESS", "")
    port = media.channelvars.get("UNICASTRTP_LOCAL_PORT", "")
    return (host, int(port)) if host and port.isdecimal() else None
