"""The process by which a gateway finds replicas: the only one beside the replicas that Ray's library runs in.

Ray ends a process that cannot reach the head for a minute, and its calls may hang. So the gateway starts this
process, reads its reports, and starts another one when it ends; streams do not pass through it.
"""

import asyncio
import logging
import os
import pickle
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import FileIO
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.context import _get_global_client
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from .....tts_engine.errors import VivavoceError
from ...replicas.messages import ReplicaMetrics
from ..ray_connection import APPLICATION, LOCAL, deploy_here, join_cluster
from .messages import HEADER, ClusterReport, DiscoverySettings, FoundReplica, StageMetrics, frame

_INTERVAL_S = 1.0
_JOIN_INTERVAL_S = 0.25
_CONNECT_WITHIN_S = 1.0
_ANSWER_WITHIN_S = 3.0
_MAX_SILENT_S = 60.0  # of a head that listens; on a busy machine its parts start for half a minute
_CALLED = ("voice", "decode")  # deployments that gateways call, by name
_RUNNING = ("RUNNING", "UPDATING", "RECOVERING")  # the last one after a start of the head
_FAULTS = (RayError, RayServeException, OSError, RuntimeError)


class Discovery:
    """Asks the head of the cluster, and the replicas that it has not asked yet."""

    def __init__(self) -> None:
        self._handles: dict[str, DeploymentHandle[object]] = {}
        self._asked: frozenset[str] = frozenset()
        self._found: tuple[FoundReplica, ...] = ()
        self._deployment = ""
        self._thread = ThreadPoolExecutor(1)  # one call at a time may hang, and no more
        self._asking: asyncio.Future[Mapping[str, Mapping[str, Any]]] | None = None
        self._head = ""
        self.head_answers = self.head_listens = True

    def begin(self) -> None:
        """The process has joined the cluster. Before that, Ray's library would start one of its own."""
        self._head = ray.get_runtime_context().gcs_address

    async def _ask_head(self) -> Mapping[str, Mapping[str, Any]]:
        """As ``_deployments``; waits for the last question if that has no answer. Raises OSError."""
        gives_up_at = time.monotonic() + _ANSWER_WITHIN_S
        while time.monotonic() < gives_up_at:
            self.head_listens = False  # Ray's library would wait for it
            await _reach(self._head)
            self.head_listens = True
            if self._asking is None or self._asking.done():
                self._asking = asyncio.get_running_loop().run_in_executor(self._thread, _deployments)
            await asyncio.wait([self._asking], timeout=_INTERVAL_S / 2)
            if self._asking.done():
                return self._asking.result()
        raise TimeoutError

    async def report(self) -> ClusterReport:
        """The cluster now."""
        try:
            deployments = await self._ask_head()
            self.head_answers = True
        except _FAULTS as error:
            self.head_answers = isinstance(error, RayServeException)
            if self.head_answers:
                return ClusterReport(fault="Ray Serve does not run in the cluster")
            return ClusterReport(fault=f"the cluster's head does not answer ({type(error).__name__})")
        called = [each for each in _CALLED if each in deployments]
        if not called:
            return ClusterReport(fault=f"no application {APPLICATION!r} runs in the cluster")
        # While one takes the place of the other, both are there, and no replica of the old one is wanted.
        name = max(called, key=lambda each: deployments[each]["target_num_replicas"] or 0)
        details = deployments[name]
        states = {each["replica_id"]: each["state"] for each in details["replicas"]}
        running = frozenset(each for each, state in states.items() if state in _RUNNING)
        if (name, running) != (self._deployment, self._asked) or len(self._found) < len(running):
            self._found = await self._describe(name)
            self._deployment, self._asked = name, running
        scaling = details["deployment_config"].get("autoscaling_config") or {}
        described = tuple(each for each in self._found if each.replica in running)
        return ClusterReport(
            described,
            name,
            details["target_num_replicas"] or len(running),
            sum(state == "STARTING" for state in states.values()),
            scaling.get("max_replicas", 0),
            running - {each.replica for each in described},
        )

    async def stage_metrics(self) -> StageMetrics:
        """The metrics of the replicas that gateways do not call."""
        if not self._head:
            return StageMetrics(())
        with suppress(*_FAULTS):
            names = [each for each in await self._ask_head() if each not in _CALLED]
            answers = await asyncio.gather(*(self._broadcast(each, "report_metrics") for each in names))
            found = [each for answer in answers for each in answer if isinstance(each, ReplicaMetrics)]
            return StageMetrics(tuple(found))
        return StageMetrics(())

    async def _describe(self, name: str) -> tuple[FoundReplica, ...]:
        found = await self._broadcast(name, "introduce")
        return tuple(FoundReplica(**each) for each in found if isinstance(each, dict))

    async def _broadcast(self, name: str, method: str) -> Sequence[object]:
        """The answers of a deployment's running replicas; none from those that hang."""
        if name not in self._handles:
            self._handles[name] = serve.get_deployment_handle(name, APPLICATION)
        with suppress(*_FAULTS):
            answers: Sequence[object] = (
                await self._handles[name]
                .broadcast(method)
                .results_async(timeout_s=_ANSWER_WITHIN_S, return_exceptions=True)
            )
            return answers
        return ()


