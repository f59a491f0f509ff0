"""The trace id of a request: that of a valid ``traceparent``, else a new one."""

import re

import pytest

from vivavoce.gateway.access.access_control import AccessControl, trace_id_of

# Source: the examples and rules of W3C Trace Context, section 3.2.
TRACE_ID, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    "value",
    [f"00-{TRACE_ID}-{PARENT}-01", f"00-{TRACE_ID}-{PARENT}-00", f"cc-{TRACE_ID}-{PARENT}-01-what-follows"],
)
def test_a_valid_header_names_the_trace(value: str) -> None:
    assert trace_id_of({"traceparent": value}) == TRACE_ID
    assert AccessControl.open_to_all().grant({"traceparent": value}).trace_id == TRACE_ID


@pytest.mark.parametrize(
    "value",
    [
        "",
        TRACE_ID,
        f"ff-{TRACE_ID}-{PARENT}-01",
        f"00-{TRACE_ID}-{PARENT}-01-what-follows",
        f"00-{TRACE_ID.upper()}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        f"00-{TRACE_ID}-{PARENT}-01\nadmin logged in",
        f"00-{TRACE_ID}a-{PARENT}-01",
    ],
)
def test_another_header_or_none_gives_a_new_trace(value: str) -> None:
    first, second = (trace_id_of({"traceparent": value}) for _ in range(2))
    assert first != second
    assert TRACE_ID not in (first, second)
    assert re.fullmatch("[0-9a-f]{32}", first)
    access = AccessControl.open_to_all()
    assert access.grant({}).trace_id != access.grant({}).trace_id
