"""Chooses the replica that renders one more stream, by what the stream costs; refuses it where none has room.

The choice minimizes the expected time to first audio, plus a little for the load that the stream leaves:

    wait + reference of a voice that is cold there + first audio
    + load_s * load / (1 - load) + pressure_s * short_lead_share

Several gateways that read the same old reports would all choose the same replica. So they compare two
replicas, drawn at random, unless the reports are fresh. A gateway that is alone with its replicas compares
many: it knows all streams itself, and works off the waits that were reported.

A report is not believed beyond what is possible: see ``checked``.

No clock and no I/O: replicas report a ``ReplicaState``, and time comes in as a number. ``RoutingTable``
belongs to one thread. ``python -m benches routing`` compares it with other policies.

Source: Mitzenmacher, How Useful Is Old Information?, IEEE TPDS 11(1), 2000.
"""

import math
import random
import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from ...tts_engine.errors import Overloaded

_WIDE_CHARACTER_LENGTH = 3.0  # a Han character or kana is spoken for as long as three Latin letters
_RETRY_AFTER_S = 1.0
_MAX_WAIT_S, _MAX_COST = 3600.0, 1000.0  # of a report; more is a fault of the replica
_MIN_SPARE = 0.05  # of a replica's time, where the price of its load stops growing faster


@dataclass(frozen=True, slots=True)
class SpeechRate:
    """Turns text into expected seconds of speech."""

    characters_per_s: float = 15.0  # Latin letters, spaces included
    first_chunk_s: float = 0.4  # speech that a replica renders before it hands over the first audio
    open_ended_s: float = 6.0  # expected of a stream whose text is still being written


@dataclass(frozen=True, slots=True)
class StreamWork:
    """The expected work of one stream."""

    first_audio_s: float  # seconds of speech up to the first audio
    audio_s: float  # seconds of speech in total
    reference_s: float = 0.0  # seconds of the recording that the voice is made of; none if it is warm
    voice: str = ""  # key of a cloned voice; "" has no affinity


def estimate_work(
    text: str,
    *,
    text_ended: bool = True,
    reference_s: float = 0.0,
    voice: str = "",
) -> StreamWork:
    """The work of a stream that begins with ``text``, as ``StreamWork``."""
    rate = SpeechRate()
    characters = sum(
        _WIDE_CHARACTER_LENGTH if unicodedata.east_asian_width(character) in "WF" else 1.0
        for character in text
    )
    audio_s = characters / rate.characters_per_s
    if not text_ended:
        audio_s = max(audio_s, rate.open_ended_s)
    return StreamWork(min(audio_s, rate.first_chunk_s), audio_s, reference_s, voice)


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """A replica's report of its load. Times are seconds of its own computing."""

    id: str
    open_streams: int
    max_streams: int
    compute_s_per_audio_s: float  # measured; 0 while unknown
    wait_s: float = 0.0  # before the first step of a new stream can begin
    short_lead_share: float = 0.0  # 0 to 1: of the speaking streams, those that soon run dry
    voices: frozenset[str] = frozenset()  # keys of voices whose prompts are in memory
    gateways: int = 2  # that send it streams; with one, that one knows them all
    is_full: bool = False  # refuses one more stream
    is_in_order: bool = False  # renders one stream to its end before the next, unlike the engine
    is_draining: bool = False  # finishes its streams and takes no others


@dataclass(frozen=True, slots=True)
class RoutingPolicy:
    """Weights and limits of the choice."""

    max_candidates: int = 32  # replicas compared for one stream
    max_stale_candidates: int = 2  # the same, with older reports
    fresh_s: float = 0.005  # an answer to a question just asked; replicas change with each step
    load_s: float = 0.008  # seconds of wait that a load of a half counts as
    pressure_s: float = 0.1  # seconds of wait that a short_lead_share of 1 counts as
    reference_cost: float = 0.02  # compute seconds for one second of a recording that is cold
    unmeasured_compute_s: float = 0.1  # compute_s_per_audio_s of a replica that has not measured it
    max_load: float = 0.85  # share of a replica's time that its streams may cost
    max_report_age_s: float = 5.0  # a replica that is silent for longer gets no streams
    doubted_wait_s: float = 1.0  # of a replica that reports a wait that cannot be


def choose_replica(
    replicas: Collection[ReplicaState], work: StreamWork, policy: RoutingPolicy
) -> ReplicaState:
    """The replica for one more stream. Raises Overloaded if none has room."""
    open_replicas = [replica for replica in replicas if _has_room(replica, policy)]
    if not open_replicas:
        raise Overloaded(_refusal_message(replicas), reason="replicas", retry_after_s=_RETRY_AFTER_S)
    return min(open_replicas, key=lambda replica: _score(replica, work, policy))


def checked(state: ReplicaState, policy: RoutingPolicy) -> ReplicaState:
    """The report without impossible values: a long wait and an unmeasured cost take their places."""

    def is_possible(value: float, most: float) -> bool:
        return math.isfinite(value) and 0.0 <= value <= most

    if (
        is_possible(state.wait_s, _MAX_WAIT_S)
        and is_possible(state.compute_s_per_audio_s, _MAX_COST)
        and is_possible(state.short_lead_share, 1.0)
        and state.open_streams >= 0
    ):
        return state
    return replace(
        state,
        wait_s=state.wait_s if is_possible(state.wait_s, _MAX_WAIT_S) else policy.doubted_wait_s,
        compute_s_per_audio_s=(
            state.compute_s_per_audio_s if is_possible(state.compute_s_per_audio_s, _MAX_COST) else 0.0
        ),
        short_lead_share=state.short_lead_share if is_possible(state.short_lead_share, 1.0) else 1.0,
        open_streams=max(0, state.open_streams),
    )


