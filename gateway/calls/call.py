"""One call: what is said on a leg, and what its caller does with it.

It knows no protocol: packets leave through ``send``, and whoever owns the socket tells it of keys and of the
end. A stream is read only as far as the leg shall hold, so that little is rendered for nothing when the
caller interrupts, and the engine is told how long each listener still has to listen.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from ...adapters.playback.playout import Playout
from ...tts_engine.chunk import AudioChunk, Word
from ...tts_engine.errors import VivavoceError
from .events import CallerAudio, CallerSilent, CallerSpeaking, CallEvents, HungUp, KeyPressed
from .text_feed import TextDelta, TextFeed
from .utterance_tracker import UtteranceTracker

if TYPE_CHECKING:
    from ...adapters.voice_activity import VoiceActivityChange
    from ...tts_engine.engine import Engine
    from ...tts_engine.stream import Stream

logger = logging.getLogger(__name__)

_MAX_WAITING_KEYS = 64  # more than anybody types ahead; later ones are dropped
_TICKS_PER_COUNT = (
    50  # a second: reading the playout's numbers at every packet would cost more than sending it
)


class UtteranceOutcome(Enum):
    """How an utterance went."""

    SPOKEN = "spoken"  # all of it is with the listener or on its way
    DISCARDED = "discarded"  # by barge-in
    CUT_SHORT = "cut short"  # after its sentence, because the call is ending
    FAILED = "failed"  # the reason is in the log


@dataclass(frozen=True, slots=True)
class CallSpeechOptions:
    """How an utterance is said: voice id (None: the first one), speed factor, seed."""

    voice: str | None = None
    speed: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class BargeInResult:
    """What an interruption cut: ms of speech dropped, and the words and the text that had been heard."""

    cut_ms: float
    words: tuple[Word, ...]
    heard: str


class CallerSpeechAction(Enum):
    """What a call does when its caller begins to speak."""

    TELL = "tell"  # who follows the call
    DISCARD = "discard"  # what is playing, and tell


class SpeechDetector(Protocol):
    """Tells when somebody speaks (``adapters.voice_activity``)."""

    def push(self, pcm: bytes, sample_rate: int) -> "Sequence[VoiceActivityChange]":
        """Take s16le mono."""


class Call:
    """One leg on which the engine speaks. All methods belong to the event loop's thread.

    ``send(packet)`` takes one s16le packet, ``close(reason)`` ends the connection; neither blocks.
    Utterances are said one after the other: a ``speak`` while another one runs waits for it.
    """

    def __init__(
        self,
        call_id: str,
        *,
        engine: "Engine",
        playout: Playout,
        send: Callable[[bytes], None],
        close: Callable[[str], None],
        speech: CallSpeechOptions = CallSpeechOptions(),
        lead_s: float = 0.6,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.call_id = call_id
        self.discarded_ms = 0.0
        self.playout = playout
        self.events = CallEvents()
        self._tracker = UtteranceTracker(self.events, playout)
        self._engine = engine
        self._metrics = engine.metrics
        self._send = send
        self._close = close
        self._speech = speech
        self._lead_s = lead_s
        self._now = now
        self._speak_lock = asyncio.Lock()
        self._stream: Stream | None = None  # of the utterance being said
        self._text_feed: TextFeed | None = None  # its text
        self._interrupted = asyncio.Event()  # set, and replaced by a new one, at each barge-in
        self._keys: asyncio.Queue[str] = asyncio.Queue(_MAX_WAITING_KEYS)
        self._speech_detector: SpeechDetector | None = None
        self._caller_silent = asyncio.Event()
        self._caller_silent.set()
        self.caller_speech_action = CallerSpeechAction.TELL
        self._ending = False
        self._closed = asyncio.Event()
        self._ticks = 0
        self._late_counted = 0
        self._underruns_counted = 0

    @property
    def sample_rate(self) -> int:
        """Of the packets sent, Hz."""
        return self.playout.sample_rate

    async def speak(
        self, text: str | AsyncIterable[TextDelta], *, speech: CallSpeechOptions | None = None
    ) -> UtteranceOutcome:
        """Say ``text``, whole or as it is written; returns when its last audio is in the playout.

        An error of the engine is logged with the call's id and ends this utterance only. What the source of
        the text raises comes out of here, after what it had written before is with the playout.
        """
        interrupted = self._interrupted
        async with self._speak_lock:
            if interrupted.is_set():
                return UtteranceOutcome.DISCARDED
            if not self._ending:
                return await self._render(text, speech or self._speech, interrupted)
        # Who speaks in a loop must not spin while the call comes to its end.
        await self.wait_closed()
        return UtteranceOutcome.CUT_SHORT

    async def wait_played(self) -> None:
        """Wait until the listener has heard what is in the playout, or until it is discarded."""
        interrupted = self._interrupted
        while (left_s := self.playout.lead_s(self._now())) > 0 and not interrupted.is_set():
            await _wait(interrupted, left_s)

    def discard(self) -> BargeInResult:
        """Barge-in: the stream ends and nothing of it is heard any more; answers what was heard."""
        self._interrupt()
        self._interrupted = asyncio.Event()
        discarded = self.playout.discard(self._now())
        self.discarded_ms += discarded.cut_ms
        heard = self._tracker.discard(discarded)
        return BargeInResult(discarded.cut_ms, () if heard is None else discarded.words, heard or "")

    def receive_audio(self, pcm: bytes, sample_rate: int) -> None:
        """The caller's audio: s16le mono. Dropped where nobody listens."""
        if self._speech_detector is not None and (
            self.events.has_subscribers or self.caller_speech_action is CallerSpeechAction.DISCARD
        ):
            self._on_activity(self._speech_detector.push(pcm, sample_rate))
        else:
            self._caller_silent.set()  # for all that anybody knows
        if self.events.wants_caller_audio:
            self.events.emit(CallerAudio(pcm, sample_rate))

    def set_speech_detector(self, detector: SpeechDetector) -> None:
        """Judge the caller's audio by ``ear`` from now on, as long as anybody wants to know."""
        self._speech_detector = detector

    async def wait_caller_silent(self, timeout_s: float) -> None:
        """Wait until the caller does not speak, as far as anybody listens."""
        await _wait(self._caller_silent, timeout_s)

    def utterance_text(self, utterance: int) -> str:
        """What has been written of an utterance that is not over, whoever writes it; "" of any other."""
        return self._tracker.utterance_text(utterance)

    def press(self, digit: str) -> None:
        """The caller pressed a key."""
        self.events.emit(KeyPressed(digit))
        try:
            self._keys.put_nowait(digit)
        except asyncio.QueueFull:
            logger.debug("Call %s: key dropped, %d are waiting", self.call_id, _MAX_WAITING_KEYS)

    async def next_key(self) -> str:
        """The next key that the caller pressed: one of ``0-9 * # A-D``."""
        return await self._keys.get()

    async def finish(self) -> None:
        """End the call after the sentence that is being said; nothing new is begun."""
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
        """The connection is gone: whatever is being said ends, and nothing more is said."""
        self._ending = True
        self._interrupt()
        self._closed.set()
        self._count_faults()
        self.events.emit(HungUp())

    async def wait_closed(self) -> None:
        """Wait until the connection is gone."""
        await self._closed.wait()

    def tick(self, now: float) -> int:
        """Send the packets due at ``now`` (monotonic s); answers how many."""
        packets = self.playout.due(now)
        for packet in packets:
            self._send(packet)
        self._tracker.tick(now)
        self._ticks += 1
        if self._ticks % _TICKS_PER_COUNT == 0:
            self._count_faults()
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

    async def _render(
        self, text: str | AsyncIterable[TextDelta], speech: CallSpeechOptions, interrupted: asyncio.Event
    ) -> UtteranceOutcome:
        try:
            self._stream = self._engine.stream(voice=speech.voice, speed=speech.speed, seed=speech.seed)
            async with self._stream as stream, TextFeed(stream, text) as self._text_feed:
                outcome = await self._play_stream(stream, self._text_feed, interrupted)
        except VivavoceError as error:
            logger.warning("Call %s: an utterance failed: %s", self.call_id, error)
            outcome = UtteranceOutcome.FAILED
        finally:
            self._stream = self._text_feed = None
            self.playout.finish()
        outcome = UtteranceOutcome.DISCARDED if interrupted.is_set() else outcome
        self._tracker.end(outcome.value)
        return outcome

    async def _play_stream(
        self, stream: "Stream", feed: TextFeed, interrupted: asyncio.Event
    ) -> UtteranceOutcome:
        async for chunk in stream:
            if interrupted.is_set():
                return UtteranceOutcome.DISCARDED
            if feed.ends_before(chunk):
                return UtteranceOutcome.CUT_SHORT
            if chunk.index == 0:
                self._tracker.begin(feed)
            await _wait(interrupted, self._push_chunk(chunk, stream) - self._lead_s)
        if interrupted.is_set():
            return UtteranceOutcome.DISCARDED  # whoever writes the text may not be done with it for long
        await feed.raise_source_error()
        return UtteranceOutcome.CUT_SHORT if feed.cut_short else UtteranceOutcome.SPOKEN

    def _push_chunk(self, chunk: AudioChunk, stream: "Stream") -> float:
        now = self._now()
        if chunk.index > 0:
            self._metrics.playout_lead.observe(self.playout.lead_s(now))
        self.playout.push(chunk)
        stream.set_deadline(self.playout.runs_dry_at(now))
        return self.playout.lead_s(now)


def make_speech_detector() -> SpeechDetector:
    """A detector for one caller's voice."""
    from ...adapters.voice_activity import VoiceActivityDetector

    return VoiceActivityDetector()


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    if timeout_s <= 0:
        return
    # Not wait_for: Python 3.11's swallows a cancellation that comes with the event.
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
