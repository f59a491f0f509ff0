"""The replicas of a Ray Serve application, as a gateway finds them: by a process of its own.

    gateway --pipe--> discovery process --Ray--> head: which replicas run, how many are to come
       |                                    `--> new replicas: their descriptions
       `------------------- TCP ------------> replicas: streams, see ``replica_socket``

Ray's library is not in the gateway's process, so a cluster without its head ends no gateway. A discovery
process that ends or is silent is replaced; what was found before stays known.
"""

import asyncio
import logging
import os
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from .....tts_engine.errors import BadRequest
from ....background_tasks import cancel_and_wait
from ...replicas.messages import ReplicaDescription, ReplicaLost, ReplicaMetrics
from ...replicas.replica_link import finish_within
from ...replicas.replica_socket import SocketChannel
from .messages import (
    HEADER,
    RELEASE,
    ClusterReport,
    DiscoverySettings,
    FoundReplica,
    StageMetrics,
    frame,
    link_security,
)

logger = logging.getLogger(__name__)

_MAX_SILENCE_S = 10.0  # of the process, which reports every second; Ray's library loads for 3 to 6 s
_START_WITHIN_S = 60.0
_RESTART_AFTER_S = 1.0
_CLOSE_WITHIN_S = 10.0
_MAX_ASKED_S = 5.0
_MAX_ERROR_CHARACTERS = 300
_DISCOVERY = (sys.executable, "-m", f"{__package__}.process")
_FAULTS = (OSError, EOFError, TimeoutError, pickle.PickleError, AttributeError, ImportError, ValueError)
# Ray's library waits as long for a head that is gone, instead of ending the process.
_RECONNECT_S = {"RAY_gcs_rpc_server_reconnect_timeout_s": "1000000000"}


