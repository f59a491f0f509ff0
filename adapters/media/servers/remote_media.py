"""Media of one phone call that a media server serves, as control sees them.

Between two reports the position is computed from what was pushed and the time: both ends use one clock, and
the server plays on time.
"""

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, Final

from ....tts_engine.chunk import AudioChunk
from ...playback.background import Awaited
from ...playback.heard_words import DiscardResult
from ..call_media import CallerAudioOptions, CallMedia, MediaListener, MediaReport
from ..phone_media import PhoneCallOptions, PhoneCallOwner, WireOpening
from .link import socket_identity
from .messages import (
    Arguments,
    ControlMessage,
    MediaMessage,
    OpenPhoneCall,
    PhoneCallControl,
    message_to,
)

_NOTHING_CUT: Final = DiscardResult(utterance=-1, cut_ms=0.0, words=(), text_stop=0, silent_at=0.0)

Send = Callable[[ControlMessage, int], None]


class RemoteMedia:
    """Implements ``PhoneCallMedia`` over a link.

    Args:
        sock: of the call; it is kept, so that another media server can continue with it.
        send: sends a message, and a copy of a descriptor, to the media server.
    """

    def __init__(
        self,
        number: int,
        wire: WireOpening,
        sock: socket.socket,
        owner: PhoneCallOwner,
        send: Send,
        options: PhoneCallOptions,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._number = number
        self._wire = wire
        self._sock = sock
        self._owner = owner
        self._send = send
        self._options = options
        self._now = now
        self._listener: MediaListener | None = None
        self._caller_audio = CallerAudioOptions()
        self._is_recorded = False
        self._awaited = Awaited.CALLER
        self._held_at: float | None = None  # from when nothing is played
        self._report = MediaReport()
        self._earlier_report = MediaReport()  # last report of media servers that are gone
        self._dry_at = 0.0  # estimate of when the queued speech will have been played
        self._unreported: deque[tuple[int, float]] = deque()  # pushes after the report, and their seconds
        self._pushes = 0
        self._earlier_pushes = 0  # to media servers that are gone
        self._unanswered_discards = 0
        self._own_discards = 0  # of the media server
        self._hang_up_reason: str | None = None

    @property
    def sample_rate(self) -> int:
        """Rate of the packets, Hz."""
        return self._options.sample_rate

    @property
    def report(self) -> MediaReport:
        """The last report."""
        return self._report

    def open(self) -> None:
        """Have the media server serve the call."""
        descriptor = os.dup(self._sock.fileno())
        identity = socket_identity(descriptor)
        self._send(OpenPhoneCall(self._number, self._wire, self._options, identity), descriptor)

    def reopen(self, send: Send) -> None:
        """Continue on another media server: the one before is gone, with the speech that was queued there.

        An exception fails this call.
        """
        with self._guard():
            self._reopen(send)

    def hang_up(self, reason: str) -> None:
        """End the call."""
        self._hang_up_reason = reason
        self._tell(PhoneCallControl.hang_up, reason)

    def close(self) -> None:
        """Close the connection as far as it is open here."""
        self._sock.close()

    # CallMedia

    def set_listener(self, listener: MediaListener) -> None:
        """Report to ``listener`` from now on."""
        self._listener = listener

    def push(self, chunk: AudioChunk, utterance: int) -> None:
        """Queue a chunk."""
        self._pushes += 1
        now = self._now() if self._held_at is None else self._held_at
        self._dry_at = max(self._dry_at, now) + chunk.seconds
        self._unreported.append((self._pushes, chunk.seconds))
        self._tell(PhoneCallControl.push_speech, chunk, utterance, self._own_discards)

    def finish(self) -> None:
        """End the utterance."""
        self._tell(CallMedia.finish)

    def discard(self) -> None:
        """Drop the speech that is not yet played."""
        self._unanswered_discards += 1
        self._forget_queue()
        self._tell(CallMedia.discard)

    def set_caller_audio(self, options: CallerAudioOptions) -> None:
        """Set what is done with the caller's audio."""
        if options != self._caller_audio:
            self._caller_audio = options
            self._tell(CallMedia.set_caller_audio, options)

    def set_recording(self, recorded: bool) -> None:
        """Report all audio of both sides, or stop that."""
        self._is_recorded = recorded
        self._tell(CallMedia.set_recording, recorded)

    def set_held(self, held: bool) -> None:
        """Stop the speech, because nobody hears it, or go on with it."""
        if held is (self._held_at is not None):
            return
        now = self._now()
        if self._held_at is not None:
            self._dry_at += now - self._held_at
        self._held_at = now if held else None
        self._tell(CallMedia.set_held, held)

    def set_awaited(self, awaited: Awaited) -> None:
        """Set the cause of the next silence, for the sounds that fill it."""
        if awaited is not self._awaited:
            self._awaited = awaited
            self._tell(CallMedia.set_awaited, awaited)

    def change_wire(self, wire: WireOpening) -> None:
        """Go on with another opening on the same socket; the rate of the audio stays."""
        self._wire = wire
        self._tell(PhoneCallControl.change_wire, wire)

    def send_keys(self, digits: str) -> None:
        """Press keys of the far end: ``0-9 * # A-D``."""
        self._tell(PhoneCallControl.send_keys, digits)

    def lead_s(self, now: float) -> float:
        """Return the seconds of speech not yet played."""
        if self._report.at:
            now = min(now, self._report.at + self._options.max_assumed_s)
        if self._held_at is not None:
            now = min(now, self._held_at)
        return max(0.0, self._dry_at - now)

    def runs_dry_at(self, now: float) -> float:
        """Return the time at which the queued speech will have been played, at least ``now``."""
        return now + self.lead_s(now)

    # Messages

    def receive(self, message: MediaMessage) -> None:
        """Take a message of the media server. An exception of a listener fails this call."""
        with self._guard():
            self._receive(message)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # boundary: an error in one call must not affect the others
            self._owner.fail(error)

    def _reopen(self, send: Send) -> None:
        self._send = send
        self._earlier_report = self._report
        self._earlier_pushes = self._pushes
        self._own_discards = 0
        self._forget_queue()
        self._wire = self._wire.reopened()
        self.open()
        self._tell(CallMedia.set_caller_audio, self._caller_audio)
        self._tell(CallMedia.set_recording, self._is_recorded)
        if self._awaited is not Awaited.CALLER:
            self._tell(CallMedia.set_awaited, self._awaited)
        if self._held_at is not None:
            self._tell(CallMedia.set_held, True)
        listener = self._listener
        if listener is not None:
            while self._unanswered_discards:
                self._unanswered_discards -= 1
                listener.on_discarded(_NOTHING_CUT, requested=True)
            listener.on_played(self._pushes)
        if self._hang_up_reason is not None:
            self.hang_up(self._hang_up_reason)

    def _receive(self, message: MediaMessage) -> None:
        match message:
            case MediaMessage(method="on_closed", arguments=(reason, report)):
                self._report = self._earlier_report.followed_by(report)
                self._owner.on_closed(reason)
                # Cycles of ended calls would wait for the garbage collector, which then frees many at once.
                self._listener = None
                del self._owner
            case MediaMessage(method="on_problem"):
                message.run_on(self._owner)
            case _ if self._listener is not None:
                self._receive_for(self._listener, message)

    def _receive_for(self, listener: MediaListener, message: MediaMessage) -> None:
        match message:
            case MediaMessage(method="on_played", arguments=(pushes,)):
                listener.on_played(self._earlier_pushes + pushes)
            case MediaMessage(method="on_report", arguments=(report,)):
                self._take_report(report)
                listener.on_report(self._report)
            case MediaMessage(method="on_discarded", options={"requested": requested}):
                if requested:
                    self._unanswered_discards -= 1
                else:
                    self._own_discards += 1
                    self._forget_queue()
                message.run_on(listener)
            case _:
                message.run_on(listener)

    def _take_report(self, report: MediaReport) -> None:
        self._report = self._earlier_report.followed_by(report)
        while self._unreported and self._unreported[0][0] <= self._earlier_pushes + report.pushes:
            self._unreported.popleft()
        if not self._unanswered_discards:
            self._dry_at = report.runs_dry_at + sum(seconds for _, seconds in self._unreported)
            if self._held_at is not None:
                self._held_at = report.at

    def _forget_queue(self) -> None:
        self._dry_at = 0.0
        self._unreported.clear()

    def _tell(
        self,
        method: Callable[Concatenate[Any, Arguments], None],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> None:
        self._send(message_to(self._number, method, *arguments, **options), -1)
