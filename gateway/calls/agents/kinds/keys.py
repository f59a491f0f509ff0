"""``keys``: a menu that callers answer by keys."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ...call import Call
from ..agent import AgentKind

_MAX_DIGITS = 40  # read back at once; more than any phone or card number has


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


KEYS: Final = AgentKind("keys", lambda file: KeysAgent())
