"""Refusal of calls while callers hear faults."""

from vivavoce.gateway.calls.pressure.playout_pressure import MIN_PACKETS, WINDOW_S, PlayoutPressure


def counted(*, packets: int, late_packets: int = 0, underruns: int = 0, calls: int = 20) -> PlayoutPressure:
    """Return the pressure at second 5, after one report of each of ``calls`` calls in seconds 0 to 3."""
    pressure = PlayoutPressure()
    for call in range(calls):
        pressure.add(call * 4 / calls, packets=packets, late_packets=late_packets, underruns=underruns)
    return pressure


def test_the_faults_of_one_moment_refuse_no_call() -> None:
    """Reports come once a second, so those of one moment fall into two seconds."""
    pressure = counted(packets=500)
    pressure.add(4.0, packets=0, late_packets=300, underruns=10)
    pressure.add(5.0, packets=0, late_packets=300, underruns=10)
    assert pressure.refusal(5.0) is None
    pressure.add(6.0, packets=0, late_packets=1, underruns=1)
    assert pressure.refusal(6.0) is not None


def test_calls_without_faults_are_no_pressure() -> None:
    assert counted(packets=500).refusal(5.0) is None


def test_underruns_refuse_calls_and_are_named() -> None:
    refusal = counted(packets=500, underruns=1).refusal(5.0)
    assert refusal is not None
    assert (refusal.reason, refusal.retry_after_s) == ("playout", 5.0)
    assert "20 underruns and 0 late packets of 10000" in str(refusal)


def test_an_underrun_for_5000_packets_is_no_pressure() -> None:
    pressure = counted(packets=1_000)
    for second, is_refused in ((3.0, False), (4.0, False), (5.0, False), (5.0, False), (5.0, True)):
        pressure.add(second, packets=0, late_packets=0, underruns=1)
        assert (pressure.refusal(5.0) is not None) is is_refused


def test_late_packets_refuse_calls() -> None:
    assert counted(packets=500, late_packets=10).refusal(5.0) is None
    assert counted(packets=500, late_packets=11).refusal(5.0) is not None


def test_the_faults_of_few_calls_refuse_none() -> None:
    pressure = PlayoutPressure()
    pressure.add(0.0, packets=MIN_PACKETS - 1, late_packets=1_000, underruns=1_000)
    for second in (1.0, 2.0):
        pressure.add(second, packets=0, late_packets=1_000, underruns=1_000)
    assert pressure.refusal(2.0) is None
    pressure.add(2.0, packets=1, late_packets=0, underruns=0)
    assert pressure.refusal(2.0) is not None


def test_faults_are_forgotten_after_the_window() -> None:
    pressure = counted(packets=500, underruns=1)
    assert pressure.refusal(WINDOW_S) is not None
    for _ in range(20):
        pressure.add(WINDOW_S + 4.0, packets=500, late_packets=0, underruns=0)
    assert pressure.refusal(WINDOW_S + 4.0) is None
