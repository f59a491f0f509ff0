"""The render replicas of a Ray Serve application, as a decode replica finds and calls them."""

import asyncio
import logging
import uuid
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context
from typing import Any, TypeVar

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from ....tts_engine.backends.divided_stages import RemoteStage, RenderReplicaDescription, RenderReplicaLost
from ....tts_engine.backends.loading import divided_stages
from ....tts_engine.engine import Engine
from ....tts_engine.errors import BundleError
from .replica_settings import ReplicaSettings

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

_POLL_INTERVAL_S = 1.0
_DISCOVERY_TIMEOUT_S = 2.0
_MAX_START_S = 600.0  # the weights of a render replica may have to be read over a network
_FAULTS = (RayError, RayServeException, TimeoutError)


async def open_decode_engine(
    settings: ReplicaSettings, handle: "DeploymentHandle[object]"
) -> tuple[Engine, str]:
    """Open the engine of a decode replica, when a render replica answers; and the digest of the bundle.

    Raises as ``ReplicaSettings.open_engine``, and BundleError if no render replica answers in 10 minutes.
    """
    digest = await asyncio.to_thread(settings.digest)
    replicas = RayRenderReplicas(handle)
    stage = divided_stages(settings.bundle).open_stage(replicas, digest, replicas.decoder)
    await replicas.poll_into(stage)
    return await settings.open_decode_engine(stage), digest


class RayRenderReplicas:
    """The running render replicas behind a handle; a ``RenderTransport``. Belongs to the running loop.

    A replica that Ray Serve stops is kept running until it has no sentence of this decode replica.

    Attributes:
        decoder: id of this decode replica.
    """

    def __init__(self, handle: "DeploymentHandle[object]") -> None:
        self.decoder = uuid.uuid4().hex
        self._handle = handle
        self._methods = {
            name: handle.options(method_name=name)
            for name in ("render", "keep_voice", "release", "answer_for", "keep_running")
        }
        self._loop = asyncio.get_running_loop()
        self._listed: set[str] = set()  # those that Ray Serve is not stopping
        self._kept: dict[str, asyncio.Task[None]] = {}  # the calls that keep replicas running
        self._polling: asyncio.Task[None] | None = None

    async def poll_into(self, stage: RemoteStage) -> None:
        """Update the stage every second from now on; returns when it has a replica. Raises BundleError."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_MAX_START_S):
                await self._update(stage)
                while not stage.replicas:
                    await asyncio.sleep(_POLL_INTERVAL_S / 4)
                    await self._update(stage)
                self._polling = asyncio.create_task(self._poll(stage), name="render replicas")
                return
        raise BundleError(f"no render replica was ready within {_MAX_START_S:g} s")

    def render(self, replica: str, request: object) -> "Future[Any]":
        """As ``RenderTransport``."""
        return self._submit(self._call("render", replica, request))

    def keep_voice(self, replica: str, voice: object) -> "Future[None]":
        """As ``RenderTransport``."""
        return self._submit(self._call("keep_voice", replica, voice))

    def release(self, replica: str, decoder: str, sentence: int) -> None:
        """As ``RenderTransport``."""
        self._submit(self._call("release", replica, decoder, sentence))

    def _submit(self, call: "Coroutine[Any, Any, Answer]") -> "Future[Answer]":
        # Outside of any request's context: Ray Serve gives calls in one the same id, and its router never
        # places two such calls that wait at the same time.
        return Context().run(asyncio.run_coroutine_threadsafe, call, self._loop)

    async def _call(self, method: str, replica: str, *arguments: object) -> Any:
        try:
            return await self._methods[method].remote(replica, *arguments)
        except _FAULTS as error:
            raise RenderReplicaLost(type(error).__name__) from error  # Ray's text is a page

    async def _poll(self, stage: RemoteStage) -> None:
        while True:
            await asyncio.sleep(_POLL_INTERVAL_S)
            await self._update(stage)

    async def _update(self, stage: RemoteStage) -> None:
        """Take the replicas that answer; leave those that Ray Serve stops, once they have no sentence."""
        found = await self._discover()
        leaving = set(self._kept) - self._listed
        stage.update(found, leaving)
        for replica in leaving:
            if not stage.sentences_at(replica):
                self._kept.pop(replica).cancel()
        for replica in self._listed.intersection(stage.replicas):
            if replica not in self._kept or self._kept[replica].done():
                self._kept[replica] = asyncio.create_task(self._keep_running(replica), name=f"keep {replica}")

    async def _keep_running(self, replica: str) -> None:
        """Have a call under way at a replica, so that Ray Serve does not end it."""
        call = self._methods["keep_running"].remote(replica, self.decoder)
        try:
            with suppress(*_FAULTS):
                await call
        finally:
            call.cancel()

    async def _discover(self) -> list[RenderReplicaDescription]:
        """The replicas that answer; one that hangs does not hide the others."""
        try:
            found = await self._handle.broadcast("describe", self.decoder).results_async(
                timeout_s=_DISCOVERY_TIMEOUT_S, return_exceptions=True
            )
        except _FAULTS as error:
            logger.debug("the render replicas did not all answer: %s", type(error).__name__)
            found, unasked = [], self._listed.union(self._kept)
        else:
            self._listed = {each.replica for each in found if isinstance(each, RenderReplicaDescription)}
            unasked = set(self._kept) - self._listed
        found = [*found, *await asyncio.gather(*map(self._ask, unasked))]
        return [each for each in found if isinstance(each, RenderReplicaDescription)]

    async def _ask(self, replica: str) -> RenderReplicaDescription | None:
        with suppress(RenderReplicaLost, TimeoutError):
            async with asyncio.timeout(_DISCOVERY_TIMEOUT_S):
                answer: RenderReplicaDescription = await self._call("answer_for", replica, self.decoder)
                return answer
        return None
