"""Replicas on several nodes of a Ray cluster: a node that is killed, and one that takes its place."""

import asyncio
from collections.abc import Iterator

import pytest

ray = pytest.importorskip("ray", reason="the extra ray is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray has many

from ray import serve  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

from benches.cluster.listener import StreamListener, text_of  # noqa: E402
from shared.cluster.ray_replicas import CostlySettings, build  # noqa: E402
from vivavoce.gateway.cluster.ray.application import APPLICATION  # noqa: E402
from vivavoce.gateway.cluster.ray.ray_engine import open_ray_engine  # noqa: E402
from vivavoce.gateway.cluster.ray.replica_settings import ReplicaSettings  # noqa: E402
from vivavoce.gateway.cluster.replicas.cluster_engine import ClusterEngine  # noqa: E402
from vivavoce.tts_engine.engine import EngineConfig  # noqa: E402

STREAMS = 20
REPLICA_NODE = {"num_cpus": 1, "resources": {"voice": 1}}  # each has room for one replica


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A head node, where this process is the gateway, and two nodes with a replica each."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        for _ in range(2):
            cluster.add_node(**REPLICA_NODE)
        ray.init(address=cluster.address, log_to_driver=False)
        serve.start(proxy_location="Disabled")
        bound = build(CostlySettings())
        placed = {"num_cpus": 0.1, "resources": {"voice": 1}}
        deployment = bound._bound_deployment.options(num_replicas=2, ray_actor_options=placed)
        serve.run(deployment.bind(*bound._bound_deployment.init_args), name=APPLICATION, route_prefix=None)
        yield cluster
    finally:
        serve.shutdown()  # else a later Ray of this process looks for this one's controller
        ray.shutdown()
        cluster.shutdown()


async def wait_for_replicas(engine: ClusterEngine, count: int) -> None:
    async with asyncio.timeout(90):
        while len(engine.replicas) != count:
            await asyncio.sleep(0.1)


def test_streams_of_a_killed_node_go_on_at_another_node_and_a_new_node_takes_its_place(
    cluster: Cluster,
) -> None:
    async def run() -> None:
        async with await open_ray_engine(cluster.address, ReplicaSettings(), EngineConfig()) as engine:
            await wait_for_replicas(engine, 2)
            before = set(engine.replicas)
            listeners = [StreamListener(engine, text_of(16)) for _ in range(STREAMS)]
            speaking = [asyncio.create_task(each.listen()) for each in listeners]
            while not all(each.has_heard for each in listeners):
                await asyncio.sleep(0.02)
            await asyncio.to_thread(cluster.remove_node, cluster.list_all_nodes()[-1], False)
            await asyncio.gather(*speaking)
            assert all(each.is_complete for each in listeners)
            assert sum(len(each.tried) == 2 for each in listeners) in range(5, 16)
            (left,) = engine.replicas
            assert left in before
            cluster.add_node(**REPLICA_NODE)
            await wait_for_replicas(engine, 2)
            assert left in engine.replicas and before != set(engine.replicas)

    asyncio.run(asyncio.wait_for(run(), 300))
