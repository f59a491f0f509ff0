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
from ..call import Call, OnSpeech, Outcome, Speech
from ..call_events import (
    CallerSpeaking,
    CallEvent,
    SpeechDiscarded,
    SpeechFinished,
    SpeechStarted,
    WordHeard,
)
from ..call_messages import (
    MOST_TEXT,
    MOST_WAITING,
    NOT_SPOKEN,
    BadMessage,
    CommandMessage,
    Message,
    OnSpeechMessage,
    SpeechMessage,
    TextMessage,
    describe,
    describe_error,
    read,
)
from ..text_feed import Command, Delta, Draft, Meter, weight
from ..voice_registry import KeyVoices
from .chat import ChatFailed, ChatSettings, Conversation, answer

logger = logging.getLogger(__name__)

_MOST_TURNS_WAITING = 32
_UTTERANCE_PIECE = 8 * 1024  # characters in one message to the page


class AskMessage(Message):
    """A turn for the language model."""

    type: Literal["ask"]
    text: Annotated[str, Field(min_length=1, max_length=MOST_TEXT)]


class KeyMessage(Message):
    """A key of the page's keypad."""

    type: Literal["dtmf"]
    digit: Annotated[str, Field(pattern=r"^[0-9*#A-D]$")]


PageMessage = TextMessage | CommandMessage | SpeechMessage | OnSpeechMessage | AskMessage | KeyMessage
_PAGE_MESSAGE: TypeAdapter[PageMessage] = TypeAdapter(Annotated[PageMessage, Field(discriminator="type")])


def parse(message: str) -> PageMessage:
    """One JSON message of a page; raises BadMessage."""
    return read(_PAGE_MESSAGE, message)


def describe_voices(voices: KeyVoices) -> list[dict[str, str]]:
    """The voices that a page may choose from."""
    return [
        {"id": voice.id, "name": voice.name, "language": voice.language, "description": voice.description}
        for voice in voices.visible()
    ]


class Page(Protocol):
    """The way to a browser."""

    def tell(self, message: dict[str, object]) -> None:
        """Send a message; must not block."""

    def discard(self) -> None:
        """Drop speech that has not left."""


@dataclass(frozen=True, slots=True)
class SessionPolicy:
    """How a browser is talked to. ``greeting``: said first, "" for nothing; ``chat``: None without one."""

    greeting: str
    speech: Speech
    chat: ChatSettings | None


class Turn(Draft):
    """One utterance of ours while it is written and spoken. ``answers``: it belongs to the conversation."""

    def __init__(self, number: int, *, answers: bool, speech: Speech) -> None:
        super().__init__()
        self.number = number
        self.answers = answers
        self.speech = speech
        self.text = ""
        self.heard_to = 0  # characters
        self.began_at: float | None = None  # monotonic s of its first text
        self.read_at = 0.0  # since when it is this one's turn

    def write(self, delta: Delta, now: float) -> None:
        """Add text or a command."""
        if isinstance(delta, str):
            self.began_at = self.began_at or now
            self.text += delta
        self.push(delta)