class RayReplicas:
    """The running replicas of a cluster; a ``ReplicaDirectory``.

    command: of the discovery process. release: of the replicas that are taken.

    Attributes:
        fault: why the cluster's head cannot be asked; "" if it can.
    """

    def __init__(
        self,
        settings: DiscoverySettings,
        command: Sequence[str] = _DISCOVERY,
        release: str = RELEASE,
    ) -> None:
        self.fault = "the cluster is being asked"
        self._settings, self._command, self._release = settings, command, release
        self._security = link_security(os.environ)
        self._report = ClusterReport()
        self._found: dict[str, FoundReplica] = {}  # those that run
        self._descriptions: dict[bytes, ReplicaDescription] = {}
        self._refused: set[str] = set()
        self._process: Process | None = None
        self._last_error = ""
        self._fault_is_reported = False  # by the process itself
        self._metrics: asyncio.Future[StageMetrics] | None = None
        self._running = asyncio.create_task(self._run(), name="discovery of replicas")

    @property
    def may_grow(self) -> bool:
        """As ``ReplicaDirectory.may_grow``; not in an upgrade, when what starts is of the other release."""
        report = self._report
        if self.fault or any(each.release != self._release for each in report.found):
            return False
        running = len(report.found) + len(report.undescribed)
        return report.starting > 0 or running < max(report.desired, report.max_replicas)

    @property
    def counts(self) -> dict[str, int]:
        """As ``ReplicaDirectory.counts``."""
        return {"desired": self._report.desired, "starting": self._report.starting}

    @property
    def report(self) -> ClusterReport:
        """The last one that the head answered."""
        return self._report

    async def discover(self) -> list[ReplicaDescription]:
        """The replicas that were running last. Raises ReplicaLost while they are not known."""
        if self.fault:
            raise ReplicaLost(self.fault)
        return [each for each in map(self._description, self._found.values()) if each is not None]

    async def report_metrics(self) -> list[ReplicaMetrics]:
        """The metrics of the stages that gateways do not call."""
        process = self._process
        if process is None or process.stdin is None or self._metrics is not None:
            return []
        self._metrics = asyncio.get_running_loop().create_future()
        try:
            process.stdin.write(b"m")
            async with asyncio.timeout(_MAX_ASKED_S):
                return list((await self._metrics).replicas)
        except (OSError, TimeoutError):
            return []
        finally:
            self._metrics = None

    def connect(self, description: ReplicaDescription) -> SocketChannel:
        """A channel to a replica."""
        assert description.endpoint is not None
        return SocketChannel(description.replica, description.endpoint, self._security)

    async def aclose(self) -> None:
        """End the process."""
        await cancel_and_wait(self._running)

    def _description(self, found: FoundReplica) -> ReplicaDescription | None:
        """The description of a replica, if it is of this release."""
        if found.release != self._release:
            if found.replica not in self._refused:
                self._refused.add(found.replica)
                logger.error(
                    "replica %s is refused: it is release %s, this gateway is %s",
                    *(found.replica, found.release, self._release),
                )
            return None
        if found.description not in self._descriptions:
            self._descriptions[found.description] = pickle.loads(found.description)
        return self._descriptions[found.description]

    # The process

    async def _run(self) -> None:
        """Keep a process running."""
        while True:
            try:
                await self._read_reports()
            except _FAULTS as error:
                cause = self._last_error or str(error) or type(error).__name__
                logger.debug("the discovery process ended: %s", cause)
                if not self._fault_is_reported:
                    self._note_fault(f"the discovery process ended ({cause})")
            await asyncio.sleep(_RESTART_AFTER_S)

    async def _read_reports(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,  # the terminal's Control-C is the gateway's
            env=os.environ | _RECONNECT_S | {"PYTHONPATH": _search_path()},
        )
        self._process, self._fault_is_reported = process, False
        assert process.stdin is not None
        logging_errors = asyncio.create_task(
            self._log_errors(process), name="errors of the discovery process"
        )
        try:
            process.stdin.write(frame(self._settings))
            limit_s = _START_WITHIN_S
            while True:
                self._receive(await finish_within(self._next(process), limit_s))
                limit_s = _MAX_SILENCE_S
        finally:
            self._process = None
            process.stdin.close()
            await _end(process)
            await asyncio.wait([logging_errors], timeout=_RESTART_AFTER_S)
            await cancel_and_wait(logging_errors)

    async def _log_errors(self, process: Process) -> None:
        """Log what the process prints, which may be pages, and keep the last line."""
        assert process.stderr is not None
        with suppress(ValueError):  # a line beyond all bounds
            async for line in process.stderr:
                if text := line.decode(errors="replace").strip():
                    self._last_error = text[:_MAX_ERROR_CHARACTERS]
                    logger.debug("discovery process: %s", text)

    async def _next(self, process: Process) -> Any:
        assert process.stdout is not None
        (count,) = HEADER.unpack(await process.stdout.readexactly(HEADER.size))
        return pickle.loads(await process.stdout.readexactly(count))

    def _receive(self, message: ClusterReport | StageMetrics) -> None:
        if isinstance(message, StageMetrics):
            if self._metrics is not None and not self._metrics.done():
                self._metrics.set_result(message)
        elif message.fault:
            self._fault_is_reported = True
            self._note_fault(message.fault)
        else:
            if self.fault:
                logger.info("the cluster's head answers")
            if message.deployment != self._report.deployment:
                logger.info("streams go to the deployment %s", message.deployment)
            kept = {each: self._found[each] for each in message.undescribed & self._found.keys()}
            self._found = kept | {each.replica: each for each in message.found}
            self.fault, self._report = "", message

    def _note_fault(self, fault: str) -> None:
        if fault != self.fault:
            logger.warning("replicas are not looked for: %s", fault)
        self.fault = fault


def _search_path() -> str:
    """Where this process finds its modules, for its child."""
    return os.pathsep.join(os.path.abspath(each) for each in sys.path if each)


async def _end(process: Process) -> None:
    """Wait until a process that lost its input has ended, and kill it otherwise."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_WITHIN_S):
            await process.wait()
            return
    process.kill()
    await process.wait()


def check_address(address: str) -> None:
    """Raise BadRequest for Ray Client."""
    if address.startswith("ray://"):
        raise BadRequest(
            f"engine.executor is 'ray:{address}'; Ray Client streams no audio: join this machine to the "
            "cluster (ray start --address=HOST:6379) and use 'ray'"
        )
