"""Calls that a telephone system announced before they come in: their ids, callers and agents."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID, uuid4

from ...tts_engine.errors import BadRequest, Overloaded
from .agents import Agent
from .caller import Caller

_MAX_EXPECTED: Final = 10_000


class UnknownAgent(BadRequest):
    """No agent of that name is configured."""


@dataclass(frozen=True, slots=True)
class ExpectedCall:
    """A call that is expected."""

    caller: Caller
    agent: Agent | None  # None: the agent of all calls


class ExpectedCalls:
    """Calls that are expected, each for a limited time, 10,000 at most.

    Args:
        agents: that an announcement may name.
        required: whether a call that is not expected is refused.
    """

    def __init__(
        self,
        agents: Mapping[str, Agent] | None = None,
        *,
        required: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.required = required
        self._agents = agents or {}
        self._now = now
        self._expected: dict[UUID, tuple[float, ExpectedCall]] = {}  # with when each expires

    def announce(self, caller: Caller, *, call_id: UUID | None, agent: str | None, expires_s: float) -> UUID:
        """Expect a call for ``expires_s`` seconds; return its id, a new one unless ``call_id`` is given.

        Raises UnknownAgent, and Overloaded if 10,000 calls are expected.
        """
        if agent is not None and agent not in self._agents:
            names = ", ".join(sorted(self._agents)) or "none; the setting agents names them"
            raise UnknownAgent(f"agent: no agent {agent!r} is configured (there are: {names})")
        now = self._now()
        self._remove_expired(now)
        if len(self._expected) >= _MAX_EXPECTED:
            raise Overloaded(
                f"{_MAX_EXPECTED} calls are expected already",
                reason="expected_calls",
                retry_after_s=min(expires_at for expires_at, _ in self._expected.values()) - now,
            )
        call_id = call_id or uuid4()
        expected = ExpectedCall(caller, None if agent is None else self._agents[agent])
        self._expected[call_id] = (now + expires_s, expected)
        return call_id

    def __contains__(self, call_id: UUID) -> bool:
        return call_id in self._expected and self._expected[call_id][0] > self._now()

    def take(self, call_id: UUID) -> ExpectedCall | None:
        """Return the call of that id and expect it no more; None if it was not expected."""
        expires_at, expected = self._expected.pop(call_id, (self._now(), None))
        return expected if expires_at > self._now() else None

    def _remove_expired(self, now: float) -> None:
        for call_id in [call_id for call_id, (expires_at, _) in self._expected.items() if expires_at <= now]:
            del self._expected[call_id]