class BrowserSession:
    """Says a page's turns one after the other and tells it what is heard of them.

    It watches its call's events, without a queue: telling a page never waits. charge: takes the characters
    that are said for the page, an answer of the language model's among them, and raises as ``Meter`` has it.
    """

    def __init__(
        self,
        call: Call,
        page: Page,
        voices: KeyVoices,
        policy: SessionPolicy,
        charge: Callable[[int], None],
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        call.events.watch(self._on_event)
        self._call = call
        self._page = page
        self._voices = voices
        self._policy = policy
        self._charge = charge
        self._meter = Meter(charge)
        self._now = now
        self._speech = policy.speech
        self._turns = 0
        self._waiting: deque[Turn] = deque()
        self._written: Turn | None = None  # by the page, not yet ended
        self._saying: Turn | None = None  # its text is being read by the call
        self._spoken: dict[int, Turn] = {}  # by number of utterance, until it is over
        self._conversation = Conversation(policy.chat.system_prompt) if policy.chat else None
        self._answers = asyncio.TaskGroup()  # of the language model, one that is cut off among them
        self._answering: asyncio.Task[None] | None = None
        self._cut_told = False  # to the page, of the discard that is under way
        self._come = asyncio.Event()

    async def run(self) -> None:
        """Say what there is to say until the call is over; the caller cancels it then."""
        self._tell_started()
        if self._policy.greeting:
            self._begin_turn(answers=True).write(self._policy.greeting, self._now())
            self._tell_text(self._waiting[-1], self._policy.greeting)
            self._waiting[-1].end()
        async with self._answers:
            while True:
                await self._say_next()

    def do(self, message: PageMessage) -> None:
        """What a page asked for; raises BadMessage."""
        match message:
            case TextMessage(text=text):
                self._write(text)
            case CommandMessage(type="flush"):
                self._write(Command.FLUSH)
            case CommandMessage(type="end"):
                self._end_written()
            case CommandMessage(type="discard"):
                self.discard()
            case CommandMessage():
                self._call.hang_up("the page hung up")
            case SpeechMessage(voice=voice, speed=speed):
                voice = self._voices.resolve(voice)
                self._speech = replace(self._speech, voice=voice, speed=speed)
            case OnSpeechMessage(action=action):
                self._call.on_speech = action
            case AskMessage(text=text):
                self._ask(text)
            case KeyMessage(digit=digit):
                self._call.press(digit)
            case _:
                assert_never(message)

    def discard(self) -> None:
        """Barge-in: nothing more of what is said or waits to be said is heard."""
        self._drop_waiting()
        self._cut_told = False
        self._page.discard()
        self._call.discard()
        if not self._cut_told:
            # Nothing was being heard, and so no event tells of it; the page waits for an answer.
            self._page.tell({"type": "discarded", "utterance": None, "cut_ms": 0.0, "heard": ""})

    def _on_event(self, event: CallEvent) -> None:
        message = describe(event)
        match event:
            case SpeechStarted(utterance):
                message |= self._started(utterance)
            case WordHeard(utterance, word):
                if utterance in self._spoken:
                    self._spoken[utterance].heard_to = word.text_stop
                    self._overhear(utterance)
            case CallerSpeaking() if self._call.on_speech is OnSpeech.DISCARD:
                self._drop_waiting()  # the call itself discards what is heard
            case SpeechFinished(utterance, outcome):
                self._overhear(utterance)
                self._over(utterance, None if outcome == "spoken" else "")
            case SpeechDiscarded(utterance, _, heard):
                self._over(utterance, heard)
                self._spoken.clear()
                self._cut_told = True
                self._page.discard()
        self._page.tell(message)

    def tell_stats(self) -> None:
        """Tell the numbers of the call so far."""
        stats = self._call.playout.stats
        self._page.tell(
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
        self._end_written()
        for turn in self._waiting:
            turn.end()
        self._waiting.clear()
        if self._answering is not None:
            self._answering.cancel()

    def _write(self, delta: Delta) -> None:
        if sum(turn.waiting for turn in self._all_turns()) + weight(delta) > MOST_WAITING:
            raise BadMessage(f"more than {MOST_WAITING} characters are waiting to be spoken")
        if self._written is None:
            self._check_room()
        if not self._meter.takes(delta):
            return
        if self._written is None:
            self._written = self._begin_turn(answers=False)
        self._written.write(delta, self._now())
        if isinstance(delta, str):
            self._tell_text(self._written, delta)

    def _end_written(self) -> None:
        self._meter.end()
        if self._written is not None:
            self._written.end()
            self._written = None

    def _all_turns(self) -> list[Turn]:
        return [*self._waiting, *([self._saying] if self._saying else [])]

    def _begin_turn(self, *, answers: bool) -> Turn:
        self._check_room()
        turn = self._new_turn(answers=answers)
        self._waiting.append(turn)
        self._come.set()
        return turn

    def _check_room(self) -> None:
        if len(self._waiting) >= _MOST_TURNS_WAITING:
            raise BadMessage(f"{_MOST_TURNS_WAITING} utterances are waiting to be spoken")

    def _new_turn(self, *, answers: bool) -> Turn:
        self._turns += 1
        return Turn(self._turns - 1, answers=answers, speech=self._speech)

    async def _say_next(self) -> None:
        while not self._waiting:
            self._come.clear()
            await self._come.wait()
        turn = self._waiting.popleft()
        outcome = await self._call.speak(self._read(turn), speech=turn.speech)
        self._saying = None
        if outcome is Outcome.FAILED:
            self._page.tell({"type": "error", "message": NOT_SPOKEN})

    async def _read(self, turn: Turn) -> AsyncGenerator[Delta, None]:
        self._saying = turn  # only now: before, another program's utterance may have been heard
        turn.read_at = self._now()
        async with aclosing(turn.deltas()) as deltas:
            async for delta in deltas:
                yield delta

    def _started(self, utterance: int) -> dict[str, object]:
        turn = self._saying
        if turn is None:  # somebody else's
            self._spoken[utterance] = turn = self._new_turn(answers=True)
            self._overhear(utterance)
            return {"turn": turn.number}
        self._spoken[utterance] = turn
        waited_s = self._now() - max(turn.began_at or self._now(), turn.read_at)
        return {"turn": turn.number, "after_text_ms": round(1000 * waited_s, 1)}

    def _overhear(self, utterance: int) -> None:
        """Tell the page what somebody else has written since; of our own turns it knows all."""
        turn = self._spoken.get(utterance)
        written = self._call.text_of(utterance)
        if turn is not None and len(written) > len(turn.text):
            self._tell_text(turn, written[len(turn.text) :])
            turn.text = written

    def _over(self, utterance: int, heard: str | None) -> None:
        """The utterance is over; ``heard``: None for all of it, "" for as far as its words were heard."""
        turn = self._spoken.pop(utterance, None)
        if turn is None or not turn.answers or self._conversation is None:
            return
        if heard is None:
            heard = turn.text
        self._conversation.heard(heard or turn.text[: turn.heard_to])

    # The language model

    def _ask(self, text: str) -> None:
        if self._policy.chat is None or self._conversation is None:
            raise BadMessage("ask: no language model is configured here; send text to have it spoken")
        self.discard()
        self._conversation.asked(text)
        turn = self._begin_turn(answers=True)
        answering = self._answer(turn, self._conversation, self._policy.chat)
        self._answering = self._answers.create_task(answering)

    async def _answer(self, turn: Turn, conversation: Conversation, chat: ChatSettings) -> None:
        try:
            async with aclosing(answer(conversation, chat)) as tokens:
                async for token in tokens:
                    self._charge(len(token))
                    turn.write(token, self._now())
                    self._tell_text(turn, token)
        except (ChatFailed, RateLimited, KeyRefused) as error:
            logger.warning("Call %s: %s", self._call.call_id, error)
            self._page.tell(describe_error(error))
        finally:
            turn.end()

    # Telling

    def _tell_started(self) -> None:
        self._page.tell(
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

    def _tell_text(self, turn: Turn, text: str) -> None:
        for start in range(0, len(text), _UTTERANCE_PIECE):
            piece = text[start : start + _UTTERANCE_PIECE]
            self._page.tell({"type": "utterance", "turn": turn.number, "text": piece})
