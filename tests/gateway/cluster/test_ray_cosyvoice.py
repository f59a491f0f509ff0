"""A CosyVoice bundle through Ray: in one replica, and with its stages in replicas of their own."""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

ray = pytest.importorskip("ray", reason="the extra ray is not installed")
pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Ray has many
    pytest.mark.usefixtures("one_thread"),
]

from ray import serve  # noqa: E402
from ray.util.state import list_actors  # noqa: E402

from shared.tiny_cosyvoice import recording  # noqa: E402
from vivavoce.gateway.cluster.ray.operations import bring_up  # noqa: E402
from vivavoce.gateway.engine_opening import open_engine  # noqa: E402
from vivavoce.gateway.settings import Settings  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.random_bundle import BundleSize, write_random_bundle  # noqa: E402
from vivavoce.models.cosyvoice.config import CosyVoiceVersion  # noqa: E402
from vivavoce.tts_engine.chunk import AudioChunk  # noqa: E402
from vivavoce.tts_engine.engine import Engine  # noqa: E402

TEXT = "Well, who is it, at night? It is me."
CPUS = {"ray_actor_options": {"num_cpus": 0.1}}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundles") / "V2"
    write_random_bundle(folder, CosyVoiceVersion.V2, BundleSize.TINY, seed=1)
    return folder


@pytest.fixture(scope="module")
def deploy(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., None]]:
    """A Ray cluster of this process; the function deploys the bundle as ``cluster up`` does."""
    file = tmp_path_factory.mktemp("cluster") / "cluster.yaml"
    ray.init(address="local", num_cpus=2, include_dashboard=True, log_to_driver=False, dashboard_port=0)
    try:

        def deploy_bundle(stages: str, deployments: dict[str, int]) -> None:
            application = {
                "name": "vivavoce",
                "import_path": "vivavoce.gateway.cluster.ray.application:build",
                "route_prefix": None,
                "args": {"bundle": str(bundle), "executor": "torch", "stages": stages},
                "deployments": [
                    {"name": name, "num_replicas": count, **CPUS} for name, count in deployments.items()
                ],
            }
            file.write_text(json.dumps({"proxy_location": "Disabled", "applications": [application]}))
            bring_up(file, "auto", "127.0.0.1")

        yield deploy_bundle
    finally:
        serve.shutdown()
        ray.shutdown()


async def speak(engine: Engine, seed: int) -> list[AudioChunk]:
    """Speak with a voice that is cloned first."""
    voice = await asyncio.to_thread(engine.voices.enroll, recording(), 16_000, "a tone that wobbles")
    async with engine.stream(voice=voice.id, seed=seed) as stream:
        stream.push_text(TEXT)
        stream.end_input()
        return [chunk async for chunk in stream]


def samples(chunks: list[AudioChunk]) -> np.ndarray:
    return np.frombuffer(b"".join(chunk.pcm for chunk in chunks), "<i2") / 32_768


async def compare(bundle: Path, store: Path, disturb: Callable[[], None] = lambda: None) -> None:
    """Speak here and through the cluster, twice at once; with a disturbance after the first chunk."""
    async with await Engine.open(str(bundle), executor="torch") as here:
        expected = [await speak(here, seed) for seed in (1, 2)]
    engine = await open_engine(Settings(executor="ray", ray_address="auto", voice_store=store))
    try:
        speaking = [asyncio.create_task(speak(engine, seed)) for seed in (1, 2)]
        await asyncio.to_thread(disturb)
        for chunks, wanted in zip(await asyncio.gather(*speaking), expected, strict=True):
            assert [chunk.provenance.speech_ids for chunk in chunks] == [
                chunk.provenance.speech_ids for chunk in wanted
            ]
            assert np.abs(samples(chunks) - samples(wanted)).max() < 1e-4 + 1 / 32_768  # a step of 16 bits
    finally:
        await engine.aclose()


def render_processes() -> list[int]:
    """The process ids of the render replicas that run."""
    actors = list_actors(detail=True, filters=[("state", "=", "ALIVE")])
    return [int(each.pid) for each in actors if each.name and "#render#" in each.name]


def test_a_replica_speaks_with_a_bundle(deploy: Callable[..., None], bundle: Path, tmp_path: Path) -> None:
    deploy("together", {"voice": 1})
    asyncio.run(asyncio.wait_for(compare(bundle, tmp_path), 300))


def test_stages_apart_have_the_samples_of_one_process(
    deploy: Callable[..., None], bundle: Path, tmp_path: Path
) -> None:
    deploy("apart", {"decode": 1, "render": 2})

    def kill_one() -> None:
        os.kill(render_processes()[0], signal.SIGKILL)

    asyncio.run(asyncio.wait_for(compare(bundle, tmp_path), 300))
    assert len(render_processes()) == 2
    asyncio.run(asyncio.wait_for(compare(bundle, tmp_path, kill_one), 300))
