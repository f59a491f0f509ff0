"""Replicas on a Ray cluster of this machine: killed, replaced and deployed anew under streams."""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

ray = pytest.importorskip("ray", reason="the extra ray is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray has many

from click.testing import CliRunner  # noqa: E402
from ray import serve  # noqa: E402

from shared.cluster.ray_replicas import join_here  # noqa: E402
from shared.engine.standin_backend import StandInBackend  # noqa: E402
from vivavoce.gateway.cluster.replicas import waiting_streams  # noqa: E402
from vivavoce.gateway.cluster.replicas.cluster_engine import ClusterEngine  # noqa: E402
from vivavoce.tts_engine.chunk import AudioChunk  # noqa: E402
from vivavoce.tts_engine.engine import Engine  # noqa: E402
from vivavoce.tts_engine.stream import Stream  # noqa: E402

TEXT = "One two three four, five six seven. Eight nine ten, and eleven! Twelve thirteen fourteen fifteen."
WORDS = [word.strip(",.!") for word in TEXT.split()]


def config(replicas: int, **args: object) -> str:
    application = {
        "name": "vivavoce",
        "import_path": "shared.cluster.ray_replicas:build",
        "route_prefix": None,
        "args": args,
        "deployments": [
            {
                "name": args.get("deployment", "voice"),
                "num_replicas": replicas,
                "ray_actor_options": {"num_cpus": 0.1},
            }
        ],
    }
    return json.dumps({"proxy_location": "Disabled", "applications": [application]})  # JSON is YAML


def run_cluster_command(*arguments: str) -> str:
    from vivavoce.gateway.cluster.commands import cluster

    result = CliRunner().invoke(cluster, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def deploy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], None]]:
    """A Ray cluster of this process; the function deploys a configuration as an operator does."""
    file = tmp_path_factory.mktemp("cluster") / "cluster.yaml"
    ray.init(address="local", num_cpus=2, include_dashboard=True, log_to_driver=False, dashboard_port=0)
    os.environ.pop("RAY_AUTH_MODE", None)  # so that gateways with an address find the token as a user's do
    try:

        def deploy_config(text: str) -> None:
            file.write_text(text)
            run_cluster_command("up", str(file))

        yield deploy_config
        assert run_cluster_command("down", str(file)).endswith("Ended: vivavoce.\n")  # Ray may speak first
    finally:
        serve.shutdown()
        ray.shutdown()


