"""One call of a media server: its playout and control's messages, on a wire of any protocol.

Everything happens in ``tick``: once a packet period the call reads what has arrived and sends what is due. A
wake-up for each received packet, as an event loop would make it, costs more than reading it.
"""

import time
import traceback
from collections.abc import Callable, Sequence
from typing import Final, assert_never

from ..audio.resample import call_resampler
from ..echo_filter import EchoFilter
from ..playback.background import BackgroundMixer
from ..playback.heard_words import DiscardResult, HeardMark, HeardWord
from ..playback.playout import Playout
from .call_media import MediaReport, RecordedAudio
from .clock import Clock
from .messages import (
    AudioRecorded,
    CallClosed,
    CallerSpeech,
    CallMessage,
    CallProblem,
    CallReport,
    ChangeWire,
    DiscardSpeech,
    FinishSpeech,
    HangUp,
    MediaMessage,
    OpenPhoneCall,
    PushSpeech,
    ReceivedAudio,
    ReceivedKey,
    SendKeys,
    SetAwaited,
    SetCallerAudio,
    SetHeld,
    SetRecording,
    SpeechCut,
    SpeechPlayed,
    WordsHeard,
)
from .paced_media import PacedMedia, SpeechDetector
from .phone_wire import CallerAudioQueue, PhoneWire, WireEnded

_MAX_UNSENT_BYTES: Final = 1 << 20  # to control; with more, audio is dropped


class PhoneCall:
    """Serves one call. ``Ticked`` by the clock, and the ``MediaListener`` of its playout.

    Args:
        wire: carries the call; it is closed at the end.
        clock: ticks it from now until nothing of it is left.
        send: sends a message to control; returns the bytes that control has not read.
        on_closed: called when nothing of the call is left.
    """

    def __init__(
        self,
        opening: OpenPhoneCall,
        wire: PhoneWire,
        clock: Clock,
        *,
        send: Callable[[MediaMessage], int],
        detector: SpeechDetector | None,
        background: BackgroundMixer | None = None,
        on_closed: Callable[[], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._number = opening.call
        self._wire = wire
        self._clock = clock
        self._send_message = send
        self._on_closed = on_closed
        self._now = now
        self._unread_bytes = 0  # by control
        self._own_discards = 0
        self._is_over = False  # the wire may still have something to send
        self._playout = Playout(
            start=clock.join(self),
            sample_rate=opening.options.sample_rate,
            resampler=call_resampler(opening.options.sample_rate),
            background=background,
        )
        self._skipped = 0  # packets of the playout, as the wire knows
        self._media = PacedMedia(
            self._playout,
            wire.send,
            now=now,
            dropped=lambda: wire.dropped,
            detector=detector,
            echo=EchoFilter(),
            report_ticks=opening.options.report_ticks,
        )
        self._media.set_listener(self)
        self._caller_audio = CallerAudioQueue(self._media)

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
            case SetRecording(recorded=recorded):
                self._media.set_recording(recorded)
            case SetAwaited(awaited=awaited):
                self._media.set_awaited(awaited)
            case SetHeld(held=held):
                self._media.set_held(held)
            case ChangeWire(wire=wire):
                self._wire.change(wire)
            case SendKeys(digits=digits):
                self._wire.send_keys(digits)
            case HangUp(reason=reason):
                self._end(reason)
            case _:
                assert_never(message)

    # Called by the clock

    def tick(self, now: float) -> None:
        """Read what has arrived, and send the packets due at ``now`` (monotonic s)."""
        if self._is_over:
            if self._wire.linger(now):
                self._close()
            return
        try:
            self._caller_audio.begin_tick()
            if self._caller_audio.is_empty:
                self._wire.receive(now, self._caller_audio)
            if (skipped := self._playout.skipped_packets) != self._skipped:
                self._wire.skip(skipped - self._skipped)
                self._skipped = skipped
            self._media.tick(now)
        except WireEnded as end:
            self._end_for(end)

    def fail(self, error: Exception) -> None:
        """Report an error of this program to control, and end the call."""
        text = "".join(traceback.format_exception(error))
        self._send_message(CallProblem(self._number, text, is_internal=True))
        if self._is_over:
            self._close()
            return
        self._clock.leave(self)  # a call that fails in its tick has left
        self._clock.join(self)
        self._end("internal error")

    def _end_for(self, end: WireEnded) -> None:
        if end.problem is not None:
            self._send_message(CallProblem(self._number, end.problem, is_internal=False))
        self._end(end.reason)
        if end.is_stalled:
            self._close()

    def _end(self, reason: str) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._send_message(CallClosed(self._number, reason, self._media.report))
        self._wire.hang_up()

    def _close(self) -> None:
        self._clock.leave(self)
        self._wire.close()
        self._media.close()
        self._on_closed()

    # Called by the media

    def on_words_heard(self, words: Sequence[HeardWord | HeardMark]) -> None:
        """Report words and marks."""
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

    def on_recorded(self, audio: RecordedAudio) -> None:
        """Forward audio for the recording, unless control does not read."""
        if self._unread_bytes < _MAX_UNSENT_BYTES:
            self._unread_bytes = self._send_message(AudioRecorded(self._number, audio))

    def on_key(self, digit: str) -> None:
        """Report a key."""
        self._send_message(ReceivedKey(self._number, digit))

    def on_report(self, report: MediaReport) -> None:
        """Report the state."""
        self._unread_bytes = self._send_message(CallReport(self._number, report))
