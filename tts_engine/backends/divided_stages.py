"""A voice whose last stage runs in other processes: what a cluster needs of a kind that can be divided so.

    decode replica: a Backend with a RemoteStage  -- RenderTransport -->  render replica: a StageHost

Requests, replies and voices are the kind's own values; a transport carries them as they are.
"""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from ..errors import SynthesisFailed
from ..metrics import Metrics


class RenderReplicaLost(SynthesisFailed):
    """A render replica ended, does not answer or cannot be reached."""


@dataclass(frozen=True, slots=True)
class RenderReplicaDescription:
    """A render replica, as it introduces itself."""

    replica: str  # id
    bundle_digest: str  # equal digests render equally
    sentences: int  # of all decode replicas
    free_sentences: int  # for which there is room
    is_full: bool  # it takes sentences of open streams only


class RenderTransport(Protocol):
    """Calls to render replicas. Every method returns at once; a call that fails raises RenderReplicaLost."""

    def render(self, replica: str, request: Any) -> "Future[Any]":
        """Have a chunk rendered."""

    def keep_voice(self, replica: str, voice: Any) -> "Future[None]":
        """Send a voice."""

    def release(self, replica: str, decoder: str, sentence: int) -> None:
        """Say that a sentence is no longer wanted. May get lost: the replica drops idle sentences."""


class RemoteStage(Protocol):
    """The stage of a decode replica; it sends its work over a ``RenderTransport``."""

    @property
    def replicas(self) -> tuple[str, ...]:
        """Ids of the render replicas in use."""

    def update(self, found: Sequence[RenderReplicaDescription], leaving: Collection[str]) -> None:
        """Take the replicas that answered now. leaving: ids of those that only finish their sentences."""

    def sentences_at(self, replica: str) -> int:
        """Number of open sentences of this decode replica at a render replica."""


class StageHost(Protocol):
    """The stage of a render replica, for several decode replicas. Methods return at once, on any thread.

    Attributes:
        metrics: steps, speech rendered, leads and failures; its streams are the sentences.
    """

    metrics: Metrics

    @property
    def is_healthy(self) -> bool:
        """Whether it can render."""

    def describe(self, decoder: str) -> RenderReplicaDescription:
        """The replica as it is now. decoder: id of the decode replica that asks, which thereby is alive."""

    def keep_voice(self, voice: Any, /) -> None:
        """Keep a voice for the sentences to come."""

    def render(self, request: Any, /) -> "Future[Any]":
        """Render the next chunk of a sentence."""

    def release(self, decoder: str, sentence: int) -> None:
        """Drop a sentence."""

    def hears(self, decoder: str) -> bool:
        """Whether a decode replica has asked for something lately."""

    def listener_stats(self) -> Mapping[str, float]:
        """The statistics for autoscaling since the last call, by the names of ``StageReport``."""
