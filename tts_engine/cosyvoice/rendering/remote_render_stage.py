"""The render stage of a decode replica: its sentences are rendered by render replicas.

    engine's thread   speech ids of a chunk  -> ChunkRequest ->   render replica of the sentence
                      waits                  <- samples     <-

A sentence stays with one replica, which keeps the flow's state. Its speech ids are kept here until it ends:
when the replica is lost, another one renders the sentence from its beginning, in the same chunks, and only
the samples that were not received yet are given on. They are the same samples.
"""

import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from ....models.cosyvoice.flow.hop_schedule import SpeechIdChunk
from ....models.devices.planned_captures import CaptureQueue
from ...backends.divided_stages import RenderReplicaDescription, RenderReplicaLost, RenderTransport
from ...errors import SynthesisFailed
from ...voice_kit.fault_isolation import FaultIsolation
from ..conditioning import FlowPrompt
from .render_messages import (
    ChunkRequest,
    RenderedChunk,
    RenderingFailed,
    RenderReply,
    SentenceMissing,
    VoiceMissing,
)
from .render_stage import RenderInput, Samples, SessionSpeech

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

_MAX_SILENCE_S = 6.0  # of a replica that is asked every second; a stall of the network may last 5 s
_CHECK_INTERVAL_S = 0.5  # of a replica that has not answered, for silence
_MAX_REQUESTS = 6  # for one chunk: a sentence that ends its replicas must not end all of them


@dataclass(slots=True, eq=False)
class RemoteSentence:
    """A sentence, as far as it is needed to have it rendered once more."""

    number: int
    flow_prompt: FlowPrompt
    speed: float
    noise: np.random.Generator  # the session's; set to its next state when the sentence is rendered
    rendered: list[SpeechIdChunk] = field(default_factory=list)
    replica: str | None = None  # asked last
    is_at_replica: bool = False  # it has the state after the chunks rendered so far
    is_released: bool = False

    def request(self, decoder: str, wanted: RenderInput, now: float) -> ChunkRequest:
        """The request for a chunk, with all that the replica does not know."""
        continues = self.is_at_replica
        first_id = self.rendered[-1].lookahead_stop if continues else 0
        return ChunkRequest(
            decoder=decoder,
            sentence=self.number,
            voice=self.flow_prompt.key,
            speed=self.speed,
            first_id=first_id,
            ids=tuple(wanted.ids[first_id : wanted.chunk.lookahead_stop]),
            chunks=(wanted.chunk,) if continues else (*self.rendered, wanted.chunk),
            lead_s=None if wanted.runs_dry_at is None else wanted.runs_dry_at - now,
            noise=None if continues else self.noise,
            trace_id=wanted.trace_id,
        )

    def commit(self, chunk: SpeechIdChunk, answer: RenderedChunk) -> None:
        """Record that the replica rendered a chunk."""
        self.rendered.append(chunk)
        self.is_at_replica = True
        if answer.noise is not None:
            self.noise.bit_generator.state = answer.noise.bit_generator.state


@dataclass(slots=True)
class _KnownReplica:
    description: RenderReplicaDescription
    heard_at: float
    is_leaving: bool = False  # it ends after its sentences
    sentences: set[int] = field(default_factory=set)  # of this decode replica

    @property
    def free_sentences(self) -> int:
        return 0 if self.is_leaving else self.description.free_sentences

    @property
    def load(self) -> int:
        return max(self.description.sentences, len(self.sentences))


