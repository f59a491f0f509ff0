"""Statistics of a replica, for autoscaling and routing: what its listeners notice, what its streams cost."""

from collections.abc import Iterable

from ....tts_engine.chunk import AudioChunk
from ....tts_engine.speech_engine import SpeechEngine

SHORT_LEAD_S = 0.1  # a listener with less to play soon hears nothing


class ListenerStats:
    """Takes the statistics of an engine, each time for the streams since the time before."""

    def __init__(self, engine: SpeechEngine) -> None:
        self._engine = engine
        self._counts = self._first_audio_counts()

    def take(self, leads_s: Iterable[float]) -> dict[str, float]:
        """The statistics by the names of ``StageReport``. leads_s: of the streams with all their text."""
        engine, leads = self._engine, list(leads_s)
        before, self._counts = self._counts, self._first_audio_counts()
        return {
            "open_streams": float(engine.active_streams),
            "load": engine.active_streams * engine.compute_s_per_audio_s,
            "occupied": engine.active_streams / max(1, engine.max_streams),
            "first_audio_p95_s": _p95_s(before, self._counts),
            "short_lead_share": sum(lead < SHORT_LEAD_S for lead in leads) / max(1, len(leads)),
            "refused_share": float(engine.active_streams > 0 and engine.refusal() is not None),
        }

    def _first_audio_counts(self) -> dict[float, float]:
        """Streams with first audio up to each limit in seconds, of the engine's histogram."""
        (family,) = self._engine.metrics.ttfa.collect()
        return {
            float(sample.labels["le"]): sample.value
            for sample in family.samples
            if sample.name.endswith("_bucket")
        }


class FirstAudioWait:
    """Estimates how long a new stream waits at an engine before its first step can begin."""

    _WEIGHT = 0.1  # of the newest chunk in the averages

    def __init__(self) -> None:
        self._first_chunk_s = 0.4  # of speech
        self._step_s = 0.0  # that rendered a chunk

    def observe(self, chunk: AudioChunk) -> None:
        """Take a chunk that was rendered."""
        if chunk.index == 0:
            self._first_chunk_s += self._WEIGHT * (chunk.seconds - self._first_chunk_s)
        self._step_s += self._WEIGHT * (chunk.provenance.wall_s - self._step_s)

    def wait_s(self, waiting: int, engine: SpeechEngine) -> float:
        """Seconds: of the first chunks of streams that wait already, and of half of the running step."""
        cost = engine.compute_s_per_audio_s
        busy_share = min(1.0, engine.active_streams * cost)
        return waiting * self._first_chunk_s * cost + busy_share * self._step_s / 2


def _p95_s(before: dict[float, float], after: dict[float, float]) -> float:
    """The limit below which 95 % of the streams since ``before`` are; 0 without one."""
    since = {limit: after[limit] - before.get(limit, 0.0) for limit in sorted(after)}
    total = since[max(since)]
    finite = [limit for limit in since if limit != float("inf")]
    if not total:
        return 0.0
    return next((limit for limit in finite if since[limit] >= 0.95 * total), finite[-1])
