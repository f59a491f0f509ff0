"""One call: speaks text on a leg, and reports what the caller does.

A call knows no protocol. Packets leave through ``send``; the leg reports keys, audio and the end of the
connection. Chunks are taken from the engine's stream only while less than ``lead_s`` of speech is unplayed:
little is rendered in vain when the caller interrupts. The engine is given each caller's playout deadline.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ...adapters.playback.playout import Playout
from ...tts_engine.chunk import AudioChunk
from ...tts_engine.errors import UnreadableText, VivavoceError
from .events import (
    CallerAudio,
    CallerSilent,
    CallerSpeaking,
    CallEvents,
    HungUp,
    KeyPressed,
    PlayoutReport,
    SpeechDiscarded,
    TextWritten,
)
from .text_feed import TextDelta, TextFeed
from .utterance_tracker import UtteranceTracker

if TYPE_CHECKING:
    from ...adapters.voice_activity import VoiceActivityChange
    from ...tts_engine.engine import Engine
    from ...tts_engine.stream import Stream

logger = logging.getLogger(__name__)

_MAX_WAITING_KEYS = 64  # later ones are dropped
_TICKS_PER_REPORT = 50  # once a second; reading the counters costs more than sending a packet
_MAX_WRITTEN_CHARACTERS = 8 * 1024  # in one TextWritten; a data channel takes 64 KiB in one message


class UtteranceOutcome(Enum):
    """How the rendering of an utterance ended."""

    SPOKEN = "spoken"  # all of it is in the playout or was heard
    DISCARDED = "discarded"  # by barge-in
    CUT_SHORT = "cut short"  # after a sentence, because the call is ending
    UNREADABLE = "unreadable"  # the voice can read no word of it
    FAILED = "failed"  # the error is in the log


@dataclass(frozen=True, slots=True)
class CallSpeechOptions:
    """Voice and speed of an utterance."""

    voice: str | None = None  # id; None: the engine's default voice
    speed: float = 1.0  # factor
    seed: int = 0


class CallerSpeechAction(Enum):
    """What a call does when its caller begins to speak."""

    TELL = "tell"  # emit CallerSpeaking
    DISCARD = "discard"  # emit CallerSpeaking and discard what is playing


class SpeechDetector(Protocol):
    """Detects speech in the caller's audio (``adapters.voice_activity``)."""

    def push(self, pcm: bytes, sample_rate: int) -> "Sequence[VoiceActivityChange]":
        """Take s16le mono audio; return where speech began or ended in it."""


class CallLeg(Protocol):
    """The connection that carries a call, as the clock and the registry see it."""

    @property
    def dropped(self) -> int:
        """Packets that the peer did not take in time."""

    def tick(self, now: float) -> int:
        """Send the packets due at ``now`` (monotonic s); return their number. Must not block."""

    def end(self, reason: str) -> None:
        """Hang up at once; the leg removes itself from the registry."""

    def fail(self, error: Exception) -> None:
        """Log ``error``, which ``tick`` raised, and hang up. Must not raise."""


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """One utterance while it is written, from ``Call.begin_turn`` on."""

    number: int  # in the call, from 0
    discarded: asyncio.Event  # set by the first barge-in after it began, and by the end of the call


