"""The kinds of agent. A new one is a file in ``kinds`` with a record, listed here and in ``AgentChoice``."""

from typing import Final

from .agent import Agent
from .kinds.keys import KEYS
from .kinds.script import LOOP, SCRIPT, SILENT

AGENT_KINDS: Final = (SCRIPT, LOOP, KEYS, SILENT)
_BY_NAME: Final = {kind.name: kind for kind in AGENT_KINDS}


def make_agent(choice: str) -> Agent:
    """Return the agent for a setting ``agents``, such as ``script:FILE``, ``keys`` or ``none``.

    Raises:
        BadRequest: the script cannot be read or is empty.
    """
    name, _, file = choice.partition(":")
    return _BY_NAME[name].make(file)
