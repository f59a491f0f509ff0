"""A node of a Ray cluster that is drained and stopped under streams, as a machine is that is taken down."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from benches.cluster.head_outage import RayCluster, join
from benches.cluster.listener import StreamListener, text_of
from shared.cluster.redis_server import RedisServer
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport

_STREAMS = 20
_WORDS = 40  # of each stream, 8 s
_NODES = 3  # one is spare
_REPLACED_WITHIN_S = 120.0
_DRAIN = """
import ray, sys
from vivavoce.gateway.cluster.ray.operations import drain_node
from vivavoce.gateway.cluster.ray.ray_connection import join_cluster
join_cluster("auto")
node = next(each["NodeID"] for each in ray.nodes() if each["Resources"].get(sys.argv[1]))
print(drain_node(120.0, node))
"""


def measure() -> BenchReport:
    """Drain the node of a replica, send it SIGTERM, and speak on."""
    os.environ["RAY_AUTH_MODE"] = "disabled"
    with tempfile.TemporaryDirectory(prefix="ray") as folder, RedisServer() as redis:
        cluster = RayCluster(Path(folder), redis.url, nodes=_NODES)
        with cluster.running():
            return BenchReport("node-stop", asyncio.run(_measure(cluster)), {"streams": _STREAMS})


async def _measure(cluster: RayCluster) -> tuple[BenchFigure, ...]:
    async with AsyncExitStack() as opened:
        gateway = await join(cluster, opened)
        before = set(gateway.replicas)
        listeners = [StreamListener(gateway, text_of(_WORDS)) for _ in range(_STREAMS)]
        speaking = [asyncio.create_task(each.listen()) for each in listeners]
        while not all(each.has_heard for each in listeners):
            await asyncio.sleep(0.05)
        begins = time.monotonic()
        drained = await asyncio.to_thread(_drain, cluster)
        drained_s = time.monotonic() - begins
        await asyncio.to_thread(cluster.kill, "node 0", signal.SIGTERM)
        await asyncio.gather(*speaking)
        async with asyncio.timeout(_REPLACED_WITHIN_S):
            while len(gateway.replicas) < len(before):
                await asyncio.sleep(0.1)
        replaced = len(set(gateway.replicas) - before)
        after = StreamListener(gateway, text_of(5))
        await after.listen()
    moved = sum(len(each.tried) > 1 for each in listeners)
    return (
        BenchFigure("the node was drained", drained, "", at_least=1),
        BenchFigure("which took", drained_s, "s"),
        BenchFigure("replicas that took the place of its own", replaced, "", at_least=1),
        BenchFigure("streams whole", sum(each.is_complete for each in listeners), "", at_least=_STREAMS),
        BenchFigure("of them moved", moved, "", at_most=0),
        BenchFigure("their underruns", sum(each.underruns for each in listeners), "", at_most=0),
        BenchFigure("a stream after that is whole", after.is_complete, "", at_least=1),
    )


def _drain(cluster: RayCluster) -> bool:
    command = [sys.executable, "-c", _DRAIN, "place-0"]
    environment = cluster.environment | {"RAY_ADDRESS": cluster.address}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()[-1] == "True"
