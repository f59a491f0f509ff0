"""Calls that a telephone system announced before they come in: their ids, callers and agents."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID, uuid4

from ...tts_engine.errors import BadRequest, Overloaded
from ..access.access_control import Grant
from ..access.keys import Scope
from ..web.errors import ResourceConflict
from .agents.agent import Agent
from .call_options import Caller

_MAX_EXPECTED: Final = 10_000


class UnknownAgent(BadRequest):
    """No agent of that name is configured."""


class CallExpected(ResourceConflict):
    """Another key expects a call of that id."""


@dataclass(frozen=True, slots=True)
class ExpectedCall:
    """A call that is expected."""

    caller: Caller
    agent: Agent | None  # None: the agent of all calls
    agent_name: str = ""  # in the settings
    grant: Grant | None = None  # of the announcement, which ends with it


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

    def announce(
        self,
        caller: Caller,
        *,
        call_id: UUID | None,
        agent: str | None,
        expires_s: float,
        grant: Grant | None = None,
    ) -> UUID:
        """Expect a call for ``expires_s`` seconds; return its id, a new one unless ``call_id`` is given.

        Raises UnknownAgent, CallExpected if another key expects a call of that id, and Overloaded if 10,000
        calls are expected.
        """
        if agent is not None and agent not in self._agents:
            names = ", ".join(sorted(self._agents)) or "none; the setting agents names them"
            raise UnknownAgent(f"agent: no agent {agent!r} is configured (there are: {names})")
        now = self._now()
        self._remove_expired(now)
        if call_id is not None:
            self._require_same_key(call_id, grant)
        if len(self._expected) >= _MAX_EXPECTED:
            raise Overloaded(
                f"{_MAX_EXPECTED} calls are expected already",
                reason="expected_calls",
                retry_after_s=min(expires_at for expires_at, _ in self._expected.values()) - now,
            )
        call_id = call_id or uuid4()
        expected = ExpectedCall(caller, self._agents[agent] if agent else None, agent or "", grant)
        self._expected[call_id] = (now + expires_s, expected)
        return call_id

    def __contains__(self, call_id: UUID) -> bool:
        return self._find(call_id) is not None

    def take(self, call_id: UUID) -> ExpectedCall | None:
        """Return the call of that id and expect it no more; None if it was not expected."""
        expected = self._find(call_id)
        self._expected.pop(call_id, None)
        return expected

    def _find(self, call_id: UUID) -> ExpectedCall | None:
        expires_at, expected = self._expected.get(call_id, (self._now(), None))
        if expected is None or expires_at <= self._now():
            return None
        return expected if expected.grant is None or expected.grant.is_current else None

    def _require_same_key(self, call_id: UUID, grant: Grant | None) -> None:
        _, expected = self._expected.get(call_id, (0.0, None))
        if expected is None or expected.grant is None or grant is None or grant.allows(Scope.CALLS_ALL):
            return
        if expected.grant.key_id != grant.key_id:
            raise CallExpected(f"a call {call_id} is expected already")

    def _remove_expired(self, now: float) -> None:
        for call_id in [call_id for call_id, (expires_at, _) in self._expected.items() if expires_at <= now]:
            del self._expected[call_id]