def with_engine(test: Callable[[ClusterEngine], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        engine = await join_here()
        try:
            await test(engine)
        finally:
            await engine.aclose()

    asyncio.run(run())


async def speak(stream: Stream, *, pace: float = 0.0) -> list[AudioChunk]:
    """Speak the text; with a pace, take chunks as a listener does, at a multiple of real time."""
    chunks = []
    async with stream:
        stream.push_text(TEXT)
        stream.end_input()
        async for chunk in stream:
            chunks.append(chunk)
            if pace:
                await asyncio.sleep(chunk.seconds / pace)
    return chunks


def heard_words(chunks: list[AudioChunk]) -> list[str]:
    return [word.text for chunk in chunks for word in chunk.words]


async def wait_for_replicas(engine: ClusterEngine, count: int) -> None:
    async with asyncio.timeout(60):
        while len(engine.replicas) != count:
            await asyncio.sleep(0.1)


def reporting_replicas(engine: ClusterEngine) -> set[str]:
    """The replicas that have rendered speech, as the gateway's metrics show them."""
    return {
        sample.labels["replica"]
        for family in engine.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "vivavoce_replica_audio_seconds_total" and sample.value > 0
    }


def process_of(replica: str) -> int:
    """The process id of a replica, from Ray's list of the actors that run here."""
    import ray
    from ray.util.state import list_actors

    address = ray.get_runtime_context().gcs_address  # other tests may run another Ray at the same time
    actors = list_actors(address, detail=True)
    found = [each.pid for each in actors if each.name and each.name.endswith(replica)]
    assert len(found) == 1
    return int(found[0])


def test_streams_over_ray_have_the_samples_of_a_local_engine(deploy: Callable[[str], None]) -> None:
    deploy(config(2))

    async def compare(engine: ClusterEngine) -> None:
        await wait_for_replicas(engine, 2)
        async with await Engine.open(backend=StandInBackend()) as local:
            here = await speak(local.stream())
        for there in await asyncio.gather(*(speak(engine.stream()) for _ in range(20))):
            assert b"".join(chunk.pcm for chunk in there) == b"".join(chunk.pcm for chunk in here)
            assert [chunk.words for chunk in there] == [chunk.words for chunk in here]
        async with asyncio.timeout(30):  # one scrape has all of them
            while reporting_replicas(engine) != set(engine.replicas):
                await asyncio.sleep(0.1)

    with_engine(compare)
    assert "voice: HEALTHY, 2 running" in run_cluster_command("status")


def test_streams_of_a_killed_replica_go_on_at_another_one(deploy: Callable[[str], None]) -> None:
    deploy(config(2))

    async def kill(engine: ClusterEngine) -> None:
        await wait_for_replicas(engine, 2)
        streams = [engine.stream() for _ in range(20)]
        victim = engine.replicas[0]
        speaking = [asyncio.create_task(speak(stream, pace=4.0)) for stream in streams]
        await asyncio.sleep(0.5)
        os.kill(process_of(victim), signal.SIGKILL)
        for stream, chunks in zip(streams, await asyncio.gather(*speaking), strict=True):
            assert heard_words(chunks) == WORDS
            assert len(stream.tried) == (2 if victim in stream.tried else 1)
        assert sum(victim in stream.tried for stream in streams) in range(5, 16)
        await wait_for_replicas(engine, 2)  # Serve starts another one
        assert victim not in engine.replicas

    with_engine(kill)


@pytest.mark.slow
def test_a_replica_that_stands_still_for_5_s_loses_its_streams_to_another_and_serves_again(
    deploy: Callable[[str], None],
) -> None:
    deploy(config(2))

    async def stop(engine: ClusterEngine) -> None:
        await wait_for_replicas(engine, 2)
        streams = [engine.stream() for _ in range(20)]
        speaking = [asyncio.create_task(speak(stream, pace=2.0)) for stream in streams]
        stopped = process_of(engine.replicas[0])
        os.kill(stopped, signal.SIGSTOP)
        try:
            await asyncio.sleep(5.0)
        finally:
            os.kill(stopped, signal.SIGCONT)
        assert all(heard_words(chunks) == WORDS for chunks in await asyncio.gather(*speaking))
        await wait_for_replicas(engine, 2)  # it, or the one that Serve started in its place
        for chunks in await asyncio.gather(*(speak(engine.stream()) for _ in range(4))):
            assert heard_words(chunks) == WORDS

    with_engine(stop)


@pytest.mark.slow
def test_a_deployment_is_replaced_and_then_gets_another_name_under_streams(
    deploy: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine no replica is there for longer than streams wait.
    monkeypatch.setattr(waiting_streams, "MAX_WAIT_S", 60.0)
    deploy(config(2))

    async def replace(engine: ClusterEngine) -> None:
        await wait_for_replicas(engine, 2)
        ended = asyncio.Event()

        async def speak_on() -> int:
            count = 0
            while not ended.is_set():
                assert heard_words(await speak(engine.stream(), pace=2.0)) == WORDS
                count += 1
            return count

        speaking = [asyncio.create_task(speak_on()) for _ in range(20)]
        for changed in (config(2, step_s=0.002), config(2, deployment="decode")):
            before = set(engine.replicas)
            await asyncio.to_thread(deploy, changed)
            async with asyncio.timeout(90):
                while set(engine._links) & before or len(engine.replicas) < 2:
                    await asyncio.sleep(0.1)
        ended.set()
        counts = await asyncio.gather(*speaking)
        assert min(counts) >= 1
        assert engine.metrics.failures._value.get() == 0

    with_engine(replace)