class RemoteRenderStage:
    """Render replicas as the render stage of a backend. Used by several threads.

    bundle_digest: of the replicas that are used. decoder: id of this decode replica. clock: monotonic
    seconds. ``update`` is to be called every second with the replicas that answer.
    """

    workers = 8  # steps that wait for a replica at the same time, one sentence each

    def __init__(
        self,
        transport: RenderTransport,
        bundle_digest: str,
        decoder: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport, self._decoder, self._clock = transport, decoder, clock
        self._bundle_digest = bundle_digest
        self.captures = CaptureQueue()  # none: a render replica takes its own when it loads
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._replicas: dict[str, _KnownReplica] = {}
        self._refused: set[str] = set()

    def update(
        self, found: Sequence[RenderReplicaDescription], leaving: Collection[str] = frozenset()
    ) -> None:
        """Take the replicas that answered now. leaving: ids of those that only finish their sentences."""
        now = self._clock()
        with self._lock:
            for each in found:
                if not self._accepts(each):
                    continue
                known = self._replicas.setdefault(each.replica, _KnownReplica(each, now))
                known.description, known.heard_at = each, now
                known.is_leaving = each.replica in leaving
            for replica in [*self._replicas]:
                if not self._is_heard(replica):
                    del self._replicas[replica]

    @property
    def replicas(self) -> tuple[str, ...]:
        """Ids of the replicas in use."""
        return tuple(self._replicas)

    def sentences_at(self, replica: str) -> int:
        """Number of open sentences of this decode replica at a render replica."""
        with self._lock:
            known = self._replicas.get(replica)
            return 0 if known is None else len(known.sentences)

    def begin_sentence(
        self, flow_prompt: FlowPrompt, speed: float, noise: np.random.Generator
    ) -> RemoteSentence:
        """A new sentence; a replica is chosen for its first chunk."""
        return RemoteSentence(next(self._numbers), flow_prompt, speed, noise)

    def render(
        self, render_inputs: Mapping[int, RenderInput], isolation: FaultIsolation
    ) -> dict[int, Samples]:
        """Have a replica render each chunk, and wait for it."""
        return isolation.run_each(render_inputs, lambda row, wanted: self._render_chunk(wanted))

    def free(self, render_state: RemoteSentence) -> None:
        """As ``release``."""
        self.release(render_state)

    def release(self, render_state: RemoteSentence) -> None:
        """Have the replica drop the sentence; a request that waits there is answered at once."""
        render_state.is_released = True
        if render_state.replica is not None:
            self._transport.release(render_state.replica, self._decoder, render_state.number)
        self._forget_sentence(render_state)

    def memory_slots(self, sessions: Sequence[SessionSpeech]) -> int:
        """The sentences that replicas have for this decode replica, and those for which they have room."""
        with self._lock:
            known = [*self._replicas.values()]
            return sum(len(each.sentences) + each.free_sentences for each in known)

    def _render_chunk(self, wanted: RenderInput) -> Samples:
        """Raises RenderReplicaLost if no replica is left, and the error of a replica that cannot do it."""
        sentence: RemoteSentence = wanted.render_state
        lost: set[str] = set()
        for _ in range(_MAX_REQUESTS):
            if sentence.is_released:
                raise SynthesisFailed("the stream was cancelled")
            replica = self._place(sentence, lost)
            try:
                match self._ask(replica, sentence, wanted):
                    case RenderedChunk() as answer:
                        sentence.commit(wanted.chunk, answer)
                        if wanted.chunk.final:
                            self._forget_sentence(sentence)
                        return answer.samples
                    case VoiceMissing():
                        self._wait(replica, self._transport.keep_voice(replica, sentence.flow_prompt))
                    case SentenceMissing():
                        sentence.is_at_replica = False
                    case RenderingFailed(error):
                        raise error
            except RenderReplicaLost as error:
                logger.error("trace %s: render replica %s is lost: %s", wanted.trace_id, replica, error)
                lost.add(replica)
                self._lose(replica)
        raise RenderReplicaLost(f"no render replica has answered in {_MAX_REQUESTS} requests")

    def _ask(self, replica: str, sentence: RemoteSentence, wanted: RenderInput) -> RenderReply:
        asked_at = self._clock()
        request = sentence.request(self._decoder, wanted, asked_at)
        reply: RenderReply = self._wait(replica, self._transport.render(replica, request))
        if isinstance(reply, RenderedChunk) and reply.place != request.place:
            raise RenderReplicaLost(f"it answered {request.place} with {reply.place}")
        logger.debug(
            "trace %s: sentence %d, speech ids %d to %d: render replica %s answered in %.0f ms",
            *(wanted.trace_id, sentence.number, wanted.chunk.start, wanted.chunk.stop),
            *(replica, 1000 * (self._clock() - asked_at)),
        )
        return reply

    def _wait(self, replica: str, answer: "Future[Answer]") -> Answer:
        """Wait for an answer as long as the replica is heard. Raises RenderReplicaLost."""
        while True:
            try:
                return answer.result(_CHECK_INTERVAL_S)
            except TimeoutError:
                with self._lock:
                    is_heard = self._is_heard(replica)
            if not is_heard:
                answer.cancel()
                raise RenderReplicaLost(f"it did not answer for {_MAX_SILENCE_S:g} s")

    def _place(self, sentence: RemoteSentence, lost: set[str]) -> str:
        """The replica of the sentence, or else the least loaded one. Raises RenderReplicaLost."""
        with self._lock:
            if sentence.replica is not None and self._is_heard(sentence.replica):
                return sentence.replica
            fit = [replica for replica in self._replicas if self._is_heard(replica) and replica not in lost]
            if not fit:
                raise RenderReplicaLost("no render replica is ready")
            chosen = min(fit, key=self._preference)
            self._replicas[chosen].sentences.add(sentence.number)
            sentence.replica, sentence.is_at_replica = chosen, False
            return chosen

    def _preference(self, replica: str) -> tuple[bool, bool, int]:
        known = self._replicas[replica]
        return known.is_leaving, known.description.is_full, known.load

    def _is_heard(self, replica: str) -> bool:
        known = self._replicas.get(replica)
        return known is not None and self._clock() - known.heard_at < _MAX_SILENCE_S

    def _lose(self, replica: str) -> None:
        with self._lock:
            self._replicas.pop(replica, None)

    def _forget_sentence(self, sentence: RemoteSentence) -> None:
        with self._lock:
            for known in self._replicas.values():
                known.sentences.discard(sentence.number)

    def _accepts(self, description: RenderReplicaDescription) -> bool:
        if description.bundle_digest == self._bundle_digest:
            return True
        if description.replica not in self._refused:
            self._refused.add(description.replica)
            logger.error(
                "render replica %s is refused: its bundle has the digest %s, this one %s",
                description.replica,
                description.bundle_digest,
                self._bundle_digest,
            )
        return False
