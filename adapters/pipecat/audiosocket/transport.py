"""An AudioSocket call as a Pipecat transport.

``input`` pushes the caller's audio and keys. ``output`` takes audio at the pace at which it is heard, drops
it at an interruption, and hangs up. ``call_handler`` has the queues of the call, ``server`` accepts calls.
"""

# Pipecat is typed, but its functions do not declare what they return.
# mypy: disable-error-code="no-untyped-call"

from typing import Any

from pipecat.transports.base_transport import BaseTransport

from ...playback.playout import PlayoutStats
from .call_handler import PipecatCallHandler
from .input import AudioSocketInputTransport
from .output import AudioSocketOutputTransport
from .params import AudioSocketCaller, AudioSocketParams


class AudioSocketTransport(BaseTransport):
    """One phone call as a Pipecat transport.

    Event handlers:
        on_client_connected: ``(transport, caller)``, when the pipeline has started.
        on_client_disconnected: ``(transport, caller)``, once, when the caller has hung up or the connection
            is lost; not when the bot hangs up.

    An ``EndFrame`` hangs up after the last word, a ``CancelFrame`` at once. Keys arrive as
    ``InputDTMFFrame``; keys that Pipecat does not define (A to D, hook flash) are dropped.
    """

    def __init__(
        self, handler: PipecatCallHandler, caller: AudioSocketCaller, params: AudioSocketParams
    ) -> None:
        """Initialize the transport.

        Args:
            handler: Handler of the call.
            caller: The caller.
            params: Parameters of the call.
        """
        super().__init__(name=f"AudioSocketTransport#{caller.call_id}")
        self.caller = caller
        self._audiosocket_handler = handler
        self._audiosocket_input = AudioSocketInputTransport(handler, params, self._audiosocket_emit_event)
        self._audiosocket_output = AudioSocketOutputTransport(handler, params)
        self._register_event_handler("on_client_connected")
        self._register_event_handler("on_client_disconnected")

    @property
    def stats(self) -> PlayoutStats:
        """Counters of the packets sent so far."""
        return self._audiosocket_handler.stats

    def input(self) -> AudioSocketInputTransport:
        """Get the input processor.

        Returns:
            The processor that pushes the caller's audio and keys.
        """
        return self._audiosocket_input

    def output(self) -> AudioSocketOutputTransport:
        """Get the output processor.

        Returns:
            The processor that sends audio to the caller.
        """
        return self._audiosocket_output

    def get_client_id(self, client: Any) -> str:
        """Get the id of a client.

        Args:
            client: The ``AudioSocketCaller`` passed to event handlers.

        Returns:
            The call's UUID.
        """
        return str(client.call_id)

    def hang_up(self) -> None:
        """End the call at once."""
        self._audiosocket_handler.end("the bot hung up")

    async def _audiosocket_emit_event(self, event: str) -> None:
        await self._call_event_handler(event, self.caller)
