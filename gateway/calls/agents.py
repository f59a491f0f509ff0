"""Agents, which drive calls without a program: a script, a menu answered by keys, or silence.

An agent is one object for all calls, with ``async def run(call)``; the state of one call is local to its run.
When ``run`` returns, the agent has nothing more to say. A phone call then ends after the last utterance; a
browser call stays up, for text that is typed there.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from ...tts_engine.errors import BadRequest
from .call import Call
from .utterance_tracker import UtteranceOutcome

_TOKEN = re.compile(r"\s*[^\W\d_]{1,6}|\s*\d{1,3}|\s*[^\w\s]|\s*_|\s+")
_MAX_DIGITS = 40  # read back at once; more than any phone or card number has
_MAX_CALLER_SPEECH_S = 10.0  # waited for after an interruption; longer sounds are taken for noise
_RETRY_DELAY_S = 1.0  # after a failure, so that a looping script does not flood an overloaded engine


class Agent(Protocol):
    """Drives calls."""

    async def run(self, call: Call) -> None:
        """Drive one call; the run is cancelled when the call ends."""
        ...


@dataclass(frozen=True, slots=True)
class CallAgents:
    """The agents that answer calls."""

    phone: Agent
    browser: Agent | None  # None: the greeting, and then what is typed
    named: Mapping[str, Agent]  # for calls that are announced


def greetings_of(agents: CallAgents) -> tuple[str, ...]:
    """What the agents say first on every call, where that is known before."""
    greetings = [
        getattr(agent, "greeting", "") for agent in (agents.phone, agents.browser, *agents.named.values())
    ]
    return tuple(dict.fromkeys(filter(None, greetings)))


async def run_agent(call: Call, agent: Agent) -> None:
    """Run an agent on a phone call, and hang up when it has nothing more to say."""
    try:
        await agent.run(call)
        await call.end.finish()
    finally:
        call.end.hang_up("its agent returned")


class SilentAgent:
    """Says nothing and keeps the call up, for a program or a page to speak on."""

    async def run(self, call: Call) -> None:
        """Wait until the call is over."""
        await call.end.wait_closed()


def llm_tokens(text: str) -> list[str]:
    """Split ``text`` like a language model's tokens: words with the space before them, long ones in pieces.

    The tokens joined are ``text``, character for character.
    """
    return _TOKEN.findall(text)


def split_script(script: str) -> list[str]:
    """Return the paragraphs of a script, separated by blank lines; line ends inside one become spaces."""
    return [" ".join(part.split()) for part in re.split(r"\n[^\S\n]*\n", script) if part.strip()]


@dataclass(frozen=True, slots=True)
class ScriptPolicy:
    """Pace of a script."""

    tokens_per_s: float = 40.0  # the speed of a hosted language model of medium size
    pause_s: float = 0.7  # between two utterances; usual between two turns of one speaker


class ScriptAgent:
    """Speaks a text at a language model's pace; after an interruption it goes on with the next utterance.

    It ends when the caller takes the call over, as the page of a browser call does with typed text.
    """

    def __init__(self, script: str, policy: ScriptPolicy) -> None:
        self._utterances = split_script(script)
        self._policy = policy
        self.greeting = self._utterances[0] if self._utterances else ""

    async def run(self, call: Call) -> None:
        """Speak every utterance once, each after the one before has been heard."""
        for number, text in enumerate(self._utterances):
            if number:
                await asyncio.sleep(self._policy.pause_s)
                await call.listening.wait_caller_silent(_MAX_CALLER_SPEECH_S)
            if call.is_taken_over:
                return
            outcome = await call.speech.speak(at_pace(llm_tokens(text), self._policy.tokens_per_s))
            if outcome is UtteranceOutcome.CUT_SHORT:
                return
            if outcome in (UtteranceOutcome.FAILED, UtteranceOutcome.UNREADABLE):
                await asyncio.sleep(_RETRY_DELAY_S)
            await call.speech.wait_played()


class LoopingScriptAgent(ScriptAgent):
    """Repeats a text until the caller hangs up or takes the call over."""

    async def run(self, call: Call) -> None:
        """Speak the script, pause, and repeat."""
        while not call.is_taken_over:
            await super().run(call)
            await asyncio.sleep(self._policy.pause_s)


async def at_pace(
    tokens: list[str], tokens_per_s: float, *, now: Callable[[], float] = time.monotonic
) -> AsyncGenerator[str, None]:
    """Yield tokens on an absolute schedule, the first one at once."""
    start = now()
    for number, token in enumerate(tokens):
        wait_s = start + number / tokens_per_s - now()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        yield token


@dataclass(frozen=True, slots=True)
class KeyReply:
    """The menu's reaction to a key."""

    text: str  # to be spoken; "": nothing
    ends_call: bool = False  # after the text


