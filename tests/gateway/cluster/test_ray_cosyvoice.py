"""A CosyVoice bundle through Ray: in one replica, and with its stages in replicas of their own."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from shared.gateways.made_settings import make_settings

ray = pytest.importorskip("ray", reason="the extra ray is not installed")
pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Ray has many
]

from ray import serve  # noqa: E402
from ray.util.state import list_actors  # noqa: E402

from shared.audio.recordings import recording as sound_file  # noqa: E402
from shared.cluster.redis_server import RedisServer  # noqa: E402
from shared.voices.tiny_cosyvoice import recording  # noqa: E402
from shared.voices.voice_registry_setup import ANNA  # noqa: E402
from vivavoce.gateway.cluster.ray.operations import bring_up, deployment_states  # noqa: E402
from vivavoce.gateway.cluster.replicas.cluster_engine import ClusterEngine  # noqa: E402
from vivavoce.gateway.cluster.replicas.cluster_voices import EnrollableClusterVoices  # noqa: E402
from vivavoce.gateway.cluster.replicas.replica_socket import SocketChannel  # noqa: E402
from vivavoce.gateway.cluster.shared_store.conditioning import SharedConditioning  # noqa: E402
from vivavoce.gateway.cluster.shared_store.redis_link import RedisLink  # noqa: E402
from vivavoce.gateway.cluster.shared_store.shared_voices import SharedVoices  # noqa: E402
from vivavoce.gateway.engine_opening import open_engine  # noqa: E402
from vivavoce.gateway.voice_registry import NewVoice, VoiceRegistry  # noqa: E402
from vivavoce.models.bundle_files import BundleSize  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.random_bundle import write_random_bundle  # noqa: E402
from vivavoce.models.cosyvoice.config import CosyVoiceVersion  # noqa: E402
from vivavoce.tts_engine.chunk import AudioChunk  # noqa: E402
from vivavoce.tts_engine.engine import Engine  # noqa: E402
from vivavoce.tts_engine.errors import Overloaded, VivavoceError  # noqa: E402
from vivavoce.tts_engine.stream import Stream  # noqa: E402
from vivavoce.tts_engine.voices.recording import Recording  # noqa: E402

TEXT = "Who is it? It is me."
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
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
            enrolment = "apart" if "enrolment" in deployments else "together"
            application = {
                "name": "vivavoce",
                "import_path": "vivavoce.gateway.cluster.ray.application:build",
                "route_prefix": None,
                "args": {
                    **{"bundle": str(bundle), "executor": "torch"},
                    **{"stages": stages, "enrolment": enrolment},
                },
                "deployments": [
                    {"name": name, "num_replicas": count, **CPUS} for name, count in deployments.items()
                ],
            }
            file.write_text(json.dumps({"proxy_location": "Disabled", "applications": [application]}))
            bring_up(file, "auto", "127.0.0.1")
            for name, count in deployments.items():  # a gateway waits for 30 s, a busy machine takes longer
                wait_for_running(name, count)

        yield deploy_bundle
    finally:
        serve.shutdown()
        ray.shutdown()


async def read(stream: Stream) -> list[AudioChunk]:
    """Speak the text."""
    async with stream:
        stream.push_text(TEXT)
        stream.end_input()
        return [chunk async for chunk in stream]


async def speak(engine: Engine, seed: int) -> list[AudioChunk]:
    """Speak with a voice that is cloned first."""
    voice = await asyncio.to_thread(engine.voices.enroll, recording(), 16_000, "a tone that wobbles")
    return await read(engine.stream(voice=voice.id, seed=seed, trace_id=TRACE_ID))


def samples(chunks: list[AudioChunk]) -> np.ndarray:
    return np.frombuffer(b"".join(chunk.pcm for chunk in chunks), "<i2") / 32_768


@pytest.fixture(scope="module")
def expected(bundle: Path) -> list[list[AudioChunk]]:
    """What an engine of this process speaks, by seed from 1."""

    async def speak_here() -> list[list[AudioChunk]]:
        async with await Engine.open(str(bundle), executor="torch") as here:
            return [await speak(here, seed) for seed in (1, 2)]

    return asyncio.run(speak_here())


async def compare(
    expected: list[list[AudioChunk]],
    store: Path,
    steps: set[tuple[str, str]],
    disturb: Callable[[], None] = lambda: None,
) -> None:
    """Speak through the cluster, twice at once, as here; with a disturbance after the start.

    steps: deployments with their steps, which the gateway's metrics show.
    """
    engine = await open_engine(
        make_settings(engine_executor=f"ray:{ray.get_runtime_context().gcs_address}", voices_store=store)
    )
    try:
        speaking = [asyncio.create_task(speak(engine, seed)) for seed in (1, 2)]
        await asyncio.to_thread(disturb)
        for chunks, wanted in zip(await asyncio.gather(*speaking), expected, strict=True):
            assert [chunk.provenance.speech_ids for chunk in chunks] == [
                chunk.provenance.speech_ids for chunk in wanted
            ]
            assert np.abs(samples(chunks) - samples(wanted)).max() < 1e-4 + 1 / 32_768  # a step of 16 bits
        async with asyncio.timeout(30):
            while not steps_in_metrics(engine) >= steps:
                await asyncio.sleep(0.1)
    finally:
        await engine.aclose()


def steps_in_metrics(engine: Engine) -> set[tuple[str, str]]:
    """The deployments whose steps the gateway's metrics have, with the steps' stages."""
    return {
        (sample.labels["deployment"], sample.labels["stage"])
        for family in engine.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "vivavoce_replica_step_seconds_count"
    }


def traced_deployments() -> set[str]:
    """The deployments whose replicas name the trace in the log files that Ray Serve keeps of them."""
    logs = Path("/tmp/ray", ray.get_runtime_context().get_session_name(), "logs", "serve")
    files = logs.glob("replica_vivavoce_*.log")
    return {file.name.split("_")[2] for file in files if f"trace {TRACE_ID}: " in file.read_text()}


def wait_for_running(deployment: str, replicas: int) -> None:
    """Wait until a deployment has its replicas."""
    give_up_at = time.monotonic() + 240
    while time.monotonic() < give_up_at:
        states = [each for each in deployment_states("auto") if each.deployment == deployment]
        if [each.replicas.get("RUNNING") for each in states] == [replicas]:
            return
        time.sleep(0.5)
    raise AssertionError(f"{deployment} has no {replicas} replicas")


def render_processes() -> list[int]:
    """The process ids of the render replicas that run."""
    address = ray.get_runtime_context().gcs_address  # other tests may run another Ray at the same time
    actors = list_actors(address, detail=True, filters=[("state", "=", "ALIVE")])
    return [int(each.pid) for each in actors if each.name and "#render#" in each.name]


def test_a_replica_speaks_with_a_bundle(
    deploy: Callable[..., None], expected: list[list[AudioChunk]], tmp_path: Path
) -> None:
    deploy("together", {"voice": 1})
    asyncio.run(asyncio.wait_for(compare(expected, tmp_path, {("voice", "render")}), 300))
    assert traced_deployments() == {"voice"}


@pytest.mark.usefixtures("decoded_in_this_process")
def test_three_gateways_enrol_a_recording_once_and_every_replica_speaks_it_alike(
    deploy: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy("together", {"voice": 2})
    encoded: list[str] = []
    encode_there = SocketChannel.encode

    async def counted(
        channel: SocketChannel, recordings: Sequence[Recording], transcript: str
    ) -> bytes | VivavoceError:
        encoded.append(transcript)
        return await encode_there(channel, recordings, transcript)

    monkeypatch.setattr(SocketChannel, "encode", counted)

    async def test() -> None:
        async with AsyncExitStack() as opened:
            redis = opened.enter_context(RedisServer())
            gateways = []
            for number in range(3):
                store = tmp_path / str(number)
                engine = await open_engine(
                    make_settings(
                        engine_executor=f"ray:{ray.get_runtime_context().gcs_address}", voices_store=store
                    )
                )
                opened.push_async_callback(engine.aclose)
                assert isinstance(engine, ClusterEngine)
                assert isinstance(engine.voices, EnrollableClusterVoices) and engine.voices.store
                link = RedisLink(redis.url)
                opened.push_async_callback(link.aclose)
                registry = VoiceRegistry(engine.voices, conditioning=SharedConditioning(link))
                opened.callback(registry.close)
                sharing = SharedVoices(link, engine.voices, engine.voices.store)
                gateways.append((engine, registry, sharing))
                while len(engine.replicas) < 2:
                    await asyncio.sleep(0.1)
            await asyncio.gather(
                *(
                    registry.create(sound_file(), NewVoice(f"Anna {number}", "a tone"), ANNA)
                    for number, (_, registry, _) in enumerate(gateways)
                )
            )
            assert encoded == ["a tone"]
            for _, _, sharing in gateways * 2:
                await sharing.exchange()
            spoken: list[np.ndarray] = []
            speakers: set[str] = set()
            # A slow machine has room for one stream at a time, which any replica may get.
            for number, (engine, registry, _) in enumerate(cycle(gateways)):
                if number >= len(gateways) and len(speakers) == 2:
                    break
                voice = registry.resolve("Anna 1", ANNA)
                for chunks, tried in await asyncio.gather(
                    *(speak_when_admitted(engine, voice) for _ in range(2))
                ):
                    spoken.append(samples(chunks))
                    speakers |= tried
            for each in spoken[1:]:  # in other batches
                assert np.abs(each - spoken[0]).max() < 1e-4 + 1 / 32_768
            assert encoded == ["a tone"]

    asyncio.run(asyncio.wait_for(test(), 300))


async def speak_when_admitted(engine: Engine, voice: str | None) -> tuple[list[AudioChunk], set[str]]:
    """The chunks of a stream, which waits until the replicas have room, and the replicas that it tried."""
    while True:
        try:
            stream = engine.stream(voice=voice, seed=3)
            return await read(stream), set(getattr(stream, "tried", ()))
        except Overloaded:  # at once, or when the text has waited for room
            await asyncio.sleep(0.2)


async def cancel_together(store: Path) -> None:
    """Cancel several streams in one batch of commands; then speak one."""
    engine = await open_engine(
        make_settings(engine_executor=f"ray:{ray.get_runtime_context().gcs_address}", voices_store=store)
    )
    try:
        streams = list[Stream]()
        with suppress(Overloaded):  # a slow machine has room for fewer
            streams.extend(engine.stream(seed=seed) for seed in range(4))
        assert len(streams) > 1
        for stream in streams:
            stream.push_text(TEXT)
        await asyncio.gather(*(anext(stream) for stream in streams))
        for stream in streams:
            stream.cancel()
        chunks, _ = await speak_when_admitted(engine, None)
        assert chunks[-1].final
    finally:
        await engine.aclose()


def test_stages_apart_have_the_samples_of_one_process(
    deploy: Callable[..., None], expected: list[list[AudioChunk]], tmp_path: Path
) -> None:
    deploy("apart", {"decode": 1, "render": 2, "enrolment": 1})

    def kill_one() -> None:
        os.kill(render_processes()[0], signal.SIGKILL)

    steps = {("decode", "decode"), ("decode", "render"), ("render", "render"), ("enrolment", "enrol")}
    asyncio.run(asyncio.wait_for(compare(expected, tmp_path, steps), 300))
    assert traced_deployments() >= {"decode", "render"}
    asyncio.run(asyncio.wait_for(cancel_together(tmp_path), 300))
    assert len(render_processes()) == 2
    asyncio.run(asyncio.wait_for(compare(expected, tmp_path, steps, kill_one), 300))
