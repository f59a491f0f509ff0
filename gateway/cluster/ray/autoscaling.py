"""The autoscaling policy as Ray Serve calls it: ``policy_function`` of a deployment's ``autoscaling_config``.

autoscaling_config:
  min_replicas: 1
  max_replicas: 4
  upscale_delay_s: 0                # the policy has delays of its own
  downscale_delay_s: 0
  metrics_interval_s: 1
  look_back_period_s: 2
  policy:
    policy_function: vivavoce.gateway.cluster.ray.autoscaling:ListenerScaling
    policy_kwargs: {scale_in_after_s: 60}   # the fields of AutoscalingPolicy
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ray.serve.config import AutoscalingContext

from ..autoscaling import AutoscalingPolicy, ScalingState, StageReport, decide_scale

_NAMES = ("open_streams", "load", "occupied", "first_audio_p95_s", "short_lead_share", "refused_share")


class ListenerScaling:
    """Scales a deployment by what its listeners notice. limits: fields of ``AutoscalingPolicy``."""

    def __init__(self, **limits: float) -> None:
        self._policy = AutoscalingPolicy(**limits)  # type: ignore[arg-type]  # checked by its own names

    def __call__(self, context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        """The number of replicas that should run, and the state for the next call."""
        policy = replace(
            self._policy,
            min_replicas=context.capacity_adjusted_min_replicas,
            max_replicas=context.capacity_adjusted_max_replicas,
        )
        before = ScalingState(
            context.target_num_replicas,
            context.policy_state.get("spare_since"),
            context.policy_state.get("idle_since"),
        )
        report = stage_report(context.aggregated_metrics or {}, context)
        after = decide_scale(report, before, policy, context.current_time or 0.0)
        return after.replicas, {"spare_since": after.spare_since, "idle_since": after.idle_since}


def stage_report(metrics: Mapping[str, Mapping[object, float]], context: AutoscalingContext) -> StageReport:
    """The report of the stage, from the statistics that its replicas record."""
    values = {name: list(metrics.get(name, {}).values()) for name in _NAMES}
    ready = len(context.running_replicas)
    return StageReport(
        ready_replicas=ready,
        starting_replicas=max(0, context.target_num_replicas - ready),
        open_streams=round(sum(values["open_streams"])),
        load=sum(values["load"]) / max(1, ready),
        occupied=sum(values["occupied"]) / max(1, ready),
        first_audio_p95_s=max(values["first_audio_p95_s"], default=0.0),
        short_lead_share=max(values["short_lead_share"], default=0.0),
        refused_share=min(values["refused_share"], default=0.0),  # another replica may have room
    )
