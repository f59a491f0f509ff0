"""One AudioSocket call of a media server: joins its connection, its playout, and control's messages."""

import asyncio
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID

from ..audiosocket.call import AudioSocketCall, CallPacer
from ..audiosocket.protocol import AudioSocketAudio
from ..audiosocket.server_connection import AudioSocketTimeouts
from ..playback.heard_words import DiscardResult, HeardWord
from ..playback.playout import Playout
from .call_media import MediaReport
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

_MAX_UNSENT_BYTES: Final = 1 << 20  # to control; with more, the caller's audio is dropped

CallMessage = PushSpeech | FinishSpeech | DiscardSpeech | SetCallerAudio | HangUp


class PhoneCall:
    """Implements ``CallApplication`` for one connection, and ``MediaListener``.

    Args:
        send: sends a message to control; returns the bytes that control has not read.
        on_closed: called when nothing of the call is left.
    """

    def __init__(
        self,
        opening: OpenPhoneCall,
        pacer: CallPacer,
        *,
        send: Callable[[MediaMessage], int],
        make_detector: Callable[[], SpeechDetector],
        on_closed: Callable[[], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._opening = opening
        self._now = now
        self._number = opening.call
        self._send = send
        self._make_detector = make_detector
        self._unread_bytes = 0  # by control
        self._own_discards = 0
        self._media: PacedMedia | None = None  # from the opening on
        self._early: list[CallMessage] = []  # messages before it
        timeouts = AudioSocketTimeouts(stalled_s=opening.stalled_s)
        self.connection = _ContinuedCall(opening.received, self, pacer, timeouts, lambda _: on_closed())

    def execute(self, message: CallMessage) -> None:
        """Execute a message of control."""
        if self._media is None:
            self._early.append(message)
        else:
            self._execute(self._media, message)

    def _execute(self, media: PacedMedia, message: CallMessage) -> None:
        match message:
            case PushSpeech(known_discards=known) if known < self._own_discards:
                media.skip()
            case PushSpeech(chunk=chunk, utterance=utterance):
                media.push(chunk, utterance)
            case FinishSpeech():
                media.finish()
            case DiscardSpeech():
                media.discard()
            case SetCallerAudio(options=options):
                media.set_caller_audio(options)
            case HangUp(reason=reason):
                # Later, because the connection may be in the middle of opening the call.
                asyncio.get_running_loop().call_soon(self.connection.end, reason)

    # Called by the connection

    def admit(self, call: AudioSocketCall) -> bool:
        """Return True: control has admitted the call."""
        return True

    def open(self, call: AudioSocketCall, call_id: UUID, start: float) -> "_PhoneCallHandler":
        """Begin to play; the first packet is due at ``start`` (monotonic s)."""
        sample_rate = self._opening.sample_rate
        media = self._media = PacedMedia(
            Playout(start=start, sample_rate=sample_rate),
            lambda packet: call.send(AudioSocketAudio(sample_rate, packet)),
            now=self._now,
            dropped=lambda: call.dropped,
            detector=self._make_detector(),
        )
        media.set_listener(self)
        for message in self._early:
            self._execute(media, message)
        self._early.clear()
        return _PhoneCallHandler(media)

    def on_ended(self, call: AudioSocketCall, reason: str) -> None:
        """Tell control that the call is over."""
        report = MediaReport() if self._media is None else self._media.report
        self._send(CallClosed(self._number, reason, report))

    def log_protocol_error(self, call: AudioSocketCall, error: str) -> None:
        """Have control log an error of the caller's program."""
        self._send(CallProblem(self._number, error, is_internal=False))

    def log_internal_error(self, call: AudioSocketCall, error: Exception) -> None:
        """Have control log an exception."""
        text = "".join(traceback.format_exception(error))
        self._send(CallProblem(self._number, text, is_internal=True))

    # Called by the media

    def on_words_heard(self, words: Sequence[HeardWord]) -> None:
        """Report words."""
        self._send(WordsHeard(self._number, tuple(words)))

    def on_played(self, pushes: int) -> None:
        """Report that all speech was played."""
        self._send(SpeechPlayed(self._number, pushes))

    def on_discarded(self, result: DiscardResult, *, requested: bool) -> None:
        """Report a discard; speech that is on its way is dropped if control did not ask for it."""
        self._own_discards += not requested
        self._send(SpeechCut(self._number, result, requested))

    def on_caller_speech(self, speaking: bool) -> None:
        """Report the caller's speech."""
        self._send(CallerSpeech(self._number, speaking))

    def on_caller_audio(self, pcm: bytes, sample_rate: int) -> None:
        """Forward the caller's audio, unless control does not read."""
        if self._unread_bytes < _MAX_UNSENT_BYTES:
            self._unread_bytes = self._send(ReceivedAudio(self._number, pcm, sample_rate))

    def on_key(self, digit: str) -> None:
        """Report a key."""
        self._send(ReceivedKey(self._number, digit))

    def on_report(self, report: MediaReport) -> None:
        """Report the state."""
        self._unread_bytes = self._send(CallReport(self._number, report))


class _ContinuedCall(AudioSocketCall):
    """A connection of which something was read before."""

    def __init__(self, received: bytes, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._received_before = received

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.data_received(self._received_before)


class _PhoneCallHandler:
    """Passes what the connection receives to the media. Implements ``CallHandler``."""

    def __init__(self, media: PacedMedia) -> None:
        self._media = media
        self._ended = asyncio.Event()

    def on_audio(self, audio: AudioSocketAudio) -> None:
        self._media.receive_audio(audio.payload, audio.sample_rate)

    def on_dtmf(self, digit: str) -> None:
        self._media.press(digit)

    def tick(self, now: float) -> int:
        return self._media.tick(now)

    async def run(self) -> None:
        await self._ended.wait()

    def on_ended(self, reason: str) -> None:
        self._ended.set()