def _deployments() -> Mapping[str, Mapping[str, Any]]:
    """The application's deployments by name, as Serve's controller describes them."""
    client = _get_global_client()
    applications = client.get_serve_details()["applications"] if client else {}
    found: Mapping[str, Mapping[str, Any]] = applications.get(APPLICATION, {}).get("deployments", {})
    return found


async def _requests() -> AsyncIterator[bytes]:
    """The gateway's requests, until it closes the pipe."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while request := await reader.read(1):
        yield request


class _Reporter:
    """Sends reports to the gateway. pipe: the descriptor of the way there."""

    def __init__(self, settings: DiscoverySettings, pipe: int) -> None:
        self._settings, self._pipe = settings, pipe
        self._discovery = Discovery()

    async def run(self) -> None:
        """Report every second, and answer requests, until the gateway closes the pipe."""
        reporting = asyncio.create_task(self._report_on())
        async for _ in _requests():
            self._send(await self._discovery.stage_metrics())
        reporting.cancel()

    async def _report_on(self) -> None:
        await self._join()
        answered_at = time.monotonic()
        while self._discovery.head_listens and time.monotonic() - answered_at < _MAX_SILENT_S:
            self._send(await self._discovery.report())
            if self._discovery.head_answers:
                answered_at = time.monotonic()
            await asyncio.sleep(_INTERVAL_S)
        # Ray's library does not find a head that is started again. The next process loads it, and waits.
        os._exit(1)

    async def _join(self) -> None:
        settings = self._settings
        while True:
            try:
                await asyncio.to_thread(join_cluster, settings.address)
                if settings.address == LOCAL:
                    await asyncio.to_thread(deploy_here, settings.local)
                self._discovery.begin()
                return
            except (VivavoceError, RuntimeError, OSError) as error:
                self._send(ClusterReport(fault=str(error)))
            await asyncio.sleep(_JOIN_INTERVAL_S)

    def _send(self, message: object) -> None:
        os.write(self._pipe, frame(message))


async def _reach(address: str) -> None:
    """Raise OSError if nothing listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(_CONNECT_WITHIN_S):
        _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    writer.close()


def _read_settings() -> DiscoverySettings:
    # Unbuffered: the requests that follow are read by ``_requests``.
    with open(0, "rb", buffering=0, closefd=False) as pipe:
        (count,) = HEADER.unpack(_read_exactly(pipe, HEADER.size))
        settings: DiscoverySettings = pickle.loads(_read_exactly(pipe, count))
    return settings


def _read_exactly(pipe: FileIO, count: int) -> bytes:
    """Raises EOFError if the gateway is gone."""
    content = b""
    while len(content) < count:
        if not (part := pipe.read(count - len(content))):
            raise EOFError
        content += part
    return content


def main() -> None:
    """Run until the gateway closes the pipe."""
    pipe = os.dup(1)
    os.dup2(2, 1)  # Ray prints
    logging.disable(logging.WARNING)  # so that the last line tells why the process ended
    settings = _read_settings()
    asyncio.run(_Reporter(settings, pipe).run())
    if settings.address == LOCAL:
        ray.shutdown()
    os._exit(0)  # the threads of Ray's library may wait for a head that is gone


if __name__ == "__main__":
    main()
