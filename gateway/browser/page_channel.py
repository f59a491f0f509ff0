"""One call from a browser: what its page asks for, what is said to it, and what it is told.

Text messages of the data channel are those of ``call_messages``, and a few more for the page's sake:

    to us    ask {text}     a turn for the language model, which answers it aloud
             dtmf {digit}   a key was pressed
             "ping..."      no JSON: the page is still there
    from us  utterance {turn, text}   text that belongs to a turn, as it is written, before it is spoken
             stats {...}              once a second

A turn is one utterance, counted from 0 as they are written; ``speech_started`` ties it to the utterance that
it became. One of somebody else on this call, an agent or a program that holds it, is a turn when it begins to
sound. What ``adapters.webrtc`` carries is not known here, nor HTTP.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Protocol, assert_never

from pydantic import Field, TypeAdapter

from ..access.errors import KeyRefused, RateLimited
from ..calls.call import Call, CallerSpeechAction, CallSpeechOptions, UtteranceOutcome
from ..calls.events import (
    CallerSpeaking,
    CallEvent,
    SpeechDiscarded,
    SpeechFinished,
    SpeechStarted,
    WordHeard,
)
from ..calls.messages import (
    MAX_TEXT_CHARACTERS,
    MAX_WAITING_CHARACTERS,
    SPEECH_FAILED_MESSAGE,
    BadCallMessage,
    CallerSpeechActionMessage,
    CallMessage,
    CommandMessage,
    SpeechMessage,
    TextMessage,
    describe_error,
    describe_event,
    validate_message,
)
from ..calls.text_feed import CharacterQuota, TextBuffer, TextCommand, TextDelta, waiting_characters_of
from ..voice_registry import KeyVoices
from .chat import ChatFailed, ChatHistory, ChatSettings, stream_answer

logger = logging.getLogger(__name__)

_MAX_WAITING_TURNS = 32
_MAX_UTTERANCE_CHARACTERS = 8 * 1024  # characters in one message to the page


class AskMessage(CallMessage):
    """A turn for the language model."""

    type: Literal["ask"]
    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARACTERS)]


class KeyMessage(CallMessage):
    """A key of the page's keypad."""

    type: Literal["dtmf"]
    digit: Annotated[str, Field(pattern=r"^[0-9*#A-D]$")]


PageMessage = (
    TextMessage | CommandMessage | SpeechMessage | CallerSpeechActionMessage | AskMessage | KeyMessage
)
_PAGE_MESSAGE: TypeAdapter[PageMessage] = TypeAdapter(Annotated[PageMessage, Field(discriminator="type")])


def parse_page_message(message: str) -> PageMessage:
    """One JSON message of a page; raises BadCallMessage."""
    return validate_message(_PAGE_MESSAGE, message)


def describe_voices(voices: KeyVoices) -> list[dict[str, str]]:
    """The voices that a page may choose from."""
    return [
        {"id": voice.id, "name": voice.name, "language": voice.language, "description": voice.description}
        for voice in voices.usable_voices()
    ]


class PageConnection(Protocol):
    """The way to a browser."""

    def send_message(self, message: dict[str, object]) -> None:
        """Send a message; must not block."""

    def discard(self) -> None:
        """Drop speech that has not left."""


@dataclass(frozen=True, slots=True)
class PageChannelSettings:
    """How a browser is talked to. ``greeting``: said first, "" for nothing; ``chat``: None without one."""

    greeting: str
    speech: CallSpeechOptions
    chat: ChatSettings | None


class SpokenTurn(TextBuffer):
    """One utterance of ours while it is written and spoken. ``answers``: it belongs to the conversation."""

    def __init__(self, number: int, *, in_conversation: bool, speech: CallSpeechOptions) -> None:
        super().__init__()
        self.number = number
        self.in_conversation = in_conversation
        self.speech = speech
        self.text = ""
        self.heard_characters = 0  # characters
        self.first_text_at: float | None = None  # monotonic s of its first text
        self.reading_since = 0.0  # since when it is this one's turn

    def write(self, delta: TextDelta, now: float) -> None:
        """Add text or a command."""
        if isinstance(delta, str):
            self.first_text_at = self.first_text_at or now
            self.text += delta
        self.push(delta)


