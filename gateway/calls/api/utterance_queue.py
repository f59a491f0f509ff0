"""Utterances that one peer writes on a call, spoken one after another.

Not the pacer and not the call's only writer: agents and other peers speak on the same call, whose lock orders
the utterances of all of them.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any

from ....adapters.playback.background import Awaited
from ....adapters.ssml.document import BadSsml, SsmlDocument
from ....adapters.ssml.input import SsmlInput
from ....adapters.ssml.markup import SlicedWork
from ....tts_engine.errors import LanguageNotSpoken, UnreadableText, VivavoceError
from ...sliced_inputs import SlicedInputs, run_in_slices
from ..call_options import CallSpeechOptions
from ..call_speech import CallSpeech
from ..events import SpeechDiscarded
from ..sounds.sound_files import PlayedFile
from ..text_feed import CharacterQuota, TextBuffer, TextCommand, TextDelta, waiting_characters_of
from ..utterance_tracker import Turn, UtteranceOutcome
from .messages import BadCallMessage

logger = logging.getLogger(__name__)

MAX_WAITING_CHARACTERS = 256 * 1024  # not yet pushed into a stream, all utterances together
MAX_WAITING_UTTERANCES = 1_000  # the one being spoken included


class UtteranceFailed(VivavoceError):
    """The engine could not speak an utterance."""


class _WrittenUtterance:
    """An utterance of the peer, from its first text until it is in the playout."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.buffer = TextBuffer()
        self.ssml_input = SsmlInput()
        self.is_started = False  # whether any of its text could be spoken
        self.is_over = False  # whether no more of its text is spoken
        self.is_refused = False  # whether the peer got an error for text that was dropped

    @property
    def queued_characters(self) -> int:
        return 0 if self.turn.discarded.is_set() else self.buffer.queued_characters

    def read(self, delta: str | TextCommand) -> SlicedWork[Sequence[TextDelta]]:
        """Return what can be spoken now; raises BadSsml."""
        if isinstance(delta, str):
            return (yield from self.ssml_input.push_in_slices(delta))
        return [*(yield from self.ssml_input.flush_in_slices()), delta]


