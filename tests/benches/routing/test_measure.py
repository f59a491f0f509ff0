"""The bench of routing: every scenario runs, and the simulated replicas render what arrives."""

import pytest

from benches.routing.measure import compare, scenarios
from benches.routing.simulation import LONG_S, ClusterLoad, by_cost, least_outstanding, simulate


def test_a_scenario_has_two_figures_a_policy_and_a_ratio() -> None:
    figures = list(compare(scenarios(20.0)[0], seeds=1))
    assert len(figures) == 9
    assert figures[-1].at_most == 0.7


@pytest.mark.parametrize("is_in_order", [False, True])
def test_every_stream_is_rendered_whole_at_the_load_asked_for(is_in_order: bool) -> None:
    load = ClusterLoad(replicas=4, seconds=200, is_in_order=is_in_order)
    streams = simulate(load, least_outstanding)
    assert all(abs(stream.left_s) < 1e-6 and stream.first_audio_at for stream in streams)
    speech_s = sum(stream.work.audio_s for stream in streams)
    assert speech_s * load.compute_s_per_audio_s / (4 * load.seconds) == pytest.approx(0.8, rel=0.1)


def test_a_lone_stream_waits_for_its_own_first_chunk_only() -> None:
    load = ClusterLoad(replicas=4, seconds=2 * LONG_S, load=0.001, seed=3)
    stream = simulate(load, by_cost)[0]
    assert stream.first_audio_at == pytest.approx(
        stream.arrived_at + 0.4 * 0.05 + 0.02 * stream.work.reference_s
    )
