"""The comparison of the ways in: figures against the first one, and phones of every wire."""

import time
from dataclasses import replace

import pytest

from vivavoce.gateway.cli.bench.ways_in.measure import WayIn, compare
from vivavoce.gateway.cli.phones.wires import MAKE_PHONES

FIRST = WayIn("audiosocket", (20.0, 30.0, 40.0), 0, late_share=0.0005, underruns=0, failed=0, cost_ms=10.0)


def test_the_others_are_compared_with_the_first() -> None:
    second = replace(FIRST, over="rtp", ttfa_ms=(35.0, 41.0, 60.0), cost_ms=12.5, late_share=0.002)
    figures = {figure.name: figure for figure in compare([FIRST, second])}
    above, ratio = (
        figures["rtp: TTFA p50 above audiosocket"],
        figures["rtp: processor time against audiosocket"],
    )
    assert (above.value, above.reached) == (11.0, False)
    assert (ratio.value, ratio.reached) == (pytest.approx(1.25), True)
    assert figures["audiosocket: packets late or never sent"].value == pytest.approx(0.05)
    assert figures["rtp: packets late or never sent"].reached is False
    assert not any(name.startswith("audiosocket: TTFA p50 above") for name in figures)


def test_late_packets_are_those_of_ways_that_the_gateway_paces() -> None:
    names = [figure.name for figure in compare([FIRST, replace(FIRST, over="twilio", late_share=1.0)])]
    assert "twilio: packets late or never sent" not in names


def test_a_way_that_is_not_heard_reaches_no_target() -> None:
    silent = replace(FIRST, over="websocket", ttfa_ms=(), not_heard=3)
    figures = {figure.name: figure for figure in compare([FIRST, silent])}
    assert figures["websocket: TTFA p50 above audiosocket"].reached is False
    assert figures["websocket: utterances not heard, 1 call"].reached is False


@pytest.mark.parametrize("over", ["websocket", "twilio", "rtp", "audiosocket"])
def test_phones_may_run_before_the_first_one_is_dialled(over: str) -> None:
    phones = MAKE_PHONES[over]("127.0.0.1", 1)
    phones.run(time.monotonic())
    assert phones.open_calls == 0
    phones.close()