class Call:
    """One leg on which the engine speaks. All methods belong to the event loop's thread.

    Utterances are spoken one after another: a ``speak`` during another one waits for it.

    Args:
        send: takes one s16le packet; must not block.
        close: takes a reason and ends the connection; must not block.
        drop_unsent: drops packets that were sent and have not left, called at each barge-in.
        speech: used for utterances that bring no options of their own.
        lead_s: seconds of speech kept ready in the playout.
    """

    def __init__(
        self,
        call_id: str,
        *,
        engine: "Engine",
        playout: Playout,
        send: Callable[[bytes], None],
        close: Callable[[str], None],
        drop_unsent: Callable[[], None] = lambda: None,
        speech: CallSpeechOptions = CallSpeechOptions(),
        lead_s: float = 0.6,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.call_id = call_id
        self.discarded_ms = 0.0
        self.playout = playout
        self.events = CallEvents()
        self.caller_speech_action = CallerSpeechAction.TELL
        self.is_taken_over = False  # whether the caller decides what is spoken; a script then ends
        self._tracker = UtteranceTracker(self.events, playout)
        self._engine = engine
        self._metrics = engine.metrics
        self._send = send
        self._close = close
        self._drop_unsent = drop_unsent
        self._speech = speech
        self._lead_s = lead_s
        self._now = now
        self._turn_count = 0
        self._speak_lock = asyncio.Lock()
        self._stream: Stream | None = None  # of the utterance being spoken
        self._text_feed: TextFeed | None = None  # its text
        self._interrupted = asyncio.Event()  # set, and replaced by a new one, at each barge-in
        self._keys: asyncio.Queue[str] = asyncio.Queue(_MAX_WAITING_KEYS)
        self._speech_detector: SpeechDetector | None = None
        self._caller_silent = asyncio.Event()
        self._caller_silent.set()
        self._ending = False
        self._closed = asyncio.Event()
        self._ticks = 0
        self._late_counted = 0
        self._underruns_counted = 0

    @property
    def sample_rate(self) -> int:
        """Sample rate of the packets sent, Hz."""
        return self.playout.sample_rate

    # Speaking

    def begin_turn(self) -> Turn:
        """Number the next utterance before it is spoken; a barge-in from now on applies to it."""
        self._turn_count += 1
        return Turn(self._turn_count - 1, self._interrupted)

    def announce_text(self, turn: Turn, text: str) -> None:
        """Emit TextWritten for text of ``turn``, in pieces of at most 8 Ki characters."""
        for start in range(0, len(text), _MAX_WRITTEN_CHARACTERS):
            self.events.emit(TextWritten(turn.number, text[start : start + _MAX_WRITTEN_CHARACTERS]))

    async def speak(
        self,
        text: str | AsyncIterable[TextDelta],
        *,
        speech: CallSpeechOptions | None = None,
        turn: Turn | None = None,
    ) -> UtteranceOutcome:
        """Speak ``text``, whole or as it is written; return when its last audio is in the playout.

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
        interrupted = self._interrupted
        while (left_s := self.playout.lead_s(self._now())) > 0 and not interrupted.is_set():
            await _wait(interrupted, left_s)

    def discard(self) -> SpeechDiscarded:
        """Barge-in: drop what is playing and every utterance that waits; return what had been heard."""
        self._interrupt()
        self._interrupted = asyncio.Event()
        self._drop_unsent()
        discarded = self.playout.discard(self._now())
        self.discarded_ms += discarded.cut_ms
        return self._tracker.discard(discarded)

    # The caller

    def take_over(self) -> None:
        """Leave to the caller what is spoken: an agent that speaks unasked says nothing more."""
        self.is_taken_over = True

    def set_speech_detector(self, detector: SpeechDetector) -> None:
        """Detect speech in the caller's audio from now on."""
        self._speech_detector = detector

    def receive_audio(self, pcm: bytes, sample_rate: int) -> None:
        """Take s16le mono audio of the caller. Speech is detected only if something reacts to it."""
        if self._speech_detector is not None and (
            self.events.has_listeners or self.caller_speech_action is CallerSpeechAction.DISCARD
        ):
            self._on_activity(self._speech_detector.push(pcm, sample_rate))
        else:
            self._caller_silent.set()  # an earlier "speaking" would never end
        if self.events.wants_caller_audio:
            self.events.emit(CallerAudio(pcm, sample_rate))

    async def wait_caller_silent(self, timeout_s: float) -> None:
        """Wait until the caller does not speak; return at once if speech is not detected on this call."""
        await _wait(self._caller_silent, timeout_s)

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

    def on_closed(self) -> None:
        """End everything of the call: its leg is gone."""
        self._ending = True
        self._interrupt()
        self._closed.set()
        self._count_faults()
        self.events.emit(HungUp())

    async def wait_closed(self) -> None:
        """Wait until the connection is gone."""
        await self._closed.wait()

    # The clock

    def tick(self, now: float) -> int:
        """Send the packets due at ``now`` (monotonic s); return their number."""
        packets = self.playout.due(now)
        for packet in packets:
            self._send(packet)
        self._tracker.tick(now)
        self._ticks += 1
        if self._ticks % _TICKS_PER_REPORT == 0:
            self._count_faults()
            self._report_playout(now)
        return len(packets)

    def _interrupt(self) -> None:
        self._interrupted.set()
        if self._stream is not None:
            self._stream.cancel()

    def _on_activity(self, changes: "Sequence[VoiceActivityChange]") -> None:
        for change in changes:
            if change.speaking:
                self._caller_silent.clear()
                self.events.emit(CallerSpeaking())
            else:
                self._caller_silent.set()
                self.events.emit(CallerSilent())
            if change.speaking and self.caller_speech_action is CallerSpeechAction.DISCARD:
                self.discard()

    def _count_faults(self) -> None:
        stats = self.playout.stats
        self._metrics.late_packets.inc(stats.late_packets - self._late_counted)
        self._metrics.underruns.inc(stats.underruns - self._underruns_counted)
        self._late_counted, self._underruns_counted = stats.late_packets, stats.underruns

    def _report_playout(self, now: float) -> None:
        if not self.events.has_listeners:
            return
        stats = self.playout.stats
        self.events.emit(
            PlayoutReport(
                lead_ms=round(1000 * self.playout.lead_s(now)),
                packets=stats.packets,
                late_packets=stats.late_packets,
                skipped_packets=stats.skipped_packets,
                underruns=stats.underruns,
            )
        )

    # Rendering

    async def _render(
        self, text: str | AsyncIterable[TextDelta], speech: CallSpeechOptions, turn: Turn | None
    ) -> UtteranceOutcome:
        on_text = None
        if turn is None:
            turn = self.begin_turn()
            on_text = partial(self.announce_text, turn)
        try:
            self._stream = self._engine.stream(voice=speech.voice, speed=speech.speed, seed=speech.seed)
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
            self.playout.finish()
        outcome = UtteranceOutcome.DISCARDED if turn.discarded.is_set() else outcome
        self._tracker.end(outcome.value)
        return outcome

    async def _play_stream(self, stream: "Stream", feed: TextFeed, turn: Turn) -> UtteranceOutcome:
        async for chunk in stream:
            if turn.discarded.is_set():
                return UtteranceOutcome.DISCARDED
            if feed.ends_before(chunk):
                return UtteranceOutcome.CUT_SHORT
            if chunk.index == 0:
                self._tracker.begin(feed, turn.number, self._ms_since(feed.first_text_at))
            await _wait(turn.discarded, self._push_chunk(chunk, stream) - self._lead_s)
        if turn.discarded.is_set():
            return UtteranceOutcome.DISCARDED  # the source may go on for long; its error is of no interest
        await feed.raise_source_error()
        return UtteranceOutcome.CUT_SHORT if feed.cut_short else UtteranceOutcome.SPOKEN

    def _push_chunk(self, chunk: AudioChunk, stream: "Stream") -> float:
        now = self._now()
        if chunk.index > 0:
            self._metrics.playout_lead.observe(self.playout.lead_s(now))
        self.playout.push(chunk)
        stream.set_deadline(self.playout.runs_dry_at(now))
        return self.playout.lead_s(now)

    def _ms_since(self, at: float | None) -> float:
        return 0.0 if at is None else 1000 * (self._now() - at)


def make_speech_detector() -> SpeechDetector:
    """Return a detector for one caller's voice."""
    from ...adapters.voice_activity import VoiceActivityDetector

    return VoiceActivityDetector()


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    if timeout_s <= 0:
        return
    # Not wait_for: Python 3.11's swallows a cancellation that comes with the event.
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
