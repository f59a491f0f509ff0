"""Conditioning that gateways share through a real Redis."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shared.audio.recordings import recording
from shared.cluster.redis_server import RedisServer
from shared.voices.voice_registry_setup import ANNA, Encoder, RegistrySetup
from vivavoce.gateway.cluster.shared_store.conditioning import (
    ConditioningPolicy,
    SharedConditioning,
    conditioning_key,
)
from vivavoce.gateway.cluster.shared_store.redis_link import PREFIX, RedisLink
from vivavoce.gateway.voice_registry import NewVoice, VoiceRegistry
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.front_end.voice_prompt import VoicePrompt
from vivavoce.tts_engine.errors import BadRequest
from vivavoce.tts_engine.voices.recording import Recording

SAMPLES = np.linspace(-0.5, 0.5, 48_000, dtype=np.float32)
KEY = conditioning_key([Recording(SAMPLES, 16_000)], "Hello.", "encoders")
VALUE = f"{PREFIX}prompt:{KEY}"
PROMPT = Encoder(CosyVoiceVersion.V2).enroll(SAMPLES, 16_000, "Hello.")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture
def redis(server: RedisServer) -> RedisServer:
    """The server, running and empty."""
    server.stop()
    server.start()
    return server


class Recorder:
    """Encodes, and counts how often."""

    def __init__(self, prompt: VoicePrompt = PROMPT) -> None:
        self.count = 0
        self.prompt = prompt

    async def __call__(self) -> VoicePrompt:
        self.count += 1
        await asyncio.sleep(0.1)
        return self.prompt


@asynccontextmanager
async def gateway(
    redis: RedisServer, policy: ConditioningPolicy | None = None
) -> AsyncIterator[SharedConditioning]:
    link = RedisLink(redis.url)
    try:
        yield SharedConditioning(link, policy)
    finally:
        await link.aclose()


async def in_redis(redis: RedisServer, command: Callable[..., Awaitable[object]]) -> object:
    link = RedisLink(redis.url)
    try:
        return await link.run(command)
    finally:
        await link.aclose()


def test_the_key_tells_recordings_transcripts_and_encoders_apart() -> None:
    parts = [Recording(SAMPLES[:9], 16_000), Recording(SAMPLES[9:], 16_000)]
    keys = {
        KEY,
        conditioning_key([Recording(SAMPLES[:-1], 16_000)], "Hello.", "encoders"),
        conditioning_key([Recording(SAMPLES, 24_000)], "Hello.", "encoders"),
        conditioning_key([Recording(SAMPLES, 16_000)], "Hallo.", "encoders"),
        conditioning_key([Recording(SAMPLES, 16_000)], "Hello.", "others"),
        conditioning_key(parts, "Hello.", "encoders"),
    }
    assert len(keys) == 6
    assert conditioning_key([Recording(SAMPLES.copy(), 16_000)], "Hello.", "encoders") == KEY


def test_three_gateways_asked_at_once_encode_once(redis: RedisServer) -> None:
    encode = Recorder()

    async def ask(_: int) -> VoicePrompt:
        async with gateway(redis) as shared:
            return await shared.get_or_encode(KEY, "Hello.", encode, VoicePrompt.from_bytes)

    async def ask_all() -> list[VoicePrompt]:
        return await asyncio.gather(*map(ask, range(3)))

    assert {prompt.id for prompt in asyncio.run(ask_all())} == {PROMPT.id}
    assert encode.count == 1


@pytest.mark.usefixtures("decoded_in_this_process")
def test_three_registries_enrol_one_recording_and_encode_it_once(redis: RedisServer, tmp_path: Path) -> None:
    setups = [RegistrySetup(tmp_path / str(number)) for number in range(3)]

    async def enroll(setup: RegistrySetup) -> str:
        async with gateway(redis) as shared:
            registry = VoiceRegistry(setup.voices, conditioning=shared)
            try:
                return (await registry.create(recording(), NewVoice("Anna"), ANNA)).content
            finally:
                registry.close()

    async def enroll_all() -> list[str]:
        return await asyncio.gather(*map(enroll, setups))

    contents = asyncio.run(enroll_all())
    assert len(set(contents)) == 1
    assert sum(len(setup.encoder.encoded_s) for setup in setups) == 1
    for setup in setups:
        setup.close()


def test_a_gateway_reads_its_memory_without_redis(redis: RedisServer) -> None:
    encode = Recorder()

    async def ask_twice() -> None:
        async with gateway(redis) as shared:
            await shared.get_or_encode(KEY, "Hello.", encode, VoicePrompt.from_bytes)
            redis.stop()
            await shared.get_or_encode(KEY, "Hello.", encode, VoicePrompt.from_bytes)

    asyncio.run(ask_twice())
    assert encode.count == 1


def test_without_redis_every_gateway_encodes_for_itself(redis: RedisServer) -> None:
    redis.stop()
    encode = Recorder()

    async def ask() -> VoicePrompt:
        async with gateway(redis) as shared:
            return await shared.get_or_encode(KEY, "Hello.", encode, VoicePrompt.from_bytes)

    assert asyncio.run(ask()).id == asyncio.run(ask()).id == PROMPT.id
    assert encode.count == 2


def test_redis_that_goes_away_while_a_recording_is_encoded_loses_nothing(redis: RedisServer) -> None:
    async def encode() -> VoicePrompt:
        redis.stop()
        return PROMPT

    async def ask() -> VoicePrompt:
        async with gateway(redis) as shared:
            return await shared.get_or_encode(KEY, "Hello.", encode, VoicePrompt.from_bytes)

    assert asyncio.run(ask()).id == PROMPT.id


def test_the_lock_of_a_gateway_that_died_expires(redis: RedisServer) -> None:
    encode = Recorder()

    async def ask() -> None:
        await in_redis(redis, lambda client: client.set(f"{PREFIX}encoding:{KEY}", "dead", px=300))
        async with gateway(redis) as shared:
            await shared.get_or_encode(KEY, "Hello.", encode, VoicePrompt.from_bytes)

    asyncio.run(ask())
    assert encode.count == 1


def test_a_lock_is_renewed_while_a_recording_is_encoded(redis: RedisServer) -> None:
    policy = ConditioningPolicy(lock_s=0.5)
    encoding = 0

    async def encode() -> VoicePrompt:
        nonlocal encoding
        encoding += 1
        await asyncio.sleep(2.0)
        return PROMPT

    async def ask(_: int) -> None:
        async with gateway(redis, policy) as shared:
            await shared.get_or_encode(KEY, "Hello.", encode, VoicePrompt.from_bytes)

    async def ask_both() -> None:
        await asyncio.gather(*map(ask, range(2)))

    asyncio.run(ask_both())
    assert encoding == 1


def test_an_error_of_the_encoder_frees_the_lock(redis: RedisServer) -> None:
    async def refuse() -> VoicePrompt:
        raise BadRequest("too short")

    async def ask() -> None:
        async with gateway(redis) as shared:
            with pytest.raises(BadRequest, match="too short"):
                await shared.get_or_encode(KEY, "Hello.", refuse, VoicePrompt.from_bytes)
        assert await in_redis(redis, lambda client: client.exists(f"{PREFIX}encoding:{KEY}")) == 0

    asyncio.run(ask())


def shared_value(prompt: VoicePrompt, name: str = VALUE) -> bytes:
    content = prompt.to_bytes()
    return hashlib.sha256(name.encode() + b"\0" + content).digest() + content


FLIPPED = bytearray(shared_value(PROMPT))
FLIPPED[-400] ^= 1


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x80\x04K\x01.",
        bytes(FLIPPED),
        shared_value(PROMPT)[:-1],
        shared_value(replace(PROMPT, transcript="Other words.")),
        shared_value(replace(PROMPT, mel=PROMPT.mel[:40])),
        shared_value(PROMPT, f"{PREFIX}prompt:{64 * 'a'}"),  # the answer to another question
    ],
    ids=["empty", "pickle", "bit", "short", "transcript", "shape", "of another recording"],
)
def test_a_wrong_value_is_made_again(redis: RedisServer, value: bytes) -> None:
    encode = Recorder()

    async def ask() -> VoicePrompt:
        await in_redis(redis, lambda client: client.set(VALUE, value))
        async with gateway(redis) as shared:
            return await shared.get_or_encode(KEY, "Hello.", encode, VoicePrompt.from_bytes)

    assert asyncio.run(ask()).id == PROMPT.id
    assert encode.count == 1
    assert asyncio.run(in_redis(redis, lambda client: client.get(VALUE))) == shared_value(PROMPT)


def test_values_expire_and_the_least_recently_used_go_first(redis: RedisServer) -> None:
    size = len(shared_value(PROMPT))
    policy = ConditioningPolicy(max_bytes=2 * size, keep_s=1000)

    async def fill() -> None:
        async with gateway(redis, policy) as shared:
            for key in "abc":
                await shared.get_or_encode(key, "Hello.", Recorder(), VoicePrompt.from_bytes)
        kept = await in_redis(
            redis, lambda client: client.exists(*(f"{PREFIX}prompt:{key}" for key in "abc"))
        )
        assert kept == 2
        assert await in_redis(redis, lambda client: client.exists(f"{PREFIX}prompt:a")) == 0
        lifetime_s = await in_redis(redis, lambda client: client.ttl(f"{PREFIX}prompt:c"))
        assert isinstance(lifetime_s, int) and 0 < lifetime_s <= 1000

    asyncio.run(fill())


def test_a_removed_voice_leaves_nothing_in_redis(redis: RedisServer) -> None:
    async def remove() -> None:
        async with gateway(redis) as shared:
            await shared.get_or_encode(KEY, "Hello.", Recorder(), VoicePrompt.from_bytes)
            await shared.forget(PROMPT.id)
        assert await in_redis(redis, lambda client: client.exists(VALUE)) == 0

    asyncio.run(remove())


def test_a_prompt_is_the_same_as_bytes_and_on_file(tmp_path: Path) -> None:
    PROMPT.save(tmp_path / "a.npz")
    assert (tmp_path / "a.npz").read_bytes() == PROMPT.to_bytes()
    assert (
        VoicePrompt.from_bytes(PROMPT.to_bytes()).id == VoicePrompt.load(tmp_path / "a.npz").id == PROMPT.id
    )