class UtteranceQueue:
    """Turns the text messages of one peer into utterances of a call.

    A text that begins with ``<speak`` is an SSML document, which is spoken when its end has come.

    Args:
        speech: options of the utterances; ``speech`` may be replaced, for those that begin later.
        charge: takes the characters to be spoken; raises RateLimited, RequestTooLarge or KeyRefused.
        on_failed: gets the error of an utterance that could not be spoken.
        on_error: gets any other exception, which is a fault of the server.
    """

    def __init__(
        self,
        call_speech: CallSpeech,
        speech: CallSpeechOptions,
        *,
        charge: Callable[[int], None],
        on_failed: Callable[[VivavoceError], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self.speech = speech
        self._call_speech = call_speech
        self._charge = charge
        self._quota = CharacterQuota(charge)
        self._on_failed = on_failed
        self._on_error = on_error
        self._inputs = SlicedInputs(on_failed, MAX_WAITING_CHARACTERS)
        self._open: _WrittenUtterance | None = None  # begun and not ended by the peer
        self._utterances: set[_WrittenUtterance] = set()  # being spoken or waiting for it
        self._tasks: set[asyncio.Task[None]] = set()

    def push(self, delta: str | TextCommand) -> None:
        """Add to the open utterance, or begin one. Text for which there is no room is not charged.

        Text of an utterance that failed or was interrupted is dropped. Raises BadCallMessage if too much is
        waiting, and once for an utterance that was interrupted; BadSsml and LanguageNotSpoken, after which
        the rest of the utterance is dropped; also what ``charge`` raises. The faults of long documents go to
        ``on_failed``.
        """
        if self._open is not None and (self._open.is_over or self._open.turn.discarded.is_set()):
            self._refuse(self._open)
            return
        self._check_room(delta)
        if not self._quota.accept(delta):
            return
        if self._open is None:
            self._open = _WrittenUtterance(self._call_speech.begin_turn())
        characters = waiting_characters_of(delta)
        self._inputs.add(self._add(self._open, self._open.read(delta)), characters)

    def end(self) -> None:
        """End the open utterance; raises BadSsml for a document that has no end."""
        utterance = self._close()
        if utterance is not None:
            self._inputs.add(self._end(utterance))

    def play(self, file: PlayedFile) -> None:
        """End the open utterance, and play a sound file after what is waiting.

        Raises BadCallMessage if too much is waiting. A file that cannot be played goes to ``on_failed``.
        """
        if len(self._tasks) >= MAX_WAITING_UTTERANCES:
            raise BadCallMessage(f"{MAX_WAITING_UTTERANCES} utterances are waiting to be spoken")
        self.end()
        self._inputs.add(self._begin_file(file, self._call_speech.begin_turn()))

    async def wait_spoken(self) -> None:
        """End the open utterance, and wait until all that was written so far is in the playout."""
        self.end()
        taken = asyncio.Event()
        self._inputs.add(_set(taken))  # the inputs before it are taken then
        await taken.wait()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def discard(self) -> asyncio.Future[SpeechDiscarded]:
        """Barge-in, as ``CallSpeech.discard``; also forget every utterance of the peer that waits."""
        self._drop_open()
        self._utterances.clear()
        return self._call_speech.discard()

    def say(self, text: str) -> None:
        """Speak ``text`` on behalf of the server, after what is waiting; it is not charged."""
        self._speak_tokens(_whole(text), charge=lambda characters: None)

    def answer(self, tokens: AsyncGenerator[str, None]) -> None:
        """Speak ``tokens`` as they are written, after what is waiting; each is charged.

        The source is closed at a barge-in. An error that it raises goes to ``on_failed``.
        """
        self._speak_tokens(tokens, self._charge)

    def wrote(self, turn: int) -> bool:
        """Return whether the peer wrote that turn, as long as it is being spoken or waits for it."""
        return any(utterance.turn.number == turn for utterance in self._utterances)

    async def aclose(self) -> None:
        """Stop speaking, and wait until every task has ended."""
        self._drop_open()
        self._inputs.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _refuse(self, utterance: _WrittenUtterance) -> None:
        # Text that was on its way when the utterance was cut must not begin another one. One error is enough,
        # and an utterance that failed has been reported already.
        if utterance.turn.discarded.is_set() and not utterance.is_refused:
            utterance.is_refused = True
            raise BadCallMessage(
                "this utterance was interrupted; its text is dropped up to the next end or discard"
            )

    def _check_room(self, delta: TextDelta) -> None:
        waiting = sum(utterance.queued_characters for utterance in self._utterances)
        waiting += self._inputs.waiting_characters
        if waiting + waiting_characters_of(delta) > MAX_WAITING_CHARACTERS:
            raise BadCallMessage(f"more than {MAX_WAITING_CHARACTERS} characters are waiting to be spoken")
        if self._open is None and len(self._utterances) >= MAX_WAITING_UTTERANCES:
            raise BadCallMessage(f"{MAX_WAITING_UTTERANCES} utterances are waiting to be spoken")

    def _close(self) -> _WrittenUtterance | None:
        """Let the next text begin another utterance; return the one that was open."""
        self._quota.end()
        utterance, self._open = self._open, None
        return utterance

    def _drop_open(self) -> None:
        """End the open utterance without the text that is held of it."""
        if (utterance := self._close()) is not None:
            utterance.buffer.end()

    def _end(self, utterance: _WrittenUtterance) -> SlicedWork[None]:
        try:
            yield from self._add(utterance, utterance.ssml_input.flush_in_slices())
        finally:
            utterance.buffer.end()

    def _add(self, utterance: _WrittenUtterance, read: SlicedWork[Sequence[TextDelta]]) -> SlicedWork[None]:
        """Have what was read of an utterance spoken; a fault of a document ends the utterance."""
        if utterance.is_over or utterance.turn.discarded.is_set():
            return
        try:
            deltas = yield from read
            for delta in deltas:
                if isinstance(delta, SsmlDocument):
                    self._call_speech.require_languages(delta, self.speech.voice)
        except (BadSsml, LanguageNotSpoken):
            utterance.is_over = True
            utterance.buffer.end()
            raise
        for delta in deltas:
            if not utterance.is_started:
                utterance.is_started = True
                self._utterances.add(utterance)
                self._start(self._speak_written(utterance, self.speech))
            utterance.buffer.push(delta)
            if isinstance(delta, SsmlDocument):
                self._call_speech.announce_text(utterance.turn, delta.text)

    async def _speak_written(self, utterance: _WrittenUtterance, speech: CallSpeechOptions) -> None:
        try:
            await self._speak(utterance.buffer.deltas(), utterance.turn, speech)
        finally:
            utterance.is_over = True
            self._utterances.discard(utterance)

    async def _speak(
        self, text: str | AsyncIterable[TextDelta], turn: Turn, speech: CallSpeechOptions
    ) -> None:
        outcome = await self._call_speech.speak(text, speech=speech, turn=turn)
        match outcome:
            case UtteranceOutcome.FAILED:
                self._on_failed(UtteranceFailed("This could not be spoken; the server's log says why."))
            case UtteranceOutcome.UNREADABLE:
                self._on_failed(UnreadableText())

    def _begin_file(self, file: PlayedFile, turn: Turn) -> SlicedWork[None]:
        self._start(self._play(file, turn))
        yield from ()

    async def _play(self, file: PlayedFile, turn: Turn) -> None:
        try:
            await self._call_speech.play_file(file, turn)
        except VivavoceError as error:
            self._on_failed(error)

    def _speak_tokens(self, tokens: AsyncGenerator[str, None], charge: Callable[[int], None]) -> None:
        turn = self._call_speech.begin_turn()
        self._start(self._speak_awaited(self._documents(tokens, turn, charge), turn))

    async def _speak_awaited(self, text: AsyncIterable[TextDelta], turn: Turn) -> None:
        with self._call_speech.awaiting(Awaited.PROGRAM):
            await self._speak(text, turn, self.speech)

    async def _documents(
        self, tokens: AsyncGenerator[str, None], turn: Turn, charge: Callable[[int], None]
    ) -> AsyncGenerator[SsmlDocument, None]:
        ssml_input = SsmlInput()
        try:
            async with aclosing(tokens):
                async for token in tokens:
                    charge(len(token))
                    for document in await run_in_slices(ssml_input.push_in_slices(token)):
                        self._call_speech.announce_text(turn, document.text)
                        yield document
            for document in await run_in_slices(ssml_input.flush_in_slices()):
                self._call_speech.announce_text(turn, document.text)
                yield document
        except VivavoceError as error:  # the tokens before it are spoken
            logger.warning("Call %s: %s", self._call_speech.call_id, error)
            self._on_failed(error)

    def _start(self, speaking: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(speaking)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(error)


def _set(event: asyncio.Event) -> SlicedWork[None]:
    event.set()
    yield from ()


async def _whole(text: str) -> AsyncGenerator[str, None]:
    yield text
