"""One call of a media server: its playout and control's messages, on a wire of any protocol.

Everything happens in ``tick``: once a packet period the call reads what has arrived and sends what is due. A
wake-up for each received packet, as an event loop would make it, costs more than reading it.
"""

import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Final

from ....tts_engine.chunk import AudioChunk
from ...echo_filter import EchoFilter
from ...playback.background import BackgroundMixer
from ...playback.heard_words import DiscardResult, HeardMark, HeardWord
from ...playback.playout import Playout
from ..call_media import MediaListener, MediaReport, RecordedAudio
from ..clock import Clock
from ..paced_media import PacedMedia, SpeechDetector
from ..phone_media import WireOpening
from ..phone_wire import PhoneWire, WireEnded
from .caller_audio import CallerAudioQueue
from .messages import (
    Arguments,
    MediaMessage,
    OpenPhoneCall,
    PhoneCallControl,
    PhoneCallEvents,
    message_to,
)

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
        self._send = send
        self._on_closed = on_closed
        self._now = now
        self._unread_bytes = 0  # by control
        self._own_discards = 0
        self._is_over = False  # the wire may still have something to send
        self._playout = Playout(
            start=clock.join(self),
            sample_rate=opening.options.sample_rate,
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

    def execute(self, message: MediaMessage) -> None:
        """Run a method of ``PhoneCallControl`` or ``CallMedia``. An error ends this call and no other."""
        try:
            message.run_on(self if hasattr(PhoneCallControl, message.method) else self._media)
        except Exception as error:  # boundary: an error in one call must not affect the others
            self.fail(error)

    # ``PhoneCallControl``

    def push_speech(self, chunk: AudioChunk, utterance: int, known_discards: int) -> None:
        """Play a chunk, unless it was sent before control knew that the caller interrupted."""
        if known_discards < self._own_discards:
            self._media.skip()
        else:
            self._media.push(chunk, utterance)

    def change_wire(self, wire: WireOpening) -> None:
        """Go on with another opening on the same socket."""
        self._wire.change(wire)

    def send_keys(self, digits: str) -> None:
        """Press keys of the far end."""
        self._wire.send_keys(digits)

    def hang_up(self, reason: str) -> None:
        """End the call."""
        if self._is_over:
            return
        self._is_over = True
        self._tell(PhoneCallEvents.on_closed, reason, self._media.report)
        self._wire.hang_up()

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
        self._tell(PhoneCallEvents.on_problem, text, is_internal=True)
        if self._is_over:
            self._close()
            return
        self._clock.leave(self)  # a call that fails in its tick has left
        self._clock.join(self)
        self.hang_up("internal error")

    def _end_for(self, end: WireEnded) -> None:
        if end.problem is not None:
            self._tell(PhoneCallEvents.on_problem, end.problem, is_internal=False)
        self.hang_up(end.reason)
        if end.is_stalled:
            self._close()

    def _close(self) -> None:
        self._clock.leave(self)
        self._wire.close()
        self._media.close()
        self._on_closed()

    # Called by the media

    def on_words_heard(self, words: Sequence[HeardWord | HeardMark]) -> None:
        """Report words and marks."""
        self._tell(MediaListener.on_words_heard, tuple(words))

    def on_played(self, pushes: int) -> None:
        """Report that all speech was played."""
        self._tell(MediaListener.on_played, pushes)

    def on_discarded(self, result: DiscardResult, *, requested: bool) -> None:
        """Report a discard; speech that is on its way is dropped if control did not ask for it."""
        self._own_discards += not requested
        self._tell(MediaListener.on_discarded, result, requested=requested)

    def on_caller_speech(self, speaking: bool) -> None:
        """Report the caller's speech."""
        self._tell(MediaListener.on_caller_speech, speaking)

    def on_caller_audio(self, pcm: bytes, sample_rate: int) -> None:
        """Forward the caller's audio, unless control does not read."""
        if self._unread_bytes < _MAX_UNSENT_BYTES:
            self._tell(MediaListener.on_caller_audio, pcm, sample_rate)

    def on_recorded(self, audio: RecordedAudio) -> None:
        """Forward audio for the recording, unless control does not read."""
        if self._unread_bytes < _MAX_UNSENT_BYTES:
            self._tell(MediaListener.on_recorded, audio)

    def on_key(self, digit: str) -> None:
        """Report a key."""
        self._tell(MediaListener.on_key, digit)

    def on_report(self, report: MediaReport) -> None:
        """Report the state."""
        self._tell(MediaListener.on_report, report)

    def _tell(
        self,
        method: Callable[Concatenate[Any, Arguments], None],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> None:
        self._unread_bytes = self._send(message_to(self._number, method, *arguments, **options))
