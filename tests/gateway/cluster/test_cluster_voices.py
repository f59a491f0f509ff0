"""Voices that are cloned at a cluster's gateway: one replica encodes, any replica speaks."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from shared.audio.recordings import recording as sound_file
from shared.cluster.local_replicas import LocalReplicas
from shared.cluster.redis_server import RedisServer
from shared.voices.cosyvoice_bundles import write_random_bundle
from shared.voices.tiny_cosyvoice import BRIEF, pcm, recording, run, speak
from shared.voices.voice_registry_setup import ANNA
from vivavoce.gateway.cluster.replicas.cluster_engine import ClusterEngine
from vivavoce.gateway.cluster.replicas.cluster_voices import EnrollableClusterVoices
from vivavoce.gateway.cluster.replicas.hosted_voices import HostedVoices
from vivavoce.gateway.cluster.shared_store.conditioning import SharedConditioning
from vivavoce.gateway.cluster.shared_store.redis_link import RedisLink
from vivavoce.gateway.cluster.shared_store.shared_voices import SharedVoices
from vivavoce.gateway.voice_registry import NewVoice, VoiceRegistry
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.errors import BadRequest, Overloaded
from vivavoce.tts_engine.voices.packed_prompt import StorablePrompt
from vivavoce.tts_engine.voices.prompt_cache import PromptCache
from vivavoce.tts_engine.voices.recording import Recording

RECORDING = [Recording(recording(), 16_000)]
TEXT = ["A short sentence."]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle") / "tiny"
    write_random_bundle(folder, 2, "tiny", 1)
    return folder


@asynccontextmanager
async def cluster(
    bundle: Path, replicas: int, store: Path | None = None
) -> AsyncIterator[tuple[ClusterEngine, EnrollableClusterVoices, LocalReplicas]]:
    directory = LocalReplicas()
    for _ in range(replicas):
        await directory.add(backend=CosyVoiceBackend.load(bundle, BRIEF))
    engine = await ClusterEngine.connect(directory, EngineConfig(), voice_store=store)
    assert isinstance(engine.voices, EnrollableClusterVoices)
    try:
        yield engine, engine.voices, directory
    finally:
        await engine.aclose()


async def encode(
    voices: EnrollableClusterVoices, recordings: Sequence[Recording], transcript: str
) -> StorablePrompt:
    with ThreadPoolExecutor(1) as thread:
        return await voices.encode_on(thread, recordings, transcript)


def test_a_recording_is_encoded_at_a_replica_and_spoken_as_by_a_local_engine(bundle: Path) -> None:
    async def test() -> None:
        backend = CosyVoiceBackend.load(bundle, BRIEF)
        async with (
            cluster(bundle, 2) as (engine, voices, _),
            await Engine.open(backend=backend, warm_up=False) as local,
        ):
            prompt = await encode(voices, RECORDING, "a tone")
            here = local.voices.encode_recordings(RECORDING, "a tone")
            assert (prompt.id, prompt.to_bytes()) == (here.id, here.to_bytes())
            voice = voices.register_prompt(prompt).id
            assert voice == local.voices.register_prompt(here).id
            spoken = await asyncio.gather(*(speak(engine, TEXT, voice=voice, seed=3) for _ in range(4)))
            assert {pcm(chunks) for chunks in spoken} == {pcm(await speak(local, TEXT, voice=voice, seed=3))}

    run(test())


def test_a_voice_on_the_gateways_file_is_spoken_after_a_restart(bundle: Path, tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(bundle, 1, tmp_path) as (engine, voices, _):
            assert voices.store is not None
            prompt = await asyncio.to_thread(voices.encode_recordings, RECORDING, "a tone")
            stored = voices.store.add(prompt, name="anna")
            first = pcm(await speak(engine, TEXT, voice=stored.id, seed=3))
        async with cluster(bundle, 1, tmp_path) as (engine, _, _):
            assert pcm(await speak(engine, TEXT, voice=stored.id, seed=3)) == first

    run(test())


def test_a_prompt_is_sent_once_and_again_to_a_replica_that_forgot_it(bundle: Path) -> None:
    async def test() -> None:
        async with cluster(bundle, 1) as (engine, voices, directory):
            prompt = await encode(voices, RECORDING, "")
            voice = voices.register_prompt(prompt).id
            (replica,) = directory.replicas
            for _ in range(2):
                await speak(engine, TEXT, voice=voice)
            assert sent_prompts(replica.commands) == [True, False]
            replica.host._voices._prompts = PromptCache(2**20)
            assert pcm(await speak(engine, TEXT, voice=voice))
            assert sent_prompts(replica.commands) == [True, False, False, True]

    run(test())


def sent_prompts(commands: list) -> list[bool]:
    """Of each opening of a stream, whether the prompt came with it."""
    openings = [each.action for each in commands if type(each.action).__name__ == "OpenStream"]
    return [opening.prompt.content is not None for opening in openings]


def test_another_replica_encodes_and_speaks_when_one_is_lost(bundle: Path) -> None:
    async def test() -> None:
        async with cluster(bundle, 2) as (engine, voices, directory):
            first, second = directory.replicas
            first.kill()
            prompt = await encode(voices, RECORDING, "")
            voice = voices.register_prompt(prompt).id
            whole = pcm(await speak(engine, TEXT, voice=voice, seed=3))
            assert sent_prompts(second.commands)[-1] and whole
            second.kill()
            with pytest.raises(Overloaded, match="no replica"):
                await encode(voices, RECORDING, "")

    run(test())


def test_a_bad_recording_is_refused_in_the_words_of_the_encoder(bundle: Path) -> None:
    async def test() -> None:
        async with cluster(bundle, 1) as (_, voices, _):
            short = [Recording(recording(seconds=0.3), 16_000)]
            with pytest.raises(BadRequest, match="recording"):
                await encode(voices, short, "")

    run(test())


@pytest.mark.usefixtures("decoded_in_this_process")
def test_three_gateways_encode_a_recording_once_and_speak_with_each_others_names(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[str] = []
    encode_here = HostedVoices.encode

    async def counted(hosted: HostedVoices, recordings: Sequence[Recording], transcript: str) -> bytes:
        encoded.append(transcript)
        return await encode_here(hosted, recordings, transcript)

    monkeypatch.setattr(HostedVoices, "encode", counted)

    async def test() -> None:
        async with AsyncExitStack() as opened:
            redis = opened.enter_context(RedisServer())
            gateways = []
            for number in range(3):
                engine, voices, _ = await opened.enter_async_context(
                    cluster(bundle, 1, tmp_path / str(number))
                )
                assert voices.store is not None
                link = RedisLink(redis.url)
                opened.push_async_callback(link.aclose)
                registry = VoiceRegistry(voices, conditioning=SharedConditioning(link))
                opened.callback(registry.close)
                gateways.append((engine, registry, SharedVoices(link, voices, voices.store)))
            new = [NewVoice(f"Anna {number}", "a tone") for number in range(3)]
            created = zip(gateways, new, strict=True)
            await asyncio.gather(*(one[1].create(sound_file(), voice, ANNA) for one, voice in created))
            assert encoded == ["a tone"]
            for _, _, sharing in gateways * 2:
                await sharing.exchange()
            spoken = set()
            for engine, registry, _ in gateways:
                for voice in new:
                    chunks = await speak(engine, TEXT, voice=registry.resolve(voice.name, ANNA), seed=3)
                    spoken.add(pcm(chunks))
            assert len(spoken) == 1 and len(encoded) == 1

    run(test())
