"""Media server: serves the media of calls on an event loop of its own, as control asks over a link.

It runs in a process (``process``) where nothing else is done, or in a thread. It ends when control closes the
link or is gone: calls then end as at a shutdown.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Final

from ...playback.background import BackgroundLoops, BackgroundSounds
from ..call_media import MediaReport
from ..clock import Clock
from ..paced_media import SpeechDetector
from .link import MessageLink, close_descriptor, socket_identity
from .messages import (
    READY_PERIOD_S,
    ControlMessage,
    MediaMessage,
    MediaReady,
    OpenPhoneCall,
    PhoneCallControl,
    PhoneCallEvents,
    SetSounds,
    message_to,
)
from .phone_call import PhoneCall

_CONTROL_GONE: Final = "the server is gone"


class MediaServer:
    """The calls of one link. ``run`` serves until the link is closed by control.

    Args:
        sock: this end of the link.
        make_detector: makes a call's detector of the caller's speech.
    """

    def __init__(self, sock: socket.socket, make_detector: Callable[[], SpeechDetector | None]) -> None:
        self._make_detector = make_detector
        self._clock = Clock()
        self._loops = BackgroundLoops(BackgroundSounds())
        self._calls: dict[int, PhoneCall] = {}
        self._control_gone = asyncio.Event()
        self._changed = asyncio.Event()
        self._link = MessageLink(sock, self._receive, self._control_gone.set)

    async def run(self) -> None:
        """Serve until control is gone and every call has ended."""
        ticking = asyncio.create_task(self._clock.run())
        self._send(MediaReady())
        reporting = asyncio.create_task(self._report_ready(ticking))
        await self._control_gone.wait()
        for call in tuple(self._calls.values()):
            call.execute(message_to(0, PhoneCallControl.hang_up, _CONTROL_GONE))
        while self._calls:
            self._changed.clear()
            await self._changed.wait()
        ticking.cancel()
        reporting.cancel()
        await asyncio.wait({ticking, reporting})

    async def _report_ready(self, ticking: asyncio.Task[None]) -> None:
        """Tell control that calls are served, as long as their clock runs."""
        while not ticking.done():
            await asyncio.sleep(READY_PERIOD_S)
            if self._calls:
                self._send(MediaReady())

    def _receive(self, message: ControlMessage, descriptor: int) -> None:
        if isinstance(message, SetSounds):
            self._loops = BackgroundLoops(message.sounds)
        elif isinstance(message, OpenPhoneCall):
            self._open(message, descriptor)
        elif (call := self._calls.get(message.call)) is not None:  # else it has ended, or could not be opened
            call.execute(message)
        elif message.method == "hang_up":
            self._refuse(message.call, *message.arguments)

    def _open(self, opening: OpenPhoneCall, descriptor: int) -> None:
        number = opening.call
        if descriptor < 0:
            self._refuse(number, "the media server may open no more files")
            return
        if socket_identity(descriptor) != opening.socket:
            close_descriptor(descriptor)
            self._refuse(number, "the media server was given the connection of another call")
            return
        sock = socket.socket(fileno=descriptor)
        try:
            self._calls[number] = PhoneCall(
                opening,
                opening.wire.open(
                    opening.options, sock, lambda text: self._report_problem(number, text), time.monotonic
                ),
                self._clock,
                send=self._send,
                detector=self._make_detector(),
                background=self._loops.mixer(opening.options.sample_rate),
                on_closed=lambda: self._remove(number),
            )
        except OSError as error:
            sock.close()
            self._refuse(number, f"the connection could not be served ({error})")

    def _refuse(self, number: int, reason: str) -> None:
        self._send(message_to(number, PhoneCallEvents.on_closed, reason, MediaReport()))

    def _send(self, message: MediaMessage | MediaReady) -> int:
        self._link.send_soon(message)  # most are sent in ticks, many in one
        return self._link.unsent_bytes

    def _report_problem(self, number: int, text: str) -> None:
        self._send(message_to(number, PhoneCallEvents.on_problem, text, is_internal=False))

    def _remove(self, number: int) -> None:
        del self._calls[number]
        self._changed.set()


def serve_media(sock: socket.socket, make_detector: Callable[[], SpeechDetector | None]) -> None:
    """Run a media server in this thread until control is gone."""

    async def serve() -> None:
        await MediaServer(sock, make_detector).run()

    asyncio.run(serve())
