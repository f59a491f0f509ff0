"""The media servers of one control process: started, assigned calls, and started again when they die.

    control                                  media server (process or thread)
    MediaServers --- link --- MediaServer
      RemoteMedia  <- messages ->  PhoneCall, one a call

A media server that dies loses the speech that was queued there, 0.6 s by default. Its calls go on at once in
the standby, a process that has started already, because control keeps their sockets too; another standby is
started then. A process that hangs is killed.
"""

import asyncio
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Final

from ....tts_engine.process_limits import available_cores
from ...playback.background import BackgroundSounds
from ..paced_media import SpeechDetector
from ..phone_media import PhoneCallOptions, PhoneCallOwner, WireOpening
from .link import MessageLink
from .messages import MediaMessage, MediaReady, SetSounds
from .remote_media import RemoteMedia
from .server import serve_media

logger = logging.getLogger(__name__)

_START_TIMEOUT_S: Final = 30.0
_RETRY_DELAY_S: Final = 1.0
# A media process with calls that sends nothing for so many checks is killed; MediaReady is due at each.
_CHECK_PERIOD_S: Final = 0.25
_MAX_SILENT_CHECKS: Final = 5
_MAX_STARTING_CHECKS: Final = round(_START_TIMEOUT_S / _CHECK_PERIOD_S)  # until it is ready
_NO_SOUNDS: Final = BackgroundSounds()
_EXIT_TIMEOUT_S: Final = 5.0  # its calls end within LINGER_S of adapters.audiosocket.socket_options


class MediaServers:
    """Media servers, not yet started, and the calls that they serve: a ``PhoneMedia``.

    Args:
        processes: their number, each a process; 0: one, a thread of this process. None: 1 with more than one
            processor core, else 0.
        make_detector: makes a call's detector of the caller's speech, in a thread; a process has its own.
        wire_modules: imported by a process before it takes calls; others are at their first call.
        sounds: under the speech of every call.
    """

    def __init__(
        self,
        processes: int | None,
        make_detector: Callable[[], SpeechDetector | None] = lambda: None,
        *,
        wire_modules: Sequence[str] = (),
        sounds: BackgroundSounds = _NO_SOUNDS,
    ) -> None:
        if processes is None:
            processes = 1 if available_cores() > 1 else 0
        self._wire_modules = wire_modules
        self._make_detector = make_detector
        self._sounds = sounds
        self._in_processes = processes > 0
        self._servers = [_ServerHandle(self._take_running) for _ in range(max(1, processes))]
        self._standby: _RunningServer | None = None
        self._closing = False
        self._last_number = 0

    @property
    def calls(self) -> tuple[RemoteMedia, ...]:
        """The calls that are up."""
        return tuple(media for server in self._servers for media in server.calls.values())

    @property
    def pids(self) -> tuple[int, ...]:
        """As ``PhoneMedia.pids``."""
        return tuple(server.pid for server in self._servers if server.pid is not None)

    @property
    def in_processes(self) -> bool:
        """As ``PhoneMedia.in_processes``."""
        return self._in_processes

    @property
    def are_ready(self) -> bool:
        """As ``PhoneMedia.are_ready``."""
        return all(server.ready.is_set() for server in self._servers)

    async def start(self) -> None:
        """As ``PhoneMedia.start``."""
        for server in self._servers:
            server.start()
        async with asyncio.timeout(_START_TIMEOUT_S):
            for server in self._servers:
                await server.ready.wait()
        self._start_standby()

    def open_phone_call(
        self,
        wire: WireOpening,
        sock: socket.socket,
        owner: PhoneCallOwner,
        options: PhoneCallOptions,
    ) -> RemoteMedia:
        """As ``PhoneMedia.open_phone_call``."""
        server = min(self._servers, key=lambda server: len(server.calls))
        self._last_number += 1
        media = RemoteMedia(self._last_number, wire, sock, owner, server.send, options)
        media.open()
        server.calls[self._last_number] = media
        return media

    async def aclose(self) -> None:
        """As ``PhoneMedia.aclose``."""
        self._closing = True
        if self._standby is not None:
            self._standby.close()
        await asyncio.gather(*(server.aclose() for server in self._servers))
        if self._standby is not None:
            await self._standby.wait_ended()

    def _take_running(self) -> "_RunningServer":
        """The standby if it has started, else a media server that is starting; another standby follows."""
        standby = self._standby
        if standby is None or not standby.is_ready:
            return _RunningServer(self.launch, self._sounds)
        self._standby = None
        asyncio.get_running_loop().call_soon(self._start_standby)
        return standby

    def _start_standby(self) -> None:
        if self._in_processes and not self._closing:
            self._standby = _RunningServer(self.launch, self._sounds)
            self._standby.on_lost = self._lose_standby

    def _lose_standby(self) -> None:
        logger.error("The media server that stands by died; another one is started")
        self._standby = None
        asyncio.get_running_loop().call_later(_RETRY_DELAY_S, self._start_standby)

    def launch(self, sock: socket.socket) -> "subprocess.Popen[bytes] | threading.Thread":
        """Start a media server on that end of a link, and close it here."""
        if not self._in_processes:
            thread = threading.Thread(target=serve_media, args=(sock, self._make_detector), name="media")
            thread.daemon = True
            thread.start()
            return thread
        module = f"{__package__}.process"
        descriptor = sock.fileno()
        with sock:
            return subprocess.Popen(
                [sys.executable, "-m", module, str(descriptor), *self._wire_modules],
                pass_fds=[descriptor],
                stdin=subprocess.DEVNULL,
            )


