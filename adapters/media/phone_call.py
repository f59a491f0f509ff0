"""One AudioSocket call of a media server: its socket, its playout, and control's messages.

Everything happens in ``tick``: once a packet period the call reads what has arrived and sends what is due. A
wake-up for each received packet, as an event loop would make it, costs more than reading it.
"""

import socket
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, assert_never

from ..audio.resample import PassthroughResampler
from ..audiosocket.protocol import AudioSocketAudio, AudioSocketProtocolError, CallId, Dtmf, Hangup
from ..audiosocket.server_connection import AudioSocketServerConnection, AudioSocketTimeouts
from ..audiosocket.socket_options import LINGER_S, set_socket_options
from ..playback.heard_words import DiscardResult, HeardWord
from ..playback.playout import Playout
from .call_media import MediaReport
from .clock import Clock
from .messages import (
    CallClosed,
    CallerSpeech,
    CallProblem,
    CallReport,
    DiscardSpeech,
    FinishSpeech,
    HangUp,
    MediaMessage,
    OpenPhoneCall,
    PushSpeech,
    ReceivedAudio,
    ReceivedKey,
    SetCallerAudio,
    SpeechCut,
    SpeechPlayed,
    WordsHeard,
)
from .paced_media import PacedMedia, SpeechDetector

_READ_BYTES: Final = 16 * 1024  # in a tick; a phone sends 323 at 8 kHz
_MAX_UNSENT_BYTES: Final = 1 << 20  # to control; with more, the caller's audio is dropped

CallMessage = PushSpeech | FinishSpeech | DiscardSpeech | SetCallerAudio | HangUp


