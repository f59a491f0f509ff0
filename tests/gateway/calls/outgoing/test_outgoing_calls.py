"""States of calls that the gateway makes, and how long they are kept."""

import pytest

from vivavoce.gateway.calls.call_end import KEPT_S, MAX_KEPT
from vivavoce.gateway.calls.call_options import Caller
from vivavoce.gateway.calls.kits.placed_call import PlacedCall
from vivavoce.gateway.calls.outgoing.outgoing_calls import OutgoingCalls
from vivavoce.gateway.calls.outgoing.states import OutgoingState as State
from vivavoce.gateway.calls.ways_in.ari.originated_calls import sip_of_cause


def outgoing(call_id: str = "1") -> PlacedCall:
    return PlacedCall(call_id, "ari", Caller("100", called="PJSIP/bob"), cancel=lambda: None)


def test_each_state_is_told_once_and_in_order() -> None:
    call, told = outgoing(), list[tuple[State, int | None]]()
    call.listeners.add(lambda call: told.append((call.state, call.sip)))
    for state, sip in (
        (State.RINGING, 180),
        (State.PLACED, None),
        (State.RINGING, 180),
        (State.ANSWERED, 200),
    ):
        call.report(state, sip)
    call.report(State.EARLY_MEDIA, 183)  # too late
    call.report_gone(487)
    call.report_gone(603)
    assert told == [(State.RINGING, 180), (State.ANSWERED, 200), (State.ENDED, None)]


@pytest.mark.parametrize(
    ("cause", "sip", "state"),
    [
        (17, 486, State.BUSY),
        (21, 603, State.DECLINED),
        (19, 480, State.NO_ANSWER),
        (3, 404, State.UNREACHABLE),
        (20, 480, State.NO_ANSWER),
        (34, 503, State.UNREACHABLE),
        (16, None, State.NO_ANSWER),
    ],
)
def test_a_call_that_is_not_answered_has_a_state_and_a_status(
    cause: int, sip: int | None, state: State
) -> None:
    call = outgoing()
    call.report_gone(sip_of_cause(cause))
    assert (call.state, call.sip) == (state, sip)


def test_calls_are_kept_for_a_while_after_their_end() -> None:
    now = 0.0
    calls = OutgoingCalls(now=lambda: now)
    calls.add(ringing := outgoing("ringing"))
    calls.add(over := outgoing("over"))
    over.report_gone(486)
    now = KEPT_S - 1
    assert calls.get("over") is over
    now = KEPT_S
    assert calls.get("over") is None and calls.get("ringing") is ringing


def test_the_oldest_of_too_many_ended_calls_is_forgotten() -> None:
    calls = OutgoingCalls()
    for number in range(MAX_KEPT + 1):
        calls.add(call := outgoing(str(number)))
        call.report_gone(486)
    assert calls.get("0") is None and calls.get("1") is not None
