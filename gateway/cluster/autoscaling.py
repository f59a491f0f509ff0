"""Decides how many replicas a stage should have, by what listeners notice and by what its streams cost.

Listeners notice late first audio, speech that is about to run dry, and refusals. Any of these beyond its
limit adds replicas, in proportion to the excess; so do a load and taken places beyond their limits. The
limits are below what hurts, because a replica takes seconds to start. The length of a queue is no input: a
queue whose streams are all in time needs no replica.

One replica at a time is removed, after the rest would have been enough for ``scale_in_after_s``. It is
drained: it takes no new stream, and ends when its last stream has ended. A stage with ``min_replicas`` 0
loses its last replica after ``idle_after_s`` without a stream, and gets one as soon as a stream is asked for.

Pure functions: no clock, no I/O; ``now`` is monotonic seconds.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from .routing import ReplicaState


@dataclass(frozen=True, slots=True)
class AutoscalingPolicy:
    """Limits of one stage."""

    min_replicas: int = 1  # 0 for a spare model
    max_replicas: int = 1
    max_first_audio_p95_s: float = 0.2  # callers notice 0.3 s
    max_short_lead_share: float = 0.02  # of the speaking streams
    max_load: float = 0.7  # of the replicas' time; admission refuses at 0.95
    max_occupied: float = 0.7  # of the places for streams; admission refuses at 1
    scale_in_after_s: float = 60.0  # for which fewer replicas must have been enough
    idle_after_s: float = 600.0  # without a stream, before the last replica ends


@dataclass(frozen=True, slots=True)
class StageReport:
    """A stage as measured over the last seconds."""

    ready_replicas: int  # draining ones not included
    starting_replicas: int
    open_streams: int
    load: float  # compute seconds that the open streams need a second, for each ready replica
    occupied: float = 0.0  # share of the places for streams that are taken
    first_audio_p95_s: float = 0.0
    short_lead_share: float = 0.0  # 0 to 1
    refused_share: float = 0.0  # of the streams asked for, 0 to 1


@dataclass(frozen=True, slots=True)
class ScalingState:
    """A decision, and what the next one needs to know of it."""

    replicas: int  # that should run
    spare_since: float | None = None  # since when one replica fewer would do
    idle_since: float | None = None  # since when there is no stream


def decide_scale(
    report: StageReport, before: ScalingState, policy: AutoscalingPolicy, now: float
) -> ScalingState:
    """Decide how many replicas should run. before: the last decision; at first the present number."""
    needed = _needed_replicas(report, policy)
    current = before.replicas
    idle_since = None if _is_in_use(report) else _first(before.idle_since, now)
    if needed > current:
        return ScalingState(_bounded(needed, policy), None, idle_since)
    if needed == current or report.starting_replicas:
        return ScalingState(_bounded(current, policy), None, idle_since)
    spare_since = _first(before.spare_since, now)
    kept = ScalingState(_bounded(current, policy), spare_since, idle_since)
    wait_s = policy.scale_in_after_s
    if current == 1:
        spare_since, wait_s = _first(idle_since, now), policy.idle_after_s
    if now - spare_since < wait_s:
        return kept
    return replace(kept, replicas=_bounded(current - 1, policy), spare_since=now)


def _first(since: float | None, now: float) -> float:
    return now if since is None else since


def _is_in_use(report: StageReport) -> bool:
    return report.open_streams > 0 or report.refused_share > 0


def _needed_replicas(report: StageReport, policy: AutoscalingPolicy) -> int:
    if not _is_in_use(report):
        return 0
    ready = report.ready_replicas
    if not ready:
        return max(1, report.starting_replicas)
    use = max(report.load / policy.max_load, report.occupied / policy.max_occupied)
    by_load = math.ceil(ready * use - 1e-9)
    excess = max(
        report.first_audio_p95_s / policy.max_first_audio_p95_s - 1.0,
        report.short_lead_share / policy.max_short_lead_share - 1.0,
        report.refused_share,
    )
    if excess <= 0:
        return max(1, by_load)
    # What starts already may be enough; at most as many again are added at once.
    by_listeners = ready + max(report.starting_replicas, math.ceil(ready * min(1.0, excess)))
    return max(by_load, by_listeners)


def _bounded(replicas: int, policy: AutoscalingPolicy) -> int:
    return min(max(replicas, policy.min_replicas), policy.max_replicas)


@dataclass(frozen=True, slots=True)
class Retirement:
    """Replicas by id: to take no new streams, to take streams again, and to end."""

    drain: frozenset[str] = frozenset()
    resume: frozenset[str] = frozenset()
    end: frozenset[str] = frozenset()


def retire_replicas(replicas: Collection[ReplicaState], target: int) -> Retirement:
    """Which replicas to drain and to end for ``target`` of them to remain. None with an open stream ends.

    Those that are draining, then those with the fewest streams are given up first.
    """
    by_use = sorted(replicas, key=lambda each: (not each.is_draining, each.open_streams, each.id))
    surplus, kept = by_use[: max(0, len(by_use) - target)], by_use[max(0, len(by_use) - target) :]
    return Retirement(
        drain=frozenset(each.id for each in surplus if not each.is_draining),
        resume=frozenset(each.id for each in kept if each.is_draining),
        # A replica that still took streams may have been given one since its report.
        end=frozenset(each.id for each in surplus if each.is_draining and not each.open_streams),
    )
