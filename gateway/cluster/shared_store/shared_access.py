"""Keys, limits and revocations that gateways share through Redis.

No request waits for Redis. A gateway decides from its own keys file and counters; a task exchanges, several
times a second, what was charged and which keys exist:

    usage        hash; "KEY_ID UNIT": how much all gateways have charged. What others charged is taken from
                 the gateway's own buckets, so that together they stay near the limit of one
    open:KEY_ID  hash; gateway: "STREAMS TIME CALLS PROGRAMS SOCKETS" that the key has open there. A gateway
                 that is silent counts for nothing
    keys         hash; KEY_ID: the record of a key, with a hash of its secret. A key of one gateway's file is
                 valid at all; one that is revoked in any file is revoked at all, and stays so. Of other
                 changes, the last one counts

While Redis is away, limits are each gateway's own, and keys and revocations are those it knew last.

Source: redis.io/docs/latest/commands/hincrby.
"""

import asyncio
import json
import logging
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ....tts_engine.errors import BadRequest
from ...access.access_control import AccessControl
from ...access.keys import ApiKey, KeyLimits, KeysFile, parse_key
from ...access.rate_limits import Charged, KeyRateLimiter
from .redis_link import EXCHANGED_EVERY_S, PREFIX, RedisAway, RedisLink, send

if TYPE_CHECKING:
    from redis.asyncio import Redis

logger = logging.getLogger(__name__)

_USAGE: Final = f"{PREFIX}usage"
_KEYS: Final = f"{PREFIX}keys"
_KEYS_VERSION: Final = f"{PREFIX}keys-version"  # another random text after each change of the keys
_OPEN_EXPIRES_S: Final = 5  # of the count of a gateway that is silent
# Streams, Redis' time in Unix seconds; calls, programs and sockets, which older gateways do not count.
_OPEN_COUNTS: Final = re.compile(rb"(\d{1,9}) (\d{1,12})(?: (\d{1,9}) (\d{1,9}) (\d{1,9}))?")


class SharedAccess:
    """Exchanges the keys and limits of one gateway with the others. Belongs to the event loop of its link."""

    def __init__(self, link: RedisLink, access: AccessControl, keys: KeysFile) -> None:
        self._link = link
        self._access = access
        self._keys = keys
        self._gateway_id = secrets.token_hex(8)
        self._totals: dict[str, int] = {}  # of all gateways, by the field of the usage
        self._known_version: bytes | None = None
        self._published: frozenset[ApiKey] = frozenset()

    async def run(self) -> None:
        """Exchange until the task is cancelled."""
        while True:
            with suppress(RedisAway):
                await self.exchange()
            await asyncio.sleep(EXCHANGED_EVERY_S)

    async def exchange(self) -> None:
        """Exchange once. Raises RedisAway; what was charged is then reported the next time."""
        await self._link.run(self._exchange_keys)
        limiters = {
            id: limiter
            for id, limiter in self._access.rate_limiters().items()
            if limiter.limits != KeyLimits()
        }
        if limiters:
            await self._exchange_usage(limiters)

    async def _exchange_keys(self, redis: "Redis") -> None:
        version = await redis.get(_KEYS_VERSION)
        own = frozenset(self._keys_of_file())
        if version is not None and version == self._known_version and own == self._published:
            return
        shared = {
            id: key
            for id, value in (await send(redis, "HGETALL", _KEYS)).items()
            if (key := _parse(id, value))
        }
        self._keys.merge(shared.values())
        news = {key.id: json.dumps(key.as_entry()) for key in own if _is_news(key, shared.get(key.id))}
        if news or version is None:
            version = secrets.token_hex(8).encode()
            async with redis.pipeline() as pipeline:
                if news:
                    pipeline.hset(_KEYS, mapping=news)
                pipeline.set(_KEYS_VERSION, version)
                await pipeline.execute()
            version = None  # another gateway may have published meanwhile: read again
        self._known_version, self._published = version, own

    def _keys_of_file(self) -> tuple[ApiKey, ...]:
        try:
            return tuple(self._keys)
        except BadRequest:  # the keys file is damaged, which its next use logs
            return ()

    async def _exchange_usage(self, limiters: Mapping[str, KeyRateLimiter]) -> None:
        charged = {id: limiter.take_unreported() for id, limiter in limiters.items()}
        try:
            answers = await self._link.run(lambda redis: self._report(redis, limiters, charged))
        except (RedisAway, asyncio.CancelledError):
            for id, limiter in limiters.items():
                limiter.restore_unreported(charged[id])
            raise
        now_s = int(answers[0][0])
        for place, (id, limiter) in enumerate(limiters.items()):
            requests, characters, _, _, opened = answers[1 + 5 * place : 6 + 5 * place]
            limiter.charge_elsewhere(
                Charged(
                    self._charged_elsewhere(f"{id} requests", requests, charged[id].requests),
                    self._charged_elsewhere(f"{id} characters", characters, charged[id].characters),
                )
            )
            elsewhere = self._open_elsewhere(opened, now_s)
            for count, number in zip(limiter.open_counts, elsewhere, strict=True):
                count.elsewhere = number

    async def _report(
        self, redis: "Redis", limiters: Mapping[str, KeyRateLimiter], charged: Mapping[str, Charged]
    ) -> list[Any]:
        now_s, _ = await redis.time()
        async with redis.pipeline() as pipeline:
            pipeline.time()
            for id, limiter in limiters.items():
                pipeline.hincrby(_USAGE, f"{id} requests", charged[id].requests)
                pipeline.hincrby(_USAGE, f"{id} characters", charged[id].characters)
                streams, *others = (str(count.here) for count in limiter.open_counts)
                opened = " ".join((streams, str(now_s), *others))
                pipeline.hset(f"{PREFIX}open:{id}", self._gateway_id, opened)
                pipeline.expire(f"{PREFIX}open:{id}", _OPEN_EXPIRES_S)
                pipeline.hgetall(f"{PREFIX}open:{id}")
            answers: list[Any] = await pipeline.execute()
        return answers

    def _charged_elsewhere(self, field: str, total: int, own: int) -> int:
        """What others charged since the last exchange; 0 at the first, and after Redis lost its data."""
        before = self._totals.get(field, total - own)
        self._totals[field] = total
        return max(0, total - own - before)

    def _open_elsewhere(self, counts: Mapping[bytes, bytes], now_s: int) -> list[int]:
        """Return how many streams, calls, programs and sockets other gateways that live have open."""
        others = [
            _OPEN_COUNTS.fullmatch(value) for id, value in counts.items() if id != self._gateway_id.encode()
        ]
        live = [each for each in others if each and now_s - int(each[2]) <= _OPEN_EXPIRES_S]
        return [sum(int(each[group] or 0) for each in live) for group in (1, 3, 4, 5)]


def _is_news(key: ApiKey, shared: ApiKey | None) -> bool:
    if shared is None or shared.revoked_at is not None:
        return shared is None
    return key.revoked_at is not None or key.changed_at > shared.changed_at


def _parse(id: bytes, value: bytes) -> ApiKey | None:
    """The record of a key; None, with a warning, for one that another program wrote."""
    try:
        key = parse_key(json.loads(value))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        logger.warning("a key in Redis is ignored: %r", error)
        return None
    return key if key.id.encode() == id else None
