"""The comparison of the ways in: figures against the first one, and ways that cannot be measured."""

import time
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from benches.ways_in.measure import WayIn, compare
from shared.calls.peers.kinds import MAKE_PEER
from shared.calls.peers.wires import ALL_WIRES
from vivavoce.gateway.cli.bench.report import BenchFailed, BenchReport, run_parts

FIRST = WayIn("audiosocket", (20.0, 30.0, 40.0), 0, late_share=0.0005, underruns=0, failed=0, cost_ms=10.0)


def test_the_others_are_compared_with_the_first() -> None:
    second = replace(FIRST, over="rtp", ttfa_ms=(35.0, 41.0, 60.0), cost_ms=12.5, late_share=0.002)
    figures = {figure.name: figure for figure in compare([FIRST, second], "audiosocket")}
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
    twilio = replace(FIRST, over="twilio", late_share=1.0)
    names = [figure.name for figure in compare([FIRST, twilio], "audiosocket")]
    assert "twilio: packets late or never sent" not in names


@pytest.mark.parametrize("silent", ["audiosocket", "websocket"])
def test_a_way_that_is_not_heard_reaches_no_target(silent: str) -> None:
    ways = [FIRST, replace(FIRST, over="websocket")]
    ways = [replace(way, ttfa_ms=(), not_heard=3) if way.over == silent else way for way in ways]
    figures = {figure.name: figure for figure in compare(ways, "audiosocket")}
    assert figures["websocket: TTFA p50 above audiosocket"].reached is False
    assert figures[f"{silent}: utterances not heard, 1 call"].reached is False


def test_nothing_is_compared_with_a_first_way_that_could_not_be_measured() -> None:
    names = [figure.name for figure in compare([replace(FIRST, over="rtp")], "audiosocket")]
    assert "rtp: processor time for a second of a call" in names
    assert not [name for name in names if "against" in name or "above" in name]


def test_a_part_that_cannot_be_measured_is_a_row_and_the_others_are_measured() -> None:
    def refused() -> int:
        raise BenchFailed("the gateway refused 3 of 50 calls for 60 s")

    console = Console(quiet=True)
    results, failures = run_parts(
        [("rtp", lambda: 1), ("twilio", refused), ("websocket", lambda: 2)], console
    )
    assert results == [1, 2]
    assert failures == ("twilio was not measured: the gateway refused 3 of 50 calls for 60 s",)
    assert BenchReport("call", (), failures=failures).has_missed
    printed = StringIO()
    BenchReport("call", (), failures=failures).print_table(Console(file=printed, width=120))
    assert "twilio was not measured" in printed.getvalue() and "FAILED" in printed.getvalue()
    with pytest.raises(BenchFailed, match="twilio was not measured: the gateway refused"):
        run_parts([("twilio", refused)], console)


def test_every_simulated_peer_has_a_wire() -> None:
    assert list(ALL_WIRES) == ["audiosocket", "rtp", *MAKE_PEER]


@pytest.mark.parametrize("over", ALL_WIRES)
def test_phones_may_run_before_the_first_one_is_dialled(over: str) -> None:
    phones = ALL_WIRES[over]("127.0.0.1", 1)
    phones.run(time.monotonic())
    assert phones.open_calls == 0
    phones.close()
