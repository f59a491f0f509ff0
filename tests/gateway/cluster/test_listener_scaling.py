"""Ray Serve's call of the autoscaling policy, and the statistics that it reads."""

from types import SimpleNamespace
from typing import Any

import pytest

from vivavoce.gateway.cluster.replicas.listener_stats import ListenerStats
from vivavoce.tts_engine.errors import Overloaded
from vivavoce.tts_engine.metrics import Metrics

pytest.importorskip("ray", reason="the extra ray is not installed")

from vivavoce.gateway.cluster.ray.autoscaling import ListenerScaling


def context(replicas: int, now: float, state: dict[str, Any] | None = None, **metrics: float) -> Any:
    """As Ray Serve gives it, with the same statistics for each replica."""
    return SimpleNamespace(
        capacity_adjusted_min_replicas=1,
        capacity_adjusted_max_replicas=3,
        target_num_replicas=replicas,
        running_replicas=[f"replica-{number}" for number in range(replicas)],
        policy_state=state or {},
        aggregated_metrics={
            name: {f"replica-{number}": value for number in range(replicas)}
            for name, value in metrics.items()
        },
        current_time=now,
    )


def test_late_first_audio_and_short_leads_add_replicas_and_idle_ones_leave_after_the_delay() -> None:
    scaling = ListenerScaling(scale_in_after_s=60, max_first_audio_p95_s=0.3)
    assert scaling(context(1, 0.0, open_streams=4, load=0.2))[0] == 1
    assert scaling(context(1, 0.0, open_streams=4, load=0.2, first_audio_p95_s=0.6))[0] == 2
    assert scaling(context(1, 0.0, open_streams=4, load=0.2, short_lead_share=0.5))[0] == 2
    assert scaling(context(1, 0.0, open_streams=40, load=5.0))[0] == 3  # at most
    count, state = scaling(context(3, 10.0, open_streams=4, load=0.1))
    assert count == 3
    assert scaling(context(3, 69.0, state, open_streams=4, load=0.1))[0] == 3
    assert scaling(context(3, 71.0, state, open_streams=4, load=0.1))[0] == 2


def test_a_deployment_without_statistics_stays_as_it_is() -> None:
    assert ListenerScaling()(context(1, 0.0))[0] == 1


def test_a_limit_with_another_name_is_refused() -> None:
    with pytest.raises(TypeError, match="latency"):
        ListenerScaling(latency=1.0)


def test_first_audio_counts_the_streams_since_the_last_call() -> None:
    engine = SimpleNamespace(
        metrics=Metrics(), active_streams=3, max_streams=8, compute_s_per_audio_s=0.1, refusal=lambda: None
    )
    stats = ListenerStats(engine)  # type: ignore[arg-type]
    assert stats.take([]) == pytest.approx(
        {
            "open_streams": 3.0,
            "load": 0.3,
            "occupied": 3 / 8,
            "first_audio_p95_s": 0.0,
            "short_lead_share": 0.0,
            "refused_share": 0.0,
        }
    )
    for seconds in [0.015] * 18 + [0.3, 0.3]:
        engine.metrics.ttfa.observe(seconds)
    taken = stats.take([0.05, 0.5, 1.0, -1.0])
    assert taken["first_audio_p95_s"] == 0.35  # the limit of its bucket
    assert taken["short_lead_share"] == 0.5
    engine.metrics.ttfa.observe(99.0)
    assert stats.take([])["first_audio_p95_s"] == 2.0  # the last limit


def test_replicas_are_added_when_every_one_is_full() -> None:
    full = Overloaded("8 streams are open", reason="streams", retry_after_s=1.0)
    engine = SimpleNamespace(
        metrics=Metrics(), active_streams=8, max_streams=8, compute_s_per_audio_s=0.0, refusal=lambda: full
    )
    stats = ListenerStats(engine)  # type: ignore[arg-type]
    assert stats.take([])["refused_share"] == 1.0
    engine.active_streams = 0  # what is missing is not a replica
    assert stats.take([])["refused_share"] == 0.0
    one_full = context(2, 0.0, open_streams=4, load=0.2)
    one_full.aggregated_metrics["refused_share"] = {"replica-0": 1.0, "replica-1": 0.0}
    assert ListenerScaling()(one_full)[0] == 2
    assert ListenerScaling()(context(1, 0.0, open_streams=8, load=0.2, refused_share=1.0))[0] == 2


def test_replicas_are_added_before_every_place_is_taken() -> None:
    assert ListenerScaling()(context(1, 0.0, open_streams=5, load=0.2, occupied=5 / 8))[0] == 1
    assert ListenerScaling()(context(1, 0.0, open_streams=6, load=0.2, occupied=6 / 8))[0] == 2
