"""One call: speaks text on a leg, and reports what the caller does.

A call knows no protocol. Its media, here or in another process, play the speech and report what was heard
and what the caller does; its leg reports the end of the connection. Chunks are taken from the engine's stream
only while less than ``lead_s`` of speech is unplayed: little is rendered in vain when the caller interrupts.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ...adapters.media.call_media import CallerAudioOptions, CallMedia, MediaReport, RecordedAudio
from ...adapters.playback.heard_words import DiscardResult, HeardMark, HeardWord
from ...adapters.ssml.document import SsmlDocument
from ...tts_engine.chunk import AudioChunk
from ...tts_engine.errors import UnreadableText, VivavoceError
from ...tts_engine.metrics import Metrics
from ...tts_engine.scheduler import Admission
from .call_options import CallerSpeechAction, CallSpeechOptions
from .caller import UNKNOWN_CALLER, Caller
from .events import (
    CallerAudio,
    CallerSilent,
    CallerSpeaking,
    CallEvents,
    HungUp,
    KeyPressed,
    PlayoutReport,
    RecordingEnded,
    SpeechDiscarded,
    TextWritten,
)
from .pressure.call_pressure import CallPressure, PlayoutCounters
from .recordings import CallNotRecordable, CallRecording, CallRecordings, RecordingFailed
from .results import CallResult
from .text_feed import TextDelta, TextFeed
from .transfers import AttendedTransfer, CallNotTransferable, CallTransfers
from .utterance_tracker import Turn, UtteranceOutcome, UtteranceTracker

if TYPE_CHECKING:
    from ...tts_engine.speech_engine import SpeechEngine, SpeechStream

logger = logging.getLogger(__name__)

_MAX_WAITING_KEYS = 64  # later ones are dropped
_MAX_WRITTEN_CHARACTERS = 8 * 1024  # in one TextWritten; a data channel takes 64 KiB in one message
_MAX_WAIT_FOR_PLACE_S = 2.0  # longer, the caller takes the call for dead
_RETRY_S = 0.05
_DEFAULT_SPEECH = CallSpeechOptions()
_NOTHING_DISCARDED = SpeechDiscarded(None, 0.0, "")


class Call:
    """One leg on which the engine speaks. All methods belong to the event loop's thread.

    Utterances are spoken one after another: a ``speak`` during another one waits for it.

    Args:
        media: plays the speech; the call becomes its listener.
        close: takes a reason and ends the connection; must not block.
        transfers: of the caller; None: a call of this kind cannot be transferred.
        speech: used for utterances that bring no options of their own.
        recordings: makes the call's recorder; None: the call cannot be recorded.
        lead_s: seconds of speech kept ready in the playout.
        pressure: takes the faults that the caller hears.
    """

    def __init__(
        self,
        call_id: str,
        *,
        engine: "SpeechEngine",
        media: CallMedia,
        close: Callable[[str], None],
        transfers: CallTransfers | None = None,
        caller: Caller = UNKNOWN_CALLER,
        recordings: CallRecordings | None = None,
        speech: CallSpeechOptions = _DEFAULT_SPEECH,
        lead_s: float = 0.6,
        pressure: CallPressure | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.call_id = call_id
        self.caller = caller
        self.result = CallResult()  # of the programs on the call
        self.discarded_ms = 0.0
        self.media = media
        self.events = CallEvents(on_listeners_changed=self._set_caller_audio)
        self.takes_media_keys = True  # else keys that the media report are ignored: they come twice
        self.is_taken_over = False  # whether the caller decides what is spoken; a script then ends
        self._tracker = UtteranceTracker(self.events)
        self._engine = engine
        self._metrics = engine.metrics
        self._close = close
        self._transfers = transfers
        self._counters = PlayoutCounters(engine.metrics, pressure)
        self._speech = speech
        self._lead_s = lead_s
        self._now = now
        self._turn_count = 0
        self._speak_lock = asyncio.Lock()
        self._stream: SpeechStream | None = None  # of the utterance being spoken
        self._text_feed: TextFeed | None = None  # its text
        self._interrupted = asyncio.Event()  # set, and replaced by a new one, at each barge-in
        # Discards that the media have not answered, and the utterances begun before each.
        self._unanswered_discards: deque[tuple[asyncio.Future[SpeechDiscarded], int]] = deque()
        self._pushes = 0  # chunks given to the media
        self._played = asyncio.Event()  # all of them have been played or discarded
        self._played.set()
        self._keys: asyncio.Queue[str] = asyncio.Queue(_MAX_WAITING_KEYS)
        self._caller_speech_action = CallerSpeechAction.TELL
        self._caller_silent = asyncio.Event()
        self._caller_silent.set()
        self._ending = False
        self._closed = asyncio.Event()
        # It does not refer to the call, which is freed at its end without the garbage collector.
        report_failed = partial(_report_failed_recording, engine.metrics, self.events, self._closed)
        self._recording = CallRecording(call_id, media, recordings, report_failed)
        media.set_listener(self)

    @property
    def sample_rate(self) -> int:
        """Sample rate of the packets sent, Hz."""
        return self.media.sample_rate

    @property
    def is_speaking(self) -> bool:
        """Whether speech is being rendered or played."""
        return self._stream is not None or not self._played.is_set()

    # Speaking

    def begin_turn(self) -> Turn:
        """Number the next utterance before it is spoken; a barge-in from now on applies to it."""
        self._turn_count += 1
        return Turn(self._turn_count - 1, self._interrupted)

    def announce_text(self, turn: Turn, text: str) -> None:
        """Emit TextWritten for text of ``turn``, in pieces of at most 8 Ki characters."""
        for start in range(0, len(text), _MAX_WRITTEN_CHARACTERS):
            self.events.emit(TextWritten(turn.number, text[start : start + _MAX_WRITTEN_CHARACTERS]))

    def require_languages(self, document: SsmlDocument, voice: str | None) -> None:
        """Raise LanguageNotSpoken if a voice does not speak a language that a document names."""
        for language in document.languages:
            self._engine.language_spoken(voice, language)

    async def speak(
        self,
        text: str | AsyncIterable[TextDelta],
        *,
        speech: CallSpeechOptions | None = None,
        turn: Turn | None = None,
    ) -> UtteranceOutcome:
        """Speak ``text``, whole or as it is written; return when its last audio is in the playout.

        Text that begins with ``<speak`` is an SSML document.

        A VivavoceError, of the engine or of the text's source, is logged with the call's id and ends this
        utterance only. Another exception of the source is raised, after the text before it was rendered.

        Args:
            turn: the utterance, if its writer began it and announces its text; else both are done here.
        """
        interrupted = self._interrupted if turn is None else turn.discarded
        async with self._speak_lock:
            if interrupted.is_set():
                return UtteranceOutcome.DISCARDED
            if not self._ending:
                return await self._render(text, speech or self._speech, turn)
        # An agent that speaks in a loop must not spin while the call ends.
        await self.wait_closed()
        return UtteranceOutcome.CUT_SHORT

    async def wait_played(self) -> None:
        """Wait until the caller has heard what is in the playout, or until it is discarded."""
        await self._played.wait()

    def discard(self) -> "asyncio.Future[SpeechDiscarded]":
        """Barge-in: drop what is playing and every utterance that waits.

        The result says what had been heard. It need not be awaited.
        """
        self._interrupt_all()
        answer: asyncio.Future[SpeechDiscarded] = asyncio.get_running_loop().create_future()
        if self._closed.is_set():
            answer.set_result(_NOTHING_DISCARDED)
        else:
            self._unanswered_discards.append((answer, self._tracker.begun))
            self.media.discard()
        return answer

    # The caller

    def take_over(self) -> None:
        """Leave to the caller what is spoken: an agent that speaks unasked says nothing more."""
        self.is_taken_over = True

    @property
    def caller_speech_action(self) -> CallerSpeechAction:
        """What the call does when its caller begins to speak."""
        return self._caller_speech_action

    @caller_speech_action.setter
    def caller_speech_action(self, action: CallerSpeechAction) -> None:
        self._caller_speech_action = action
        self._set_caller_audio()

    async def wait_caller_silent(self, timeout_s: float) -> None:
        """Wait until the caller does not speak; return at once if speech is not detected on this call."""
        await _wait_at_most(self._caller_silent, timeout_s)

    def press(self, digit: str) -> None:
        """Take a key that the caller pressed: one of ``0-9 * # A-D``."""
        self.events.emit(KeyPressed(digit))
        try:
            self._keys.put_nowait(digit)
        except asyncio.QueueFull:
            logger.debug("Call %s: key dropped, %d are waiting", self.call_id, _MAX_WAITING_KEYS)

    async def next_key(self) -> str:
        """Wait for the next key that the caller presses: one of ``0-9 * # A-D``."""
        return await self._keys.get()

    # The end

    async def finish(self) -> None:
        """End the call after the sentence being spoken; later utterances are not begun."""
        self._ending = True
        if self._text_feed is not None:
            self._text_feed.end_after_sentence()
        async with self._speak_lock:
            await self.wait_played()
        self.hang_up("finished")

    def hang_up(self, reason: str = "hung up here") -> None:
        """End the connection at once."""
        self._close(reason)

    def transfer(self, target: str) -> None:
        """End the call and transfer the caller; raises CallNotTransferable."""
        self._require_transfers().check(target)
        self.result = replace(self.result, transfer_to=target)
        self.hang_up(f"transferred to {target}")

    async def transfer_attended(self, transfer: AttendedTransfer) -> None:
        """Call the target, and transfer the caller once it has answered, which ends the call.

        Raises CallNotTransferable, and TransferFailed if the call goes on.
        """
        await self._require_transfers().attend(transfer)

    def record(self) -> "asyncio.Future[str]":
        """Record the call from now on. Twice is no error.

        The result is the file's name, or RecordingFailed, also for a recording that ended by itself before:
        ask again to begin another. It need not be awaited. Raises CallNotRecordable.
        """
        if self._closed.is_set():
            raise CallNotRecordable("the call is over")
        return self._recording.begin()

    @property
    def is_recorded(self) -> bool:
        """Whether the call is being recorded."""
        return self._recording.is_on

    def stop_recording(self) -> "asyncio.Future[str]":
        """End the recording. The result is as that of ``record``, or "" if there was none."""
        return self._recording.end()

    def on_closed(self) -> None:
        """End everything of the call: its leg is gone."""
        self.stop_recording()
        self._ending = True
        self._interrupt_all()
        self._interrupted.set()  # also for turns that begin later
        self._closed.set()
        while self._unanswered_discards:
            self._answer_discard(_NOTHING_DISCARDED)
        self._counters.count(self.media.report.stats, self._now())
        self.events.emit(HungUp())
        self._close = lambda reason: None  # else the call would be a cycle with its leg

    async def wait_closed(self) -> None:
        """Wait until the connection is gone."""
        await self._closed.wait()

    # Called by the media

    def on_words_heard(self, words: Sequence[HeardWord | HeardMark]) -> None:
        """Emit the words and marks, and the ends of utterances before them."""
        self._tracker.add_heard(words)

    def on_played(self, pushes: int) -> None:
        """Emit the ends of utterances, unless more speech is on its way to the media."""
        if pushes == self._pushes:
            self._played.set()
            self._tracker.finish()

    def on_discarded(self, result: DiscardResult, *, requested: bool) -> None:
        """Report the answer to ``discard``, or interrupt here too because the caller spoke."""
        self.discarded_ms += result.cut_ms
        if requested:
            _, begun = self._unanswered_discards[0]
            self._answer_discard(self._tracker.discard(result, begun))
        else:
            self._interrupt_all()
            self._tracker.discard(result, self._tracker.begun)

    def on_caller_speech(self, speaking: bool) -> None:
        """Emit that the caller began or stopped to speak."""
        if speaking:
            self._caller_silent.clear()
        else:
            self._caller_silent.set()
        self.events.emit(CallerSpeaking() if speaking else CallerSilent())

    def on_caller_audio(self, pcm: bytes, sample_rate: int) -> None:
        """Emit audio of the caller, s16le mono."""
        self.events.emit(CallerAudio(pcm, sample_rate))

    def on_recorded(self, audio: RecordedAudio) -> None:
        """Record audio of either side."""
        self._recording.take(audio)

    def on_key(self, digit: str) -> None:
        """Take a key that the caller pressed."""
        if self.takes_media_keys:
            self.press(digit)

    def on_report(self, report: MediaReport) -> None:
        """Count faults in the metrics, and emit the state of the playout."""
        stats = report.stats
        self._counters.count(stats, self._now())
        if self.events.has_listeners:
            self.events.emit(
                PlayoutReport(
                    lead_ms=round(1000 * self.media.lead_s(self._now())),
                    packets=stats.packets,
                    late_packets=stats.late_packets,
                    skipped_packets=stats.skipped_packets,
                    underruns=stats.underruns,
                )
            )

    def _require_transfers(self) -> CallTransfers:
        if self._transfers is None:
            raise CallNotTransferable("a call of this kind cannot be transferred")
        return self._transfers

    def _answer_discard(self, result: SpeechDiscarded) -> None:
        answer, _ = self._unanswered_discards.popleft()
        if not answer.done():
            answer.set_result(result)

    def _interrupt_all(self) -> None:
        self._interrupted.set()
        self._interrupted = asyncio.Event()
        self._played.set()
        if self._stream is not None:
            self._stream.cancel()

    def _set_caller_audio(self) -> None:
        discards = self._caller_speech_action is CallerSpeechAction.DISCARD
        detects = discards or self.events.has_listeners  # only if something reacts to it
        if not detects:
            self._caller_silent.set()  # an earlier "speaking" would never end
        self.media.set_caller_audio(CallerAudioOptions(detects, discards, self.events.wants_caller_audio))

    # Rendering

    async def _render(
        self, text: str | AsyncIterable[TextDelta], speech: CallSpeechOptions, turn: Turn | None
    ) -> UtteranceOutcome:
        on_text = None
        if turn is None:
            turn = self.begin_turn()
            on_text = partial(self.announce_text, turn)
        try:
            await self._wait_for_place(turn)
            if turn.discarded.is_set():
                return UtteranceOutcome.DISCARDED
            request = speech.stream_request(self.sample_rate, self.call_id)
            self._stream = self._engine.open_stream(request, Admission.OVERDUE)
            async with (
                self._stream as stream,
                TextFeed(stream, text, on_text, self._now) as self._text_feed,
            ):
                outcome = await self._play_stream(stream, self._text_feed, turn)
        except VivavoceError as error:
            logger.warning("Call %s: an utterance failed: %s", self.call_id, error)
            unreadable = isinstance(error, UnreadableText)
            outcome = UtteranceOutcome.UNREADABLE if unreadable else UtteranceOutcome.FAILED
        finally:
            self._stream = self._text_feed = None
            self.media.finish()
        outcome = UtteranceOutcome.DISCARDED if turn.discarded.is_set() else outcome
        self._tracker.end(outcome)
        if self._played.is_set() and not (turn.discarded.is_set() or self._unanswered_discards):
            self._tracker.finish()  # its speech was lost with a media server, which was reported before
        return outcome

    async def _wait_for_place(self, turn: Turn) -> None:
        """Wait while the engine has no place for an utterance: a call that is admitted should be heard."""
        give_up_at = self._now() + _MAX_WAIT_FOR_PLACE_S
        while self._engine.refusal(Admission.ONGOING) is not None and self._now() < give_up_at:
            if turn.discarded.is_set():
                return
            await _wait_at_most(turn.discarded, _RETRY_S)

    async def _play_stream(self, stream: "SpeechStream", feed: TextFeed, turn: Turn) -> UtteranceOutcome:
        async for chunk in stream:
            if turn.discarded.is_set():
                return UtteranceOutcome.DISCARDED
            if feed.ends_before(chunk):
                return UtteranceOutcome.CUT_SHORT
            if chunk.index == 0:
                number = self._tracker.begin(feed, turn.number, self._ms_since(feed.first_text_at))
            await _wait_at_most(turn.discarded, self._push_chunk(chunk, number, stream) - self._lead_s)
        if turn.discarded.is_set():
            return UtteranceOutcome.DISCARDED  # the source may go on for long; its error is of no interest
        await feed.raise_source_error()
        return UtteranceOutcome.CUT_SHORT if feed.cut_short else UtteranceOutcome.SPOKEN

    def _push_chunk(self, chunk: AudioChunk, utterance: int, stream: "SpeechStream") -> float:
        now = self._now()
        if chunk.index > 0:
            self._metrics.playout_lead.observe(self.media.lead_s(now))
        self._pushes += 1
        self._played.clear()
        self.media.push(chunk, utterance)
        stream.set_deadline(self.media.runs_dry_at(now))
        return self.media.lead_s(now)

    def _ms_since(self, at: float | None) -> float:
        return 0.0 if at is None else 1000 * (self._now() - at)


async def _wait_at_most(event: asyncio.Event, timeout_s: float) -> None:
    if timeout_s <= 0:
        return
    # Not wait_for: Python 3.11's swallows a cancellation that comes with the event.
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()


def _report_failed_recording(
    metrics: Metrics, events: CallEvents, closed: asyncio.Event, error: RecordingFailed
) -> None:
    metrics.recording_failures.inc()
    if not closed.is_set():
        events.emit(RecordingEnded(str(error)))