class _RunningServer:
    """A process or thread that is a media server, and the link to it.

    Attributes:
        is_ready: whether it takes calls.
        on_message, on_lost: of the handle that uses it.
    """

    def __init__(
        self,
        launch: "Callable[[socket.socket], subprocess.Popen[bytes] | threading.Thread]",
        sounds: BackgroundSounds,
    ) -> None:
        self.is_ready = False
        self.on_message: Callable[[MediaMessage | MediaReady], None] = lambda message: None
        self.on_lost: Callable[[], None] = lambda: None
        own_end, other_end = socket.socketpair()
        self._link = MessageLink(own_end, self._receive, self._lose)
        self._running = launch(other_end)
        self._link.send(SetSounds(sounds))

    @property
    def pid(self) -> int | None:
        return self._running.pid if isinstance(self._running, subprocess.Popen) else None

    def send(self, message: object, descriptor: int) -> None:
        self._link.send(message, descriptor)

    def kill(self) -> None:
        """Kill a process; ``on_lost`` follows. A thread goes on."""
        if isinstance(self._running, subprocess.Popen):
            self._running.kill()

    def close(self) -> None:
        """Have the media server end its calls, and end."""
        self._link.close()

    async def wait_ended(self) -> None:
        await asyncio.to_thread(_wait_ended, self._running)

    def _receive(self, message: MediaMessage | MediaReady, _: int) -> None:
        if isinstance(message, MediaReady):
            self.is_ready = True
        self.on_message(message)

    def _lose(self) -> None:
        if isinstance(self._running, subprocess.Popen):
            self._running.kill()
            self._running.wait()
        self.on_lost()


class _ServerHandle:
    """One media server, over its restarts.

    Args:
        take_running: returns a media server that runs, or is being started.
    """

    def __init__(self, take_running: Callable[[], _RunningServer]) -> None:
        self.ready = asyncio.Event()
        self.calls: dict[int, RemoteMedia] = {}
        self._take_running = take_running
        self._server: _RunningServer
        self._closing = False
        self._was_heard = False  # since the last check
        self._silent_checks = 0
        self._check_timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._silent_checks = 0
        self._check_later()
        self._server = server = self._take_running()
        server.on_message, server.on_lost = self._receive, self._on_lost
        if server.is_ready:
            self.ready.set()
        else:
            self.ready.clear()

    @property
    def pid(self) -> int | None:
        return self._server.pid

    def send(self, message: object, descriptor: int) -> None:
        self._server.send(message, descriptor)

    async def aclose(self) -> None:
        self._closing = True
        if self._check_timer is not None:
            self._check_timer.cancel()
        self._server.close()
        await self._server.wait_ended()
        for media in self.calls.values():
            media.close()
        self.calls.clear()

    def _receive(self, message: MediaMessage | MediaReady) -> None:
        self._was_heard = True
        if isinstance(message, MediaReady):
            self.ready.set()
            return
        media = self.calls.get(message.call)
        if media is None:
            return
        if message.method == "on_closed":
            del self.calls[message.call]
            media.close()
        media.receive(message)

    def _check_later(self) -> None:
        if self._check_timer is not None:
            self._check_timer.cancel()
        self._check_timer = asyncio.get_running_loop().call_later(_CHECK_PERIOD_S, self._check)

    def _check(self) -> None:
        """Kill a process that hangs. Several checks: after a stop of control, its messages are read late."""
        is_ready = self.ready.is_set()
        is_silent = not self._was_heard and (bool(self.calls) or not is_ready)
        self._silent_checks = self._silent_checks + 1 if is_silent else 0
        self._was_heard = False
        max_checks = _MAX_SILENT_CHECKS if is_ready else _MAX_STARTING_CHECKS
        if self._silent_checks == max_checks and self.pid is not None:
            logger.error("The media server does not answer; it is killed")
            self._server.kill()
        self._check_later()

    def _on_lost(self) -> None:
        """Continue the calls in another one; one that could not even start is tried again later."""
        if self._closing:
            return
        logger.error("The media server died; its %d calls continue in a new one", len(self.calls))
        delay_s = 0.0 if self.ready.is_set() else _RETRY_DELAY_S
        asyncio.get_running_loop().call_later(delay_s, self._restart)

    def _restart(self) -> None:
        if self._closing:
            return
        self.start()
        for media in self.calls.values():
            media.reopen(self.send)


def _wait_ended(running: "subprocess.Popen[bytes] | threading.Thread") -> None:
    if isinstance(running, threading.Thread):
        running.join(_EXIT_TIMEOUT_S)
        return
    try:
        running.wait(_EXIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()
