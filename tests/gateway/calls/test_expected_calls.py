"""The table of expected calls, without sockets; ``api/test_expected_calls.py`` has the requests."""

import pytest

from vivavoce.gateway.calls import expected_calls
from vivavoce.gateway.calls.call_options import UNKNOWN_CALLER
from vivavoce.gateway.calls.expected_calls import ExpectedCalls
from vivavoce.tts_engine.errors import Overloaded


def test_a_full_table_says_when_its_next_call_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected_calls, "_MAX_EXPECTED", 2)
    now = 100.0
    expected = ExpectedCalls(now=lambda: now)
    for expires_s in (60.0, 20.0):
        expected.announce(UNKNOWN_CALLER, call_id=None, agent=None, expires_s=expires_s)
    now = 105.0
    with pytest.raises(Overloaded) as refused:
        expected.announce(UNKNOWN_CALLER, call_id=None, agent=None, expires_s=3600.0)
    assert refused.value.retry_after_s == 15.0
    now = 120.0
    expected.announce(UNKNOWN_CALLER, call_id=None, agent=None, expires_s=3600.0)
