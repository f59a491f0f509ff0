"""Conditioning of voices that gateways share: a recording is encoded once for all of them.

    memory        of this gateway
    Redis         by key: SHA-256 of the recording, its transcript and the digest of the encoders
    encode it     by one gateway, while the others wait for its result

Named voices are in the files of a ``VoiceStore``, where an id leads to content. No id is part of a key:
voices of two ids share what was encoded once, and a bundle with other encoders encodes again.

    gateway 1   SET lock NX PX ----> encode, renewing the lock ----> SET value, delete lock
    gateway 2        SET lock NX fails, poll the value ------------------> value
    gateway 1 dies: its lock expires, and gateway 2 gets it

A value is the file of a prompt, arrays without pickle, after the SHA-256 of its name in Redis and the file. A
value that is damaged, of another name, format or transcript is encoded again. Without Redis, each gateway
encodes for itself. Values expire ``keep_s`` after their last use; beyond ``max_bytes`` the least recently
used go first.

Source: redis.io/docs/latest/commands/set (NX, PX).
"""

import asyncio
import hashlib
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from ....tts_engine.voices.enrollable import EnrollableVoices
from ....tts_engine.voices.packed_prompt import StorablePrompt
from ....tts_engine.voices.prompt_cache import PromptCache
from ....tts_engine.voices.recording import Recording
from ...background_tasks import cancel_and_wait
from ...enrolment import Encode
from .redis_link import PREFIX, RedisAway, RedisLink, send

if TYPE_CHECKING:
    from redis.asyncio import Redis

logger = logging.getLogger(__name__)

ReadPrompt = Callable[[bytes], StorablePrompt]  # raises ValueError for what is no prompt

_DIGEST_BYTES: Final = 32
_RECENTLY_USED: Final = f"{PREFIX}prompts"  # sorted set of "KEY BYTES" by Unix time of the last use
# Only the holder of a lock may renew or delete it.
_RENEW_LOCK = "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('pexpire', KEYS[1], ARGV[2]) or 0"
_DELETE_LOCK = "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1]) or 0"


@dataclass(frozen=True, slots=True)
class ConditioningPolicy:
    """Limits of shared conditioning."""

    keep_s: int = 86_400  # in Redis, after the last use
    max_bytes: int = 4 * 2**30  # in Redis, of all gateways
    max_memory_bytes: int = 128 * 2**20  # of this gateway
    lock_s: float = 10.0  # after which the lock of a gateway that died is free
    poll_s: float = 0.05  # while another gateway encodes
    max_wait_s: float = 60.0  # for another gateway, before this one encodes for itself


def conditioning_key(recordings: Sequence[Recording], transcript: str, encoder_digest: str) -> str:
    """The key of the conditioning of a voice's recordings, 64 hexadecimal digits."""
    rates = [recording.sample_rate for recording in recordings]
    digest = hashlib.sha256(json.dumps([rates, transcript, encoder_digest]).encode())
    for recording in recordings:
        samples = np.ascontiguousarray(recording.samples, np.float32).tobytes()
        digest.update(len(samples).to_bytes(8, "little") + samples)
    return digest.hexdigest()


