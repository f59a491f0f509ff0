"""Statistics of a render replica for autoscaling: how late its answers are for listeners."""

import math

_SHORT_LEAD_S = 0.1  # a listener with less left when the samples leave soon hears nothing


class RenderStats:
    """How late the answers are. Not for several threads at once."""

    def __init__(self) -> None:
        self._first_s: list[float] = []
        self._short: list[bool] = []

    def observe(self, answer_s: float, lead_s: float | None) -> None:
        """Add an answer. lead_s: the listener's when the request came; None for the first audio."""
        if lead_s is None:
            self._first_s.append(answer_s)
        else:
            self._short.append(lead_s - answer_s < _SHORT_LEAD_S)

    def take(self) -> dict[str, float]:
        """The p95 of first audio in seconds and the share of short leads since the last call."""
        first_s, short = sorted(self._first_s), self._short
        self._first_s, self._short = [], []
        return {
            "first_audio_p95_s": first_s[math.ceil(0.95 * len(first_s)) - 1] if first_s else 0.0,
            "short_lead_share": sum(short) / max(1, len(short)),
        }
