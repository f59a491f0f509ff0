"""The speech of one call: speaks utterances one after another, and reports what the caller heard of them.

Chunks are taken from the engine's stream only while less than ``lead_s`` of speech is unplayed: little is
rendered in vain when the caller interrupts.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from ...adapters.media.call_media import CallMedia
from ...adapters.playback.background import Awaited
from ...adapters.playback.heard_words import DiscardResult, HeardMark, HeardWord
from ...adapters.ssml.document import SsmlDocument
from ...tts_engine.chunk import AudioChunk, Provenance
from ...tts_engine.errors import UnreadableText, VivavoceError
from ...tts_engine.records.spans import new_span_id
from ...tts_engine.scheduler import Admission
from ...tts_engine.voices.voice_sequence import VoiceSequence
from ..background_tasks import wait_at_most
from .call_options import CallSpeechOptions
from .events import CallEvents, SpeechDiscarded, TextWritten
from .sounds.sound_files import PlayedFile
from .text_feed import TextDelta, TextFeed
from .utterance_tracker import Turn, UtteranceOutcome, UtteranceTracker

if TYPE_CHECKING:
    from ...tts_engine.speech_engine import SpeechEngine, SpeechStream

logger = logging.getLogger(__name__)

_MAX_WRITTEN_CHARACTERS = 8 * 1024  # in one TextWritten; a data channel takes 64 KiB in one message
_MAX_WAIT_FOR_PLACE_S = 2.0  # longer, the caller takes the call for dead
_RETRY_S = 0.05
_NO_PROVENANCE = Provenance(None, None, 0.0, 0.0)
_NOTHING_DISCARDED = SpeechDiscarded(None, 0.0, "")


class CallSpeech:
    """Speaks on one call. Utterances are spoken one after another: a ``speak`` during another one waits.

    Args:
        media: plays the speech.
        closed: set at the end of the call.
        options: used for utterances that bring none of their own.
        lead_s: seconds of speech kept ready in the playout.
    """

    def __init__(
        self,
        call_id: str,
        engine: "SpeechEngine",
        media: CallMedia,
        events: CallEvents,
        closed: asyncio.Event,
        *,
        options: CallSpeechOptions,
        lead_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.discarded_ms = 0.0
        self.call_id = call_id
        self.span_id = new_span_id()  # of the call
        self._engine = engine
        self._media = media
        self._events = events
        self._closed = closed
        self._options = options
        self._lead_s = lead_s
        self._now = now
        self._tracker = UtteranceTracker(events)
        self._turn_count = 0
        self._speak_lock = asyncio.Lock()
        self._stream: VoiceSequence | None = None  # of the utterance being spoken
        self._voice_stays = False  # an unknown voice was named in that utterance, which is logged once
        self._text_feed: TextFeed | None = None  # its text
        self._interrupted = asyncio.Event()  # set, and replaced by a new one, at each barge-in
        # Discards that the media have not answered, and the utterances begun before each.
        self._unanswered_discards: deque[tuple[asyncio.Future[SpeechDiscarded], int]] = deque()
        self._pushes = 0  # chunks given to the media
        self._played = asyncio.Event()  # all of them have been played or discarded
        self._played.set()
        self._ending = False
        self._is_waiting = False  # nobody hears
        self._awaited = [Awaited.CALLER]  # the newest at the end

    @property
    def is_speaking(self) -> bool:
        """Whether speech is being rendered or played."""
        return self._stream is not None or not self._played.is_set()

    def begin_turn(self) -> Turn:
        """Number the next utterance before it is spoken; a barge-in from now on applies to it."""
        self._turn_count += 1
        return Turn(self._turn_count - 1, self._interrupted)

    def announce_text(self, turn: Turn, text: str) -> None:
        """Emit TextWritten for text of ``turn``, in pieces of at most 8 Ki characters."""
        for start in range(0, len(text), _MAX_WRITTEN_CHARACTERS):
            self._events.emit(TextWritten(turn.number, text[start : start + _MAX_WRITTEN_CHARACTERS]))

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
        return await self._take_turn(interrupted, lambda: self._render(text, speech or self._options, turn))

    async def play_file(self, file: PlayedFile, turn: Turn) -> UtteranceOutcome:
        """Play a sound file as an utterance; return when its last audio is in the playout.

        Raises SoundRefused for a file that cannot be played.
        """
        return await self._take_turn(turn.discarded, lambda: self._play_file(file, turn))

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
            self._media.discard()
        return answer

    def set_waiting(self, waits: bool) -> None:
        """Take no more speech from the engine, because nobody hears it, or go on."""
        self._is_waiting = waits

    @contextmanager
    def awaiting(self, awaited: Awaited) -> Iterator[None]:
        """Within the context, fill silence with the sound for that cause."""
        self._awaited.append(awaited)
        self._media.set_awaited(awaited)
        try:
            yield
        finally:
            self._awaited.remove(awaited)
            self._media.set_awaited(self._awaited[-1])

    @asynccontextmanager
    async def silence(self) -> AsyncIterator[None]:
        """Let nothing be spoken in the context; what is being spoken is heard before."""
        async with self._speak_lock:
            await self.wait_played()
            yield

    async def play_tones(self, pcm: bytes) -> None:
        """Play tones that are no utterance, within ``silence``, to their end; s16le at 24 kHz."""
        samples = len(pcm) // 2
        chunk = AudioChunk(pcm, 0, (0, samples), (0, 0), (), _NO_PROVENANCE, final=True)
        self._push(chunk, self._tracker.begun)
        self._media.finish()
        await self.wait_played()

    async def finish(self) -> None:
        """End with the sentence being spoken, and wait until it is heard; later utterances are not begun."""
        self._ending = True
        if self._text_feed is not None:
            self._text_feed.end_after_sentence()
        async with self._speak_lock:
            await self.wait_played()

    def close(self) -> None:
        """Discard everything: the call is over."""
        self._ending = True
        self._interrupt_all()
        self._interrupted.set()  # also for turns that begin later
        while self._unanswered_discards:
            self._answer_discard(_NOTHING_DISCARDED)

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

    async def _take_turn(
        self, interrupted: asyncio.Event, begin: Callable[[], Awaitable[UtteranceOutcome]]
    ) -> UtteranceOutcome:
        async with self._speak_lock:
            if interrupted.is_set():
                return UtteranceOutcome.DISCARDED
            if not self._ending:
                return await begin()
        # An agent that speaks in a loop must not spin while the call ends.
        await self._closed.wait()
        return UtteranceOutcome.CUT_SHORT

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
            request = speech.stream_request(self._media.sample_rate, self.call_id, self.span_id)
            self._stream = VoiceSequence.open(self._engine, request, Admission.OVERDUE)
            self._voice_stays = False
            set_voice = partial(self._set_voice, self._stream, speech)
            async with (
                self._stream as stream,
                TextFeed(stream, text, on_text, self._now, set_voice) as self._text_feed,
            ):
                outcome = await self._play_stream(stream, self._text_feed, turn)
        except VivavoceError as error:
            logger.warning("Call %s: an utterance failed: %s", self.call_id, error)
            unreadable = isinstance(error, UnreadableText)
            outcome = UtteranceOutcome.UNREADABLE if unreadable else UtteranceOutcome.FAILED
        finally:
            self._stream = self._text_feed = None
            self._media.finish()
        return self._end_utterance(outcome, turn)

    def _set_voice(self, stream: VoiceSequence, speech: CallSpeechOptions, name: str | None) -> None:
        try:
            stream.set_voice(None if name is None else speech.resolve_voice(name))
        except VivavoceError as error:
            if not self._voice_stays:
                logger.warning("Call %s: the voice stays: %s", self.call_id, error)
            self._voice_stays = True

    def _end_utterance(self, outcome: UtteranceOutcome, turn: Turn) -> UtteranceOutcome:
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
            await wait_at_most(turn.discarded, _RETRY_S)

    async def _play_stream(self, stream: "SpeechStream", feed: TextFeed, turn: Turn) -> UtteranceOutcome:
        async for chunk in stream:
            await self._wait_while_unheard(turn)
            if turn.discarded.is_set():
                return UtteranceOutcome.DISCARDED
            if feed.ends_before(chunk):
                return UtteranceOutcome.CUT_SHORT
            if chunk.index == 0:
                number = self._tracker.begin(feed, turn.number, self._ms_since(feed.first_text_at))
            await wait_at_most(turn.discarded, self._push_chunk(chunk, number, stream) - self._lead_s)
        if turn.discarded.is_set():
            return UtteranceOutcome.DISCARDED  # the source may go on for long; its error is of no interest
        await feed.raise_source_error()
        return UtteranceOutcome.CUT_SHORT if feed.cut_short else UtteranceOutcome.SPOKEN

    async def _play_file(self, file: PlayedFile, turn: Turn) -> UtteranceOutcome:
        outcome = UtteranceOutcome.FAILED
        try:
            outcome = await self._play_chunks(file, turn)
        finally:
            self._media.finish()
            outcome = self._end_utterance(outcome, turn)
        return outcome

    async def _play_chunks(self, file: PlayedFile, turn: Turn) -> UtteranceOutcome:
        for chunk in await file.chunks():
            await self._wait_while_unheard(turn)
            if turn.discarded.is_set():
                return UtteranceOutcome.DISCARDED
            if self._ending:
                return UtteranceOutcome.CUT_SHORT
            if chunk.index == 0:
                number = self._tracker.begin(file, turn.number, 0.0)
            self._push(chunk, number)
            await wait_at_most(turn.discarded, self._media.lead_s(self._now()) - self._lead_s)
        return UtteranceOutcome.SPOKEN

    async def _wait_while_unheard(self, turn: Turn) -> None:
        while self._is_waiting and not turn.discarded.is_set():
            await wait_at_most(turn.discarded, _RETRY_S)

    def _push(self, chunk: AudioChunk, utterance: int) -> None:
        self._pushes += 1
        self._played.clear()
        self._media.push(chunk, utterance)

    def _push_chunk(self, chunk: AudioChunk, utterance: int, stream: "SpeechStream") -> float:
        now = self._now()
        if chunk.index > 0:
            self._engine.metrics.playout_lead.observe(self._media.lead_s(now))
        self._push(chunk, utterance)
        stream.set_deadline(self._media.runs_dry_at(now))
        return self._media.lead_s(now)

    def _ms_since(self, at: float | None) -> float:
        return 0.0 if at is None else 1000 * (self._now() - at)
