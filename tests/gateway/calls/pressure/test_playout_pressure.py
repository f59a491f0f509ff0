"""Refusal of calls while callers hear faults."""

from vivavoce.gateway.calls.pressure.playout_pressure import MIN_PACKETS, WINDOW_S, PlayoutPressure


def counted(*, packets: int, late_packets: int = 0, underruns: int = 0, calls: int = 20) -> PlayoutPressure:
    """Return the pressure at second 5, after reports of ``calls`` calls at second 0."""
    pressure = PlayoutPressure()
    for _ in range(calls):
        pressure.add(0.0, packets=packets, late_packets=late_packets, underruns=underruns)
    return pressure


def test_calls_without_faults_are_no_pressure() -> None:
    assert counted(packets=500).refusal(5.0) is None


def test_underruns_refuse_calls_and_are_named() -> None:
    refusal = counted(packets=500, underruns=1).refusal(5.0)
    assert refusal is not None
    assert (refusal.reason, refusal.retry_after_s) == ("playout", 5.0)
    assert "20 underruns and 0 late packets of 10000" in str(refusal)


def test_an_underrun_for_5000_packets_is_no_pressure() -> None:
    pressure = counted(packets=500)
    for underruns, is_refused in ((2, False), (1, True)):
        pressure.add(0.0, packets=0, late_packets=0, underruns=underruns)
        assert (pressure.refusal(5.0) is not None) is is_refused


def test_late_packets_refuse_calls() -> None:
    assert counted(packets=500, late_packets=10).refusal(5.0) is None
    assert counted(packets=500, late_packets=11).refusal(5.0) is not None


def test_the_faults_of_few_calls_refuse_none() -> None:
    pressure = PlayoutPressure()
    pressure.add(0.0, packets=MIN_PACKETS - 1, late_packets=1_000, underruns=1_000)
    assert pressure.refusal(0.0) is None
    pressure.add(0.0, packets=1, late_packets=0, underruns=0)
    assert pressure.refusal(0.0) is not None


def test_faults_are_forgotten_after_the_window() -> None:
    pressure = counted(packets=500, underruns=1)
    assert pressure.refusal(WINDOW_S) is not None
    for _ in range(20):
        pressure.add(WINDOW_S + 0.1, packets=500, late_packets=0, underruns=0)
    assert pressure.refusal(WINDOW_S + 0.1) is None