class SharedConditioning:
    """The conditioning of recordings, by ``conditioning_key``. Belongs to the event loop of its link."""

    def __init__(self, link: RedisLink, policy: ConditioningPolicy | None = None) -> None:
        self._link = link
        self._policy = policy or ConditioningPolicy()
        self._memory = PromptCache(self._policy.max_memory_bytes)

    async def encode(
        self, cloning: EnrollableVoices, recordings: Sequence[Recording], transcript: str, encode: Encode
    ) -> StorablePrompt:
        """As ``PromptSharing.encode``."""
        key = await asyncio.to_thread(conditioning_key, recordings, transcript, cloning.encoder_digest)
        return await self.get_or_encode(key, transcript, encode, cloning.read_prompt)

    async def get_or_encode(
        self, key: str, transcript: str, encode: Encode, read: ReadPrompt
    ) -> StorablePrompt:
        """The prompt of a recording; calls ``encode`` if no gateway has it. Raises what ``encode`` raises."""
        prompt = None if key in self._memory else await self._share(key, transcript, encode, read)
        return self._memory.get(key, lambda: prompt)  # type: ignore[arg-type,return-value]

    async def forget(self, prompt_id: str) -> None:
        """Delete a removed voice's prompt from Redis; if Redis is away, it expires there."""
        members = f"{PREFIX}content:{prompt_id}"

        async def delete(redis: "Redis") -> None:
            keys = [key.decode() for key in await send(redis, "SMEMBERS", members)]
            await redis.delete(members, *(_value_name(key) for key in keys))

        with suppress(RedisAway):
            await self._link.run(delete)

    async def _share(self, key: str, transcript: str, encode: Encode, read: ReadPrompt) -> StorablePrompt:
        token, give_up_at = secrets.token_hex(8), time.monotonic() + self._policy.max_wait_s
        while time.monotonic() < give_up_at:
            try:
                prompt = await self._fetch(key, transcript, read)
                if prompt is not None:
                    return prompt
                is_locked = await self._lock(key, token)
            except RedisAway:
                return await encode()
            if is_locked:
                async with self._renewed_lock(key, token):
                    return await self._encode_unless_kept(key, transcript, encode, read)
            await asyncio.sleep(self._policy.poll_s)
        return await encode()

    async def _encode_unless_kept(
        self, key: str, transcript: str, encode: Encode, read: ReadPrompt
    ) -> StorablePrompt:
        """Look again, because the lock may have been free because another gateway has just finished."""
        with suppress(RedisAway):
            prompt = await self._fetch(key, transcript, read)
            if prompt is not None:
                return prompt
        prompt = await encode()
        with suppress(RedisAway):
            await self._put(key, prompt)
        return prompt

    async def _fetch(self, key: str, transcript: str, read: ReadPrompt) -> StorablePrompt | None:
        async def get(redis: "Redis") -> bytes | None:
            value: bytes | None = await redis.getex(_value_name(key), ex=self._policy.keep_s)
            if value is not None:
                await redis.zadd(_RECENTLY_USED, {f"{key} {len(value)}": time.time()})
            return value

        value = await self._link.run(get)
        if value is None:
            return None
        try:
            return unpack_value(_value_name(key), value, transcript, read)
        except ValueError as fault:
            logger.warning("a voice's conditioning in Redis is not used, and made again: %s", fault)
            return None

    async def _put(self, key: str, prompt: StorablePrompt) -> None:
        value = pack_value(_value_name(key), prompt)
        keep_s = self._policy.keep_s

        async def put(redis: "Redis") -> None:
            members = f"{PREFIX}content:{prompt.id}"
            async with redis.pipeline() as pipeline:
                pipeline.set(_value_name(key), value, ex=keep_s)
                pipeline.zadd(_RECENTLY_USED, {f"{key} {len(value)}": time.time()})
                pipeline.zremrangebyscore(_RECENTLY_USED, 0, time.time() - keep_s)
                pipeline.sadd(members, key)
                pipeline.expire(members, keep_s)
                await pipeline.execute()
            await self._evict(redis)

        await self._link.run(put)

    async def _evict(self, redis: "Redis") -> None:
        """Delete the least recently used values beyond ``max_bytes``."""
        entries = [entry.decode() for entry in await redis.zrange(_RECENTLY_USED, 0, -1)]
        excess = sum(int(entry.split()[1]) for entry in entries) - self._policy.max_bytes
        for entry in entries:
            if excess <= 0:
                return
            key, size = entry.split()
            await redis.delete(_value_name(key))
            await redis.zrem(_RECENTLY_USED, entry)
            excess -= int(size)

    async def _lock(self, key: str, token: str) -> bool:
        lock_ms = round(1000 * self._policy.lock_s)
        return bool(
            await self._link.run(lambda redis: redis.set(_lock_name(key), token, nx=True, px=lock_ms))
        )

    @asynccontextmanager
    async def _renewed_lock(self, key: str, token: str) -> AsyncIterator[None]:
        renewing = asyncio.create_task(self._renew(key, token))
        try:
            yield
        finally:
            await cancel_and_wait(renewing)
            with suppress(RedisAway):
                await self._link.run(
                    lambda redis: send(redis, "EVAL", _DELETE_LOCK, 1, _lock_name(key), token)
                )

    async def _renew(self, key: str, token: str) -> None:
        lock_ms = round(1000 * self._policy.lock_s)
        while True:
            await asyncio.sleep(self._policy.lock_s / 3)
            with suppress(RedisAway):
                await self._link.run(
                    lambda redis: send(redis, "EVAL", _RENEW_LOCK, 1, _lock_name(key), token, lock_ms)
                )


def _value_name(key: str) -> str:
    return f"{PREFIX}prompt:{key}"


def _lock_name(key: str) -> str:
    return f"{PREFIX}encoding:{key}"


def pack_value(name: str, prompt: StorablePrompt) -> bytes:
    """The value of a prompt under a name in Redis: the SHA-256 of the name and its file, and the file."""
    content = prompt.to_bytes()
    return _digest(name, content) + content


def unpack_value(name: str, value: bytes, transcript: str, read: ReadPrompt) -> StorablePrompt:
    """Raises ValueError for a value that ``pack_value`` did not make of this name and this transcript."""
    digest, content = value[:_DIGEST_BYTES], value[_DIGEST_BYTES:]
    if _digest(name, content) != digest:
        raise ValueError("it is damaged, or that of another name")
    prompt = read(content)
    if prompt.transcript != transcript:
        raise ValueError("it belongs to another transcript")
    return prompt


def _digest(name: str, content: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + content).digest()
