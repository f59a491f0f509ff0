"""The replicas of a Ray Serve application, as a gateway finds and calls them: over handles, without a proxy.

describe         broadcast to the running replicas, every second
report_metrics   broadcast to those of all stages, every two seconds
events           one streaming call to each replica; its items are batches of events
run_commands     one unary call at a time to each replica, with a batch of commands
encode           one unary call for the recordings of a voice
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from ....tts_engine.errors import VivavoceError
from ....tts_engine.voices.recording import Recording
from ..replicas.messages import ReplicaDescription, ReplicaEvent, ReplicaLost, ReplicaMetrics, StreamCommand

_DISCOVERY_TIMEOUT_S = 2.0
_FAULTS = (RayError, RayServeException)


class RayReplicas:
    """The running replicas behind a handle; a ``ReplicaDirectory``.

    other_stages: the deployments that only replicas call.
    """

    def __init__(
        self, handle: "DeploymentHandle[object]", other_stages: Sequence["DeploymentHandle[object]"] = ()
    ) -> None:
        self._handle = handle
        self._handles = (handle, *other_stages)
        self._gateway = uuid.uuid4().hex

    @property
    def may_grow(self) -> bool:
        """Not known."""
        return False

    async def discover(self) -> list[ReplicaDescription]:
        """The replicas that answer. Raises ReplicaLost if none can be asked."""
        try:
            found = await self._handle.broadcast("describe").results_async(
                timeout_s=_DISCOVERY_TIMEOUT_S, return_exceptions=True
            )
        except (*_FAULTS, TimeoutError) as error:
            raise ReplicaLost(str(error)) from error
        return [each for each in found if isinstance(each, ReplicaDescription)]

    async def report_metrics(self) -> list[ReplicaMetrics]:
        """The metrics of the replicas that answer, of all stages."""
        answers = await asyncio.gather(*map(_ask_metrics, self._handles))
        return [each for answer in answers for each in answer if isinstance(each, ReplicaMetrics)]

    def connect(self, description: ReplicaDescription) -> "RayChannel":
        """A channel to a replica."""
        return RayChannel(self._handle, description.replica, f"{self._gateway}-{uuid.uuid4().hex[:8]}")

    async def aclose(self) -> None:
        """Stop the routers of the handles."""
        await asyncio.gather(*(handle.shutdown_async() for handle in self._handles))


async def _ask_metrics(handle: "DeploymentHandle[object]") -> Sequence[object]:
    """The answers of a deployment; none if one of its replicas hangs."""
    with suppress(*_FAULTS, TimeoutError):
        answers: Sequence[object] = await handle.broadcast("report_metrics").results_async(
            timeout_s=_DISCOVERY_TIMEOUT_S, return_exceptions=True
        )
        return answers
    return ()


class RayChannel:
    """Calls of one gateway to one replica; a ``ReplicaChannel``."""

    def __init__(self, handle: "DeploymentHandle[object]", replica: str, link_id: str) -> None:
        self._replica, self._link_id = replica, link_id
        self._run_commands = handle.options(method_name="run_commands")
        self._events = handle.options(method_name="events", stream=True)
        self._encode = handle.options(method_name="encode")

    async def send(self, commands: tuple[StreamCommand, ...]) -> None:
        """Have a batch carried out. Raises ReplicaLost."""
        try:
            await self._run_commands.remote(self._replica, self._link_id, commands)
        except _FAULTS as error:
            raise self._lost(error) from error

    async def events(self) -> AsyncGenerator[tuple[ReplicaEvent, ...], None]:
        """Attach, and yield batches of events. Raises ReplicaLost."""
        batches = self._events.remote(self._replica, self._link_id)
        try:
            async for batch in batches:
                yield batch
        except _FAULTS as error:
            raise self._lost(error) from error
        finally:
            batches.cancel()

    async def encode(self, recordings: Sequence[Recording], transcript: str) -> bytes | VivavoceError:
        """As ``ReplicaHost.encode``. Raises ReplicaLost."""
        try:
            answer: bytes | VivavoceError = await self._encode.remote(self._replica, recordings, transcript)
        except _FAULTS as error:
            raise self._lost(error) from error
        return answer

    def _lost(self, error: Exception) -> ReplicaLost:
        return ReplicaLost(
            f"replica {self._replica} is lost ({type(error).__name__})"
        )  # Ray's text is a page