class KeyMenu:
    """A menu answered by keys. Pure: one key in, one reply out."""

    MENU = (
        "Press 1 for the time, 2 to have digits read back, 0 to hear this again, "
        "star to interrupt me, or pound to hang up."
    )

    GREETING = f"Hello. {MENU}"

    def __init__(self, local_time: Callable[[], datetime]) -> None:
        self._local_time = local_time
        self._typed_digits: list[str] | None = None  # None: in the menu, not in the entry of digits

    def greet(self) -> KeyReply:
        """Return the first announcement."""
        return KeyReply(self.GREETING)

    def reply_to(self, digit: str) -> KeyReply:
        """Return the reply to one key: ``0-9 * # A-D``."""
        if self._typed_digits is None:
            return self._reply_to_menu_key(digit)
        return self._reply_to_entry_key(self._typed_digits, digit)

    def _reply_to_menu_key(self, digit: str) -> KeyReply:
        match digit:
            case "0":
                return KeyReply(self.MENU)
            case "1":
                return KeyReply(f"You pressed 1. It is {self._local_time():%I:%M %p}.".replace(" 0", " "))
            case "2":
                self._typed_digits = []
                return KeyReply("You pressed 2. Type your digits, then pound.")
            case "*":
                return KeyReply("")
            case "#":
                return KeyReply("You pressed pound. Goodbye.", ends_call=True)
            case _:
                return KeyReply(f"You pressed {digit}. {self.MENU}")

    def _reply_to_entry_key(self, typed_digits: list[str], digit: str) -> KeyReply:
        if digit == "*":
            return KeyReply("")
        if digit != "#":
            typed_digits.append(digit)
            return KeyReply("") if len(typed_digits) < _MAX_DIGITS else self._read_back(typed_digits)
        return self._read_back(typed_digits)

    def _read_back(self, typed_digits: list[str]) -> KeyReply:
        self._typed_digits = None
        return KeyReply(f"You typed {', '.join(typed_digits)}." if typed_digits else "You typed nothing.")


class KeysAgent:
    """Speaks the menu and answers keys; a key interrupts what is being spoken."""

    greeting = KeyMenu.GREETING

    def __init__(self, local_time: Callable[[], datetime] = datetime.now) -> None:
        self._local_time = local_time

    async def run(self, call: Call) -> None:
        """Greet, and answer one key after another until one ends the call."""
        menu = KeyMenu(self._local_time)
        reply = KeyReply("") if call.is_taken_over else menu.greet()
        while not reply.ends_call:
            reply = menu.reply_to(await _say_until_key(call, reply.text))
        await call.speech.speak(reply.text)
        await call.end.finish()


async def _say_until_key(call: Call, text: str) -> str:
    async with asyncio.TaskGroup() as tasks:
        if text:
            tasks.create_task(call.speech.speak(text))
        digit = await call.listening.next_key()
        call.speech.discard()
    return digit


def make_agent(choice: str) -> Agent:
    """Return the agent for a setting ``agents``: ``script:FILE``, ``loop:FILE``, ``keys`` or ``none``.

    Raises:
        BadRequest: the script cannot be read or is empty.
    """
    match choice.partition(":"):
        case ("script", _, name):
            return ScriptAgent(_read_script(Path(name)), ScriptPolicy())
        case ("loop", _, name):
            return LoopingScriptAgent(_read_script(Path(name)), ScriptPolicy())
        case ("keys", _, _):
            return KeysAgent()
        case _:
            return SilentAgent()


def _read_script(file: Path) -> str:
    try:
        script = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadRequest(f"agent: cannot read the script {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadRequest(f"agent: the script {file} is not UTF-8 text") from None
    if not script.strip():
        raise BadRequest(f"agent: the script {file} is empty")
    return script


class AnnouncingAgent:
    """Speaks an announcement, and keeps the call up."""

    def __init__(self, announcement: str) -> None:
        self.announced = asyncio.Event()
        self._announcement = announcement

    async def run(self, call: Call) -> None:
        """Speak, and wait until the call is over."""
        if self._announcement:
            await call.speech.speak(self._announcement)
            await call.speech.wait_played()
        self.announced.set()
        await call.end.wait_closed()