class PhoneCall:
    """Serves one connection. ``Ticked`` by the clock, and the ``MediaListener`` of its playout.

    Args:
        sock: the connection, which it owns.
        clock: ticks it from now until nothing of it is left.
        send: sends a message to control; returns the bytes that control has not read.
        on_closed: called when nothing of the call is left.
    """

    def __init__(
        self,
        opening: OpenPhoneCall,
        sock: socket.socket,
        clock: Clock,
        *,
        send: Callable[[MediaMessage], int],
        detector: SpeechDetector | None,
        on_closed: Callable[[], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._number = opening.call
        self._sock = sock
        self._clock = clock
        self._send_message = send
        self._on_closed = on_closed
        self._now = now
        self._sample_rate = opening.options.sample_rate
        self._connection = AudioSocketServerConnection(
            now(),
            AudioSocketTimeouts(stalled_s=opening.options.stalled_s, silent_s=opening.options.silent_s),
        )
        self._unsent = b""  # rest of a message that the socket took in part
        self._unread_bytes = 0  # by control
        self._own_discards = 0
        self._close_at: float | None = None  # from the end of the call on
        sock.setblocking(False)
        set_socket_options(sock)
        self._media = PacedMedia(
            Playout(
                start=clock.join(self),
                sample_rate=self._sample_rate,
                resampler=None if opening.options.resamples else PassthroughResampler(),
            ),
            self._send_packet,
            now=now,
            dropped=lambda: self._connection.dropped,
            detector=detector,
            report_ticks=opening.options.report_ticks,
        )
        self._media.set_listener(self)
        self._connection.receive_data(opening.received)

    def execute(self, message: CallMessage) -> None:
        """Execute a message of control. An error ends this call and no other."""
        try:
            self._execute(message)
        except Exception as error:  # boundary: an error in one call must not affect the others
            self.fail(error)

    def _execute(self, message: CallMessage) -> None:
        match message:
            case PushSpeech(known_discards=known) if known < self._own_discards:
                self._media.skip()
            case PushSpeech(chunk=chunk, utterance=utterance):
                self._media.push(chunk, utterance)
            case FinishSpeech():
                self._media.finish()
            case DiscardSpeech():
                self._media.discard()
            case SetCallerAudio(options=options):
                self._media.set_caller_audio(options)
            case HangUp(reason=reason):
                self._end(reason)
            case _:
                assert_never(message)

    # Called by the clock

    def tick(self, now: float) -> None:
        """Read what has arrived, and send the packets due at ``now`` (monotonic s)."""
        if self._unsent:
            self._write(b"")
        if self._close_at is None:
            self._receive(now)
        if self._close_at is None:
            self._media.tick(now)
        else:
            self._linger(now)

    def fail(self, error: Exception) -> None:
        """Report an error of this program to control, and end the call."""
        text = "".join(traceback.format_exception(error))
        self._send_message(CallProblem(self._number, text, is_internal=True))
        if self._close_at is not None:
            self._close()
            return
        self._clock.leave(self)  # a call that fails in its tick has left
        self._clock.join(self)
        self._end("internal error")

    # The connection

    def _receive(self, now: float) -> None:
        data: bytes | None = None
        try:
            data = self._sock.recv(_READ_BYTES)
        except BlockingIOError:
            pass
        except OSError as error:
            self._end(f"the caller's connection broke ({error})")
            return
        try:
            if data and (sample_rate := self._connection.receive_audio(data, now)):
                self._media.receive_audio(data[3:], sample_rate)
            else:
                self._receive_messages(data, now)
        except AudioSocketProtocolError as error:
            self._end_for_problem(str(error), str(error))

    def _receive_messages(self, data: bytes | None, now: float) -> None:
        if data:
            self._connection.receive_data(data)
        elif data is not None:
            self._connection.receive_eof()
        for event in self._connection.events(now):
            self._handle(event)
            if self._close_at is not None:
                return
        self._connection.check_deadline(now)

    def _handle(self, event: CallId | AudioSocketAudio | Dtmf | Hangup) -> None:
        match event:
            case AudioSocketAudio(sample_rate, payload):
                self._media.receive_audio(payload, sample_rate)
            case Dtmf(digit):
                self._media.press(digit)
            case CallId():
                pass  # control has it
            case Hangup():
                self._end("the caller hung up")
            case _:
                assert_never(event)

    def _send_packet(self, packet: bytes) -> None:
        if self._close_at is not None:
            return
        audio = AudioSocketAudio(self._sample_rate, packet)
        if message := self._connection.encode_packet(audio, len(self._unsent)):
            self._write(message)
        elif self._connection.has_stalled:
            stalled_s = self._connection.stalled_s
            self._end_for_problem(
                "the peer stopped reading", f"the peer has taken nothing for {stalled_s:g} s"
            )
            self._close()

    def _write(self, message: bytes) -> None:
        data = self._unsent + message if self._unsent else message
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:  # the next read says so too
            sent = len(data)
        self._unsent = data[sent:]

    def _end_for_problem(self, reason: str, problem: str) -> None:
        if self._close_at is None:
            self._send_message(CallProblem(self._number, problem, is_internal=False))
            self._end(reason)

    def _end(self, reason: str) -> None:
        """End the call with 0x00, after which Asterisk continues with its dial plan."""
        if self._close_at is not None:
            return
        self._close_at = self._now() + LINGER_S
        self._send_message(CallClosed(self._number, reason, self._media.report))
        self._write(self._connection.encode_hangup())
        self._shut_down_if_sent()

    def _shut_down_if_sent(self) -> None:
        # Half closed, not closed: received data that was not read would turn the close into a reset, after
        # which Asterisk hangs up instead of continuing with its dial plan.
        if not self._unsent:
            with suppress(OSError):  # the peer may have disconnected
                self._sock.shutdown(socket.SHUT_WR)

    def _linger(self, now: float) -> None:
        """Send the rest and drop what arrives, until the peer closes or the time is up."""
        assert self._close_at is not None
        self._shut_down_if_sent()
        try:
            peer_has_closed = not self._sock.recv(_READ_BYTES)
        except BlockingIOError:
            peer_has_closed = False
        except OSError:
            peer_has_closed = True
        if peer_has_closed or now >= self._close_at:
            self._close()

    def _close(self) -> None:
        self._clock.leave(self)
        self._sock.close()
        self._on_closed()

    # Called by the media

    def on_words_heard(self, words: Sequence[HeardWord]) -> None:
        """Report words."""
        self._send_message(WordsHeard(self._number, tuple(words)))

    def on_played(self, pushes: int) -> None:
        """Report that all speech was played."""
        self._send_message(SpeechPlayed(self._number, pushes))

    def on_discarded(self, result: DiscardResult, *, requested: bool) -> None:
        """Report a discard; speech that is on its way is dropped if control did not ask for it."""
        self._own_discards += not requested
        self._send_message(SpeechCut(self._number, result, requested))

    def on_caller_speech(self, speaking: bool) -> None:
        """Report the caller's speech."""
        self._send_message(CallerSpeech(self._number, speaking))

    def on_caller_audio(self, pcm: bytes, sample_rate: int) -> None:
        """Forward the caller's audio, unless control does not read."""
        if self._unread_bytes < _MAX_UNSENT_BYTES:
            self._unread_bytes = self._send_message(ReceivedAudio(self._number, pcm, sample_rate))

    def on_key(self, digit: str) -> None:
        """Report a key."""
        self._send_message(ReceivedKey(self._number, digit))

    def on_report(self, report: MediaReport) -> None:
        """Report the state."""
        self._unread_bytes = self._send_message(CallReport(self._number, report))