def work_at(replica: ReplicaState, work: StreamWork) -> StreamWork:
    """The work that a stream is at a replica: the reference of a warm voice costs nothing."""
    return replace(work, reference_s=0.0) if work.voice and work.voice in replica.voices else work


def _has_room(replica: ReplicaState, policy: RoutingPolicy) -> bool:
    if replica.is_draining or replica.is_full or replica.open_streams >= replica.max_streams:
        return False
    # A replica that is too slow for real time still serves one stream at a time.
    return not replica.open_streams or _load(replica, replica.open_streams + 1, policy) <= policy.max_load


def _load(replica: ReplicaState, streams: int, policy: RoutingPolicy) -> float:
    """Share of a replica's time that streams in real time cost."""
    return streams * (replica.compute_s_per_audio_s or policy.unmeasured_compute_s)


def _score(replica: ReplicaState, work: StreamWork, policy: RoutingPolicy) -> float:
    load = _load(replica, replica.open_streams + 1, policy)
    return (
        replica.wait_s
        + _compute_s(replica, work, work.first_audio_s, policy)
        + policy.load_s * load / max(_MIN_SPARE, 1.0 - load)
        + policy.pressure_s * replica.short_lead_share
    )


def _compute_s(replica: ReplicaState, work: StreamWork, audio_s: float, policy: RoutingPolicy) -> float:
    """Compute seconds for the first ``audio_s`` seconds of a stream's speech."""
    reference_s = work_at(replica, work).reference_s * policy.reference_cost
    return reference_s + audio_s * (replica.compute_s_per_audio_s or policy.unmeasured_compute_s)


def _refusal_message(replicas: Collection[ReplicaState]) -> str:
    if not replicas:
        return "no replica is ready"
    streams = sum(replica.open_streams for replica in replicas)
    return f"{streams} streams are open, and none of {len(replicas)} replicas has room for one more"


@dataclass(frozen=True, slots=True)
class _KnownReplica:
    state: ReplicaState
    reported_at: float
    changed_at: (
        float  # by a report or by a stream that was routed; the replica works off its wait from then on
    )

    def at(self, now: float) -> ReplicaState:
        return replace(self.state, wait_s=max(0.0, self.state.wait_s - (now - self.changed_at)))


class RoutingTable:
    """The replicas as one gateway knows them: their last reports, and what it has routed since."""

    def __init__(self, policy: RoutingPolicy | None = None, *, seed: int | None = None) -> None:
        self._policy = policy or RoutingPolicy()
        self._replicas: dict[str, _KnownReplica] = {}
        self._random = random.Random(seed)

    def __len__(self) -> int:
        return len(self._replicas)

    def report(self, state: ReplicaState, now: float) -> None:
        """Take a replica's report. now: monotonic seconds, when the report was made or asked for."""
        self._replicas[state.id] = _KnownReplica(checked(state, self._policy), now, now)

    def age_s(self, replica_id: str, now: float) -> float:
        """Seconds since the replica's last report."""
        return now - self._replicas[replica_id].reported_at

    def remove(self, replica_id: str) -> None:
        """Forget a replica that ended; nothing happens if it is unknown."""
        self._replicas.pop(replica_id, None)

    def route(self, work: StreamWork, now: float, among: Iterable[str] | None = None) -> ReplicaState:
        """The replica chosen, as it was known before; it counts the stream until its next report.

        among: ids of the replicas that may be chosen; None for all. Raises Overloaded if none has room.
        """
        ids = list(self._replicas if among is None else self._replicas.keys() & among)
        chosen = self._choose(ids, work, now)
        known = self._replicas[chosen.id]
        self._replicas[chosen.id] = _KnownReplica(
            _with_stream(chosen, work, self._policy), known.reported_at, now
        )
        return chosen

    def _choose(self, ids: list[str], work: StreamWork, now: float) -> ReplicaState:
        try:
            return choose_replica(self._states(self._draw(ids, now), now), work, self._policy)
        except Overloaded:
            # A stream is refused only if every replica is full, not just those that were drawn.
            return choose_replica(self._states(ids, now), work, self._policy)

    def _draw(self, ids: list[str], now: float) -> list[str]:
        """The replicas to compare: many if their reports are fresh, or younger than the waits they report."""
        policy = self._policy
        drawn = self._random.sample(ids, min(len(ids), policy.max_candidates))
        known = [self._replicas[each] for each in drawn]
        if all(each.state.gateways <= 1 for each in known):
            return drawn
        age_s = now - min((each.reported_at for each in known), default=now)
        wait_s = sum(each.state.wait_s for each in known) / max(1, len(known))
        return drawn if age_s <= max(policy.fresh_s, wait_s) else drawn[: policy.max_stale_candidates]

    def _states(self, ids: Iterable[str], now: float) -> list[ReplicaState]:
        oldest = now - self._policy.max_report_age_s
        known = (self._replicas[each] for each in ids)
        return [each.at(now) for each in known if each.reported_at >= oldest]


def _with_stream(replica: ReplicaState, work: StreamWork, policy: RoutingPolicy) -> ReplicaState:
    # The engine renders the first audio of a new stream before anything else, and the rest in between.
    delays_others_s = work.audio_s if replica.is_in_order else work.first_audio_s
    return replace(
        replica,
        open_streams=replica.open_streams + 1,
        wait_s=replica.wait_s + _compute_s(replica, work, delays_others_s, policy),
        voices=replica.voices | {work.voice} if work.voice else replica.voices,
    )
