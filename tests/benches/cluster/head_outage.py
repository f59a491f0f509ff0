"""Kills the head of a Ray cluster under streams and starts it again: what gateways, streams and replicas do.

Two nodes have a replica each, beside a head without one; Ray's state is in a Redis of its own. All are
processes of this machine, in groups that end with the bench.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path

import ray

from benches.cluster.listener import StreamListener, text_of
from shared.cluster.redis_server import RedisServer
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.gateway.cluster.ray.finding.head_address import check_head
from vivavoce.gateway.cluster.ray.operations import NODE_ENVIRONMENT, head_environment
from vivavoce.gateway.cluster.ray.ray_engine import open_ray_engine
from vivavoce.gateway.cluster.ray.replica_settings import ReplicaSettings
from vivavoce.gateway.cluster.replicas.cluster_engine import ClusterEngine
from vivavoce.tts_engine.engine import EngineConfig
from vivavoce.tts_engine.errors import BundleError

_HOST = ray.util.get_node_ip_address()  # of this machine: Ray's library replaces loopback by it
_RUN = "from vivavoce.gateway.cli import run; run()"
_GATEWAYS = 2
_STREAMS = 20
_WORDS = 40  # of each stream, 8 s
_REPLICAS = 2
_START_WITHIN_S = 90.0
_MAX_BACK_S, _MAX_ENDED_S = 5.0, 2.0


def measure(away_s: float) -> BenchReport:
    """Kill the head, and start it again after ``away_s``."""
    os.environ["RAY_AUTH_MODE"] = "disabled"
    with tempfile.TemporaryDirectory(prefix="ray") as folder, RedisServer() as redis:
        cluster = RayCluster(Path(folder), redis.url)
        with cluster.running():
            return BenchReport("head-outage", asyncio.run(_measure(cluster, away_s)), {"away": away_s})


class RayCluster:
    """A head and its nodes, as programs of this machine. Two of the nodes have a replica.

    Attributes:
        address: HOST:PORT of the head.
        environment: of programs that join.
    """

    def __init__(self, folder: Path, redis: str, nodes: int = _REPLICAS) -> None:
        self._folder, self._nodes = folder, nodes
        self.address = f"{_HOST}:{_free_port()}"
        self._dashboard = _free_port()
        self.environment = (
            os.environ
            | head_environment(redis, self.address)
            | NODE_ENVIRONMENT
            | {"PYTHONPATH": _search_path()}
        )
        self._groups: dict[str, subprocess.Popen[bytes]] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start all, deploy two replicas, and end all."""
        try:
            self.start_head()
            for number in range(_REPLICAS):
                self._start_node(number)
            self._deploy()
            for number in range(_REPLICAS, self._nodes):
                self._start_node(number)
            yield
        finally:
            for name in list(self._groups):
                self.kill(name)

    def _start_node(self, number: int) -> None:
        place = json.dumps({f"place-{number}": 1})
        self._start(f"node {number}", f"--address={self.address}", "--num-cpus=1", f"--resources={place}")

    def start_head(self) -> None:
        """Start the head; returns when it answers."""
        # Ray takes the nodes of this machine for a head that runs; nodes of other machines it does not.
        (self._folder / "ray_current_cluster").unlink(missing_ok=True)
        port = self.address.rpartition(":")[2]
        self._start(
            "head",
            *("--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=true"),
            *(f"--dashboard-port={self._dashboard}", f"--dashboard-host={_HOST}"),
            f"--temp-dir={self._folder}",
        )
        self.wait_for_head()

    def wait_for_head(self) -> None:
        """Return when the head answers."""
        since = time.monotonic()
        while True:
            try:
                check_head(self.address)
                return
            except BundleError:
                if time.monotonic() - since > _START_WITHIN_S:
                    raise
                time.sleep(0.05)

    def kill(self, name: str, by: signal.Signals = signal.SIGKILL) -> None:
        """End all processes of a node."""
        group = self._groups.pop(name)
        with suppress(ProcessLookupError):  # it ended by itself
            os.killpg(group.pid, by)
        group.wait()

    def _start(self, name: str, *options: str) -> None:
        program = Path(sys.executable).with_name("ray")
        command = [str(program), "start", "--block", "--disable-usage-stats", f"--node-ip-address={_HOST}"]
        with (self._folder / f"{name}.log").open("wb") as log:
            self._groups[name] = subprocess.Popen(
                [*command, *options],
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait_for_start(name)

    def _wait_for_start(self, name: str) -> None:
        """Return when a node runs: nodes of one machine that start at once disturb each other."""
        since = time.monotonic()
        while "Ray runtime started" not in (self._folder / f"{name}.log").read_text():
            if self._groups[name].poll() is not None or time.monotonic() - since > _START_WITHIN_S:
                raise BundleError(f"the {name} did not start")
            time.sleep(0.1)

    def _deploy(self) -> None:
        """As ``vivavoce cluster up`` does, in a process that ends."""
        application = {
            **{"name": "vivavoce", "import_path": "shared.cluster.ray_replicas:build", "route_prefix": None},
            "args": {"step_s": 0.002},
            "deployments": [
                {"name": "voice", "num_replicas": _REPLICAS, "ray_actor_options": {"num_cpus": 1}}
            ],
        }
        file = self._folder / "cluster.yaml"  # JSON is YAML
        file.write_text(json.dumps({"proxy_location": "Disabled", "applications": [application]}))
        command = [sys.executable, "-c", _RUN, "cluster", "up", str(file)]
        for _ in range(20):  # the nodes join meanwhile
            done = subprocess.run(
                [*command, "--address", self.address], env=self.environment, capture_output=True, text=True
            )
            if done.returncode == 0:
                return
            time.sleep(1.0)
        raise BundleError(f"cluster up failed: {done.stderr or done.stdout}")


async def _measure(cluster: RayCluster, away_s: float) -> tuple[BenchFigure, ...]:
    async with AsyncExitStack() as opened:
        gateways = [await join(cluster, opened) for _ in range(_GATEWAYS)]
        listeners = [
            StreamListener(gateways[number % _GATEWAYS], text_of(_WORDS)) for number in range(_STREAMS)
        ]
        speaking = [asyncio.create_task(each.listen()) for each in listeners]
        while not all(each.has_heard for each in listeners):
            await asyncio.sleep(0.05)
        killed_at = time.monotonic()
        await asyncio.to_thread(cluster.kill, "head")
        noticed_s = await _seconds_until(killed_at, lambda: all(each._directory.fault for each in gateways))
        await asyncio.gather(*speaking)
        later = [await _speak(gateway) for gateway in gateways]
        await asyncio.sleep(max(0.0, killed_at + away_s - time.monotonic()))
        much_later = [await _speak(gateway) for gateway in gateways]
        await asyncio.to_thread(cluster.start_head)
        ready_at = time.monotonic()
        back_s = await _seconds_until(ready_at, lambda: not any(each._directory.fault for each in gateways))
        after = [await _speak(gateway) for gateway in gateways]
        alive = sum(len(each.replicas) > 0 for each in gateways)
    ended = sum(
        each.failed_at is not None and each.failed_at - killed_at <= _MAX_ENDED_S for each in listeners
    )
    whole = sum(each.is_complete for each in listeners)
    return (
        BenchFigure("gateways alive", alive, "", at_least=_GATEWAYS),
        BenchFigure("streams whole", whole, ""),
        BenchFigure("streams whole or ended with an error within 2 s", whole + ended, "", at_least=_STREAMS),
        BenchFigure("underruns", sum(each.underruns for each in listeners), ""),
        BenchFigure("from the kill until both gateways name the fault", noticed_s, "s"),
        BenchFigure("new streams whole without a head, at once", sum(later), "", at_least=_GATEWAYS),
        BenchFigure(f"the same, after {away_s:g} s", sum(much_later), "", at_least=_GATEWAYS),
        BenchFigure("from the head's readiness until both know it", back_s, "s", at_most=_MAX_BACK_S),
        BenchFigure("new streams whole with the new head", sum(after), "", at_least=_GATEWAYS),
    )


async def join(cluster: RayCluster, opened: AsyncExitStack) -> ClusterEngine:
    """A gateway that has all replicas."""
    engine = await open_ray_engine(cluster.address, ReplicaSettings(), EngineConfig())
    opened.push_async_callback(engine.aclose)
    async with asyncio.timeout(_START_WITHIN_S):
        while len(engine.replicas) < _REPLICAS:
            await asyncio.sleep(0.1)
    return engine


async def _speak(gateway: ClusterEngine) -> bool:
    try:
        listener = StreamListener(gateway, text_of(5))
    except Exception:
        return False
    await listener.listen()
    return listener.is_complete


async def _seconds_until(since: float, happened: Callable[[], bool]) -> float:
    while not happened():
        if time.monotonic() - since > _START_WITHIN_S:
            return float("inf")
        await asyncio.sleep(0.02)
    return time.monotonic() - since


def _search_path() -> str:
    return os.pathsep.join(os.path.abspath(each) for each in sys.path if each)


def _free_port() -> int:
    with socket.create_server((_HOST, 0)) as server:
        port: int = server.getsockname()[1]
    return port
