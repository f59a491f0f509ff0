"""Agents, which drive calls without a program, and the record of a kind of agent.

An agent is one object for all calls, with ``async def run(call)``; the state of one call is local to its run.
When ``run`` returns, the agent has nothing more to say. A phone call then ends after the last utterance; a
browser call stays up, for text that is typed there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ..call import Call


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


@dataclass(frozen=True, slots=True)
class AgentKind:
    """A kind of agent that the setting ``agents`` names: ``name``, or ``name:FILE``."""

    name: str
    make: Callable[[str], Agent]  # of the file's name, "" without one; raises BadRequest
