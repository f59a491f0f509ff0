"""The guard of outgoing calls, in virtual time."""

import pytest

from vivavoce.gateway.calls.ways_in.sip.outgoing.cost_guard import CostGuard, DestinationNotAllowed
from vivavoce.tts_engine.errors import Overloaded


def test_only_destinations_of_the_settings_are_called() -> None:
    guard = CostGuard(("+4930", "sip:*@pbx.example.com"), 1, 1)
    for target in ("+4930123", "sip:bob@PBX.example.com", "sip:bob@pbx.example.com;transport=tcp"):
        guard.require_allowed(target)
    for target in ("+49", "+1900555", "sip:+4930@evil.example", "sip:a@pbx.example.com.evil", "4930", ""):
        with pytest.raises(DestinationNotAllowed):
            guard.require_allowed(target)
    with pytest.raises(DestinationNotAllowed, match="none"):
        CostGuard((), 1, 1).require_allowed("+4930")


def test_calls_at_once_and_minutes_of_a_day_are_bounded() -> None:
    now = [0.0]
    guard = CostGuard(("",), 2, 10, now=lambda: now[0])
    guard.begin("a")
    guard.begin("b")
    with pytest.raises(Overloaded, match="max_calls"):
        guard.begin("c")
    now[0] = 300
    guard.end("a", was_answered=True)
    guard.end("b", was_answered=False)  # it only rang
    assert guard.seconds() == 300
    guard.begin("c")
    now[0] = 600
    with pytest.raises(Overloaded, match="minutes"):
        guard.begin("d")  # 300 s are over, and 300 s of a call that is up
    guard.end("c", was_answered=True)
    now[0] = 300 + 86_401
    guard.begin("d")
    assert guard.seconds() == 300
