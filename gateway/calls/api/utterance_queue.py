"""Utterances that one peer writes on a call, spoken one after another.

Not the pacer and not the call's only writer: agents and other peers speak on the same call, whose lock orders
the utterances of all of them.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine
from contextlib import aclosing
from typing import Any

from ....tts_engine.errors import UnreadableText, VivavoceError
from ..call import Call
from ..call_options import CallSpeechOptions
from ..events import SpeechDiscarded
from ..text_feed import CharacterQuota, TextBuffer, TextDelta, waiting_characters_of
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
        self.is_over = False  # whether the call reads no more of its text
        self.is_refused = False  # whether the peer got an error for text that was dropped

    @property
    def queued_characters(self) -> int:
        return 0 if self.turn.discarded.is_set() else self.buffer.queued_characters


class UtteranceQueue:
    """Turns the text messages of one peer into utterances of a call.

    Args:
        speech: options of the utterances; ``speech`` may be replaced, for those that begin later.
        charge: takes the characters to be spoken; raises RateLimited, RequestTooLarge or KeyRefused.
        on_failed: gets the error of an utterance that could not be spoken.
        on_error: gets any other exception, which is a fault of the server.
    """

    def __init__(
        self,
        call: Call,
        speech: CallSpeechOptions,
        *,
        charge: Callable[[int], None],
        on_failed: Callable[[VivavoceError], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self.speech = speech
        self._call = call
        self._charge = charge
        self._quota = CharacterQuota(charge)
        self._on_failed = on_failed
        self._on_error = on_error
        self._open: _WrittenUtterance | None = None  # begun and not ended by the peer
        self._utterances: set[_WrittenUtterance] = set()  # being spoken or waiting for it
        self._tasks: set[asyncio.Task[None]] = set()

    def push(self, delta: TextDelta) -> None:
        """Add to the open utterance, or begin one. Text that is refused is not charged.

        Text of an utterance that failed or was interrupted is dropped. Raises BadCallMessage if too much is
        waiting, and once for an utterance that was interrupted; also what ``charge`` raises.
        """
        if self._open is not None and (self._open.is_over or self._open.turn.discarded.is_set()):
            self._refuse(self._open)
            return
        self._check_room(delta)
        if not self._quota.accept(delta):
            return
        if self._open is None:
            self._open = self._begin()
        self._open.buffer.push(delta)
        if isinstance(delta, str):
            self._call.announce_text(self._open.turn, delta)

    def end(self) -> None:
        """End the open utterance."""
        self._quota.end()
        if self._open is not None:
            self._open.buffer.end()
            self._open = None

    def discard(self) -> asyncio.Future[SpeechDiscarded]:
        """Barge-in, as ``Call.discard``; also forget every utterance of the peer that waits."""
        self.end()
        self._utterances.clear()
        return self._call.discard()

    def say(self, text: str) -> None:
        """Speak ``text`` on behalf of the server, after what is waiting; it is not charged."""
        turn = self._call.begin_turn()
        self._call.announce_text(turn, text)
        self._start(self._speak(text, turn, self.speech))

    def answer(self, tokens: AsyncGenerator[str, None]) -> None:
        """Speak ``tokens`` as they are written, after what is waiting; each is charged.

        The source is closed at a barge-in. An error that it raises goes to ``on_failed``.
        """
        turn = self._call.begin_turn()
        self._start(self._speak(self._charged(tokens, turn), turn, self.speech))

    def wrote(self, turn: int) -> bool:
        """Return whether the peer wrote that turn, as long as it is being spoken or waits for it."""
        return any(utterance.turn.number == turn for utterance in self._utterances)

    async def aclose(self) -> None:
        """Stop speaking, and wait until every task has ended."""
        self.end()
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
        if waiting + waiting_characters_of(delta) > MAX_WAITING_CHARACTERS:
            raise BadCallMessage(f"more than {MAX_WAITING_CHARACTERS} characters are waiting to be spoken")
        if self._open is None and len(self._utterances) >= MAX_WAITING_UTTERANCES:
            raise BadCallMessage(f"{MAX_WAITING_UTTERANCES} utterances are waiting to be spoken")

    def _begin(self) -> _WrittenUtterance:
        utterance = _WrittenUtterance(self._call.begin_turn())
        self._utterances.add(utterance)
        self._start(self._speak_written(utterance, self.speech))
        return utterance

    async def _speak_written(self, utterance: _WrittenUtterance, speech: CallSpeechOptions) -> None:
        try:
            await self._speak(utterance.buffer.deltas(), utterance.turn, speech)
        finally:
            utterance.is_over = True
            self._utterances.discard(utterance)

    async def _speak(
        self, text: str | AsyncIterable[TextDelta], turn: Turn, speech: CallSpeechOptions
    ) -> None:
        outcome = await self._call.speak(text, speech=speech, turn=turn)
        match outcome:
            case UtteranceOutcome.FAILED:
                self._on_failed(UtteranceFailed("This could not be spoken; the server's log says why."))
            case UtteranceOutcome.UNREADABLE:
                self._on_failed(UnreadableText())

    async def _charged(self, tokens: AsyncGenerator[str, None], turn: Turn) -> AsyncGenerator[str, None]:
        try:
            async with aclosing(tokens):
                async for token in tokens:
                    self._charge(len(token))
                    self._call.announce_text(turn, token)
                    yield token
        except VivavoceError as error:  # the tokens before it are spoken
            logger.warning("Call %s: %s", self._call.call_id, error)
            self._on_failed(error)

    def _start(self, speaking: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(speaking)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(error)
