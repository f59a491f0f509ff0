"""Agents, which drive calls without a program, the record of a kind of agent, and text at an agent's pace.

An agent is one object for all calls, with ``async def run(call)``; the state of one call is local to its run.
When ``run`` returns, the agent has nothing more to say. A phone call then ends after the last utterance; a
browser call stays up, for text that is typed there.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ..call import Call

_TOKEN = re.compile(r"\s*[^\W\d_]{1,6}|\s*\d{1,3}|\s*[^\w\s]|\s*_|\s+")


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


@dataclass(frozen=True, slots=True)
class AgentKind:
    """A kind of agent that the setting ``agents`` names: ``name``, or ``name:FILE``."""

    name: str
    make: Callable[[str], Agent]  # of the file's name, "" without one; raises BadRequest


def llm_tokens(text: str) -> list[str]:
    """Split ``text`` like a language model's tokens: words with the space before them, long ones in pieces.

    The tokens joined are ``text``, character for character.
    """
    return _TOKEN.findall(text)


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