class PageChannel:
    """Says a page's turns one after the other and tells it what is heard of them.

    It watches its call's events, without a queue: telling a page never waits. charge: takes the characters
    that are said for the page, an answer of the language model's among them, and raises as ``Meter`` has it.
    """

    def __init__(
        self,
        call: Call,
        page: PageConnection,
        voices: KeyVoices,
        policy: PageChannelSettings,
        charge: Callable[[int], None],
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        call.events.add_listener(self._on_event)
        self._call = call
        self._page = page
        self._voices = voices
        self._policy = policy
        self._charge = charge
        self._quota = CharacterQuota(charge)
        self._now = now
        self._speech = policy.speech
        self._turn_count = 0
        self._waiting: deque[SpokenTurn] = deque()
        self._open_turn: SpokenTurn | None = None  # by the page, not yet ended
        self._current_turn: SpokenTurn | None = None  # its text is being read by the call
        self._turns_by_utterance: dict[int, SpokenTurn] = {}  # by number of utterance, until it is over
        self._history = ChatHistory(policy.chat.system_prompt) if policy.chat else None
        self._answer_tasks = asyncio.TaskGroup()  # of the language model, one that is cut off among them
        self._answer_task: asyncio.Task[None] | None = None
        self._discard_reported = False  # to the page, of the discard that is under way
        self._turn_added = asyncio.Event()

    async def run(self) -> None:
        """Say what there is to say until the call is over; the caller cancels it then."""
        self._send_started()
        if self._policy.greeting:
            self._begin_turn(in_conversation=True).write(self._policy.greeting, self._now())
            self._send_text(self._waiting[-1], self._policy.greeting)
            self._waiting[-1].end()
        async with self._answer_tasks:
            while True:
                await self._speak_next()

    def execute(self, message: PageMessage) -> None:
        """What a page asked for; raises BadCallMessage."""
        match message:
            case TextMessage(text=text):
                self._write(text)
            case CommandMessage(type="flush"):
                self._write(TextCommand.FLUSH)
            case CommandMessage(type="end"):
                self._end_open_turn()
            case CommandMessage(type="discard"):
                self.discard()
            case CommandMessage():
                self._call.hang_up("the page hung up")
            case SpeechMessage(voice=voice, speed=speed):
                voice = self._voices.resolve(voice)
                self._speech = replace(self._speech, voice=voice, speed=speed)
            case CallerSpeechActionMessage(action=action):
                self._call.caller_speech_action = action
            case AskMessage(text=text):
                self._ask(text)
            case KeyMessage(digit=digit):
                self._call.press(digit)
            case _:
                assert_never(message)

    def discard(self) -> None:
        """Barge-in: nothing more of what is said or waits to be said is heard."""
        self._drop_waiting()
        self._discard_reported = False
        self._page.discard()
        self._call.discard()
        if not self._discard_reported:
            # Nothing was being heard, and so no event tells of it; the page waits for an answer.
            self._page.send_message({"type": "discarded", "utterance": None, "cut_ms": 0.0, "heard": ""})

    def _on_event(self, event: CallEvent) -> None:
        message = describe_event(event)
        match event:
            case SpeechStarted(utterance):
                message |= self._begin_utterance(utterance)
            case WordHeard(utterance, word):
                if utterance in self._turns_by_utterance:
                    self._turns_by_utterance[utterance].heard_characters = word.text_stop
                    self._send_others_text(utterance)
            case CallerSpeaking() if self._call.caller_speech_action is CallerSpeechAction.DISCARD:
                self._drop_waiting()  # the call itself discards what is heard
            case SpeechFinished(utterance, outcome):
                self._send_others_text(utterance)
                self._finish_turn(utterance, None if outcome == "spoken" else "")
            case SpeechDiscarded(utterance, _, heard):
                self._finish_turn(utterance, heard)
                self._turns_by_utterance.clear()
                self._discard_reported = True
                self._page.discard()
        self._page.send_message(message)

    def send_stats(self) -> None:
        """Tell the numbers of the call so far."""
        stats = self._call.playout.stats
        self._page.send_message(
            {
                "type": "stats",
                "lead_ms": round(1000 * self._call.playout.lead_s(self._now())),
                "packets": stats.packets,
                "late_packets": stats.late_packets,
                "skipped_packets": stats.skipped_packets,
                "underruns": stats.underruns,
            }
        )

    # Turns

    def _drop_waiting(self) -> None:
        self._end_open_turn()
        for turn in self._waiting:
            turn.end()
        self._waiting.clear()
        if self._answer_task is not None:
            self._answer_task.cancel()

    def _write(self, delta: TextDelta) -> None:
        if (
            sum(turn.queued_characters for turn in self._all_turns()) + waiting_characters_of(delta)
            > MAX_WAITING_CHARACTERS
        ):
            raise BadCallMessage(f"more than {MAX_WAITING_CHARACTERS} characters are waiting to be spoken")
        if self._open_turn is None:
            self._check_room()
        if not self._quota.accept(delta):
            return
        if self._open_turn is None:
            self._open_turn = self._begin_turn(in_conversation=False)
        self._open_turn.write(delta, self._now())
        if isinstance(delta, str):
            self._send_text(self._open_turn, delta)

    def _end_open_turn(self) -> None:
        self._quota.end()
        if self._open_turn is not None:
            self._open_turn.end()
            self._open_turn = None

    def _all_turns(self) -> list[SpokenTurn]:
        return [*self._waiting, *([self._current_turn] if self._current_turn else [])]

    def _begin_turn(self, *, in_conversation: bool) -> SpokenTurn:
        self._check_room()
        turn = self._new_turn(in_conversation=in_conversation)
        self._waiting.append(turn)
        self._turn_added.set()
        return turn

    def _check_room(self) -> None:
        if len(self._waiting) >= _MAX_WAITING_TURNS:
            raise BadCallMessage(f"{_MAX_WAITING_TURNS} utterances are waiting to be spoken")

    def _new_turn(self, *, in_conversation: bool) -> SpokenTurn:
        self._turn_count += 1
        return SpokenTurn(self._turn_count - 1, in_conversation=in_conversation, speech=self._speech)

    async def _speak_next(self) -> None:
        while not self._waiting:
            self._turn_added.clear()
            await self._turn_added.wait()
        turn = self._waiting.popleft()
        outcome = await self._call.speak(self._deltas_of(turn), speech=turn.speech)
        self._current_turn = None
        if outcome is UtteranceOutcome.FAILED:
            self._page.send_message({"type": "error", "message": SPEECH_FAILED_MESSAGE})

    async def _deltas_of(self, turn: SpokenTurn) -> AsyncGenerator[TextDelta, None]:
        self._current_turn = turn  # only now: before, another program's utterance may have been heard
        turn.reading_since = self._now()
        async with aclosing(turn.deltas()) as deltas:
            async for delta in deltas:
                yield delta

    def _begin_utterance(self, utterance: int) -> dict[str, object]:
        turn = self._current_turn
        if turn is None:  # somebody else's
            self._turns_by_utterance[utterance] = turn = self._new_turn(in_conversation=True)
            self._send_others_text(utterance)
            return {"turn": turn.number}
        self._turns_by_utterance[utterance] = turn
        waited_s = self._now() - max(turn.first_text_at or self._now(), turn.reading_since)
        return {"turn": turn.number, "after_text_ms": round(1000 * waited_s, 1)}

    def _send_others_text(self, utterance: int) -> None:
        """Tell the page what somebody else has written since; of our own turns it knows all."""
        turn = self._turns_by_utterance.get(utterance)
        full_text = self._call.utterance_text(utterance)
        if turn is not None and len(full_text) > len(turn.text):
            self._send_text(turn, full_text[len(turn.text) :])
            turn.text = full_text

    def _finish_turn(self, utterance: int, heard: str | None) -> None:
        """The utterance is over; ``heard``: None for all of it, "" for as far as its words were heard."""
        turn = self._turns_by_utterance.pop(utterance, None)
        if turn is None or not turn.in_conversation or self._history is None:
            return
        if heard is None:
            heard = turn.text
        self._history.add_heard_answer(heard or turn.text[: turn.heard_characters])

    # The language model

    def _ask(self, text: str) -> None:
        if self._policy.chat is None or self._history is None:
            raise BadCallMessage("ask: no language model is configured here; send text to have it spoken")
        self.discard()
        self._history.add_question(text)
        turn = self._begin_turn(in_conversation=True)
        answering = self._answer(turn, self._history, self._policy.chat)
        self._answer_task = self._answer_tasks.create_task(answering)

    async def _answer(self, turn: SpokenTurn, history: ChatHistory, chat: ChatSettings) -> None:
        try:
            async with aclosing(stream_answer(history, chat)) as tokens:
                async for token in tokens:
                    self._charge(len(token))
                    turn.write(token, self._now())
                    self._send_text(turn, token)
        except (ChatFailed, RateLimited, KeyRefused) as error:
            logger.warning("Call %s: %s", self._call.call_id, error)
            self._page.send_message(describe_error(error))
        finally:
            turn.end()

    # Telling

    def _send_started(self) -> None:
        self._page.send_message(
            {
                "type": "started",
                "call": self._call.call_id,
                "sample_rate": self._call.sample_rate,
                "voices": describe_voices(self._voices),
                "voice": self._voices.resolve(self._speech.voice),
                "speed": self._speech.speed,
                "answers": self._policy.chat is not None,
            }
        )

    def _send_text(self, turn: SpokenTurn, text: str) -> None:
        for start in range(0, len(text), _MAX_UTTERANCE_CHARACTERS):
            piece = text[start : start + _MAX_UTTERANCE_CHARACTERS]
            self._page.send_message({"type": "utterance", "turn": turn.number, "text": piece})
