"""A connection to Redis or Valkey that may be away.

A command that fails marks the server as away; further commands then fail at once, without touching the
network, until ``retry_after_s`` has passed. So nothing waits for a server that is down, and its return is
found within that time.

Source: redis.io/docs/latest/develop/reference/protocol-spec; redis-py 6.4 asyncio.
"""

import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ....tts_engine.errors import BadRequest, MissingExtra, VivavoceError

if TYPE_CHECKING:
    from redis.asyncio import Redis

logger = logging.getLogger(__name__)

PREFIX = "vivavoce:2:"  # of every key; the number is the layout's, so that another layout is never read
_TIMEOUT_S = 0.5  # of a connection and of a command; a network of one site needs some milliseconds
_FULL_LOGGED_EVERY_S = 60.0
_T = TypeVar("_T")


class RedisAway(VivavoceError):
    """Redis does not answer; what is shared is local until it does."""


class RedisFull(RedisAway):
    """Redis has no memory for what is sent; it can be read."""


EXCHANGED_EVERY_S: Final = 0.25  # what gateways share


class RedisLink:
    """Runs commands in Redis. Belongs to one event loop."""

    def __init__(
        self,
        url: str,
        *,
        retry_after_s: float = 1.0,
    ) -> None:
        """Connect at the first command. Raises MissingExtra, and BadRequest for the URL."""
        try:
            from redis.asyncio import Redis
            from redis.exceptions import OutOfMemoryError, RedisError
        except ImportError:
            raise MissingExtra("cluster.redis_url", "redis") from None
        try:
            self._redis: Redis = Redis.from_url(
                url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S
            )
        except ValueError as error:
            raise BadRequest(f"cluster.redis_url: {error}") from None
        self._full: type[RedisError] = OutOfMemoryError
        self._errors = (RedisError, OSError)
        self._retry_after_s = retry_after_s
        self._away_until: float | None = None
        self._full_logged_at = -math.inf

    @property
    def is_away(self) -> bool:
        """Whether the last command failed."""
        return self._away_until is not None

    async def run(self, command: "Callable[[Redis], Awaitable[_T]]") -> _T:
        """Run commands on the client. Raises RedisAway if the server does not answer or refuses them.

        RedisFull if it has no memory for them; then others may succeed.
        """
        if self._away_until is not None and time.monotonic() < self._away_until:
            raise RedisAway("Redis is away")
        try:
            result = await command(self._redis)
        except self._full as error:
            self._log_full()
            raise RedisFull("Redis is full") from error
        except self._errors as error:
            self._mark_away(error)
            raise RedisAway(f"Redis is away: {error}") from error
        if self._away_until is not None:
            logger.info("Redis is back")
            self._away_until = None
        return result

    async def aclose(self) -> None:
        """Close all connections."""
        await self._redis.aclose()

    def _log_full(self) -> None:
        now = time.monotonic()
        if now - self._full_logged_at >= _FULL_LOGGED_EVERY_S:
            self._full_logged_at = now
            logger.error(
                "Redis is full: changes at this gateway are not shared, and limits are its own, until "
                "maxmemory of Redis is raised; changes of other gateways are read"
            )

    def _mark_away(self, error: Exception) -> None:
        if self._away_until is None:
            logger.warning("Redis is away, so limits and voices are this server's own: %s", error)
        self._away_until = time.monotonic() + self._retry_after_s


async def send(redis: "Redis", *command: str | int) -> Any:
    """Send a command whose method in redis-py has a type for both kinds of client."""
    return await redis.execute_command(*command)  # type: ignore[no-untyped-call]
