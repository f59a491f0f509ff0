"""Two gateways that share keys through a real Redis, which is stopped under load and started again.

Clients ask both gateways for speech without a pause, with a key that only the first gateway's file has. While
Redis is away, another key is revoked in that file; the gateways have healed when the second one refuses it.
"""

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx

from shared.cluster.redis_server import RedisServer
from shared.gateways.running_gateway import running_gateway
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport

_CLIENTS = 4  # of each gateway
_TIMEOUT_S = 60.0
_SPEECH = {"model": "vivavoce", "input": "The store is away.", "voice": "alloy", "response_format": "pcm"}


def measure(outage_s: float) -> BenchReport:
    """Stop Redis for some seconds of real time."""
    with RedisServer() as redis, tempfile.TemporaryDirectory() as folder:
        statuses, heal_s = asyncio.run(_run(redis, Path(folder), outage_s))
    answered = statuses.pop(200, 0)
    figures = (
        BenchFigure("requests answered while Redis was away", answered, "", at_least=1),
        BenchFigure("requests lost", sum(statuses.values()), "", at_most=0),
        BenchFigure("a revocation is known after Redis' return", heal_s, "s", at_most=5.0),
    )
    return BenchReport("redis-outage", figures, {"away for": f"{outage_s:g} s", "gateways": 2})


async def _run(redis: RedisServer, folder: Path, outage_s: float) -> tuple[Counter[int], float]:
    """The answers by status while Redis was away, and the seconds until the gateways had healed."""
    files = [KeysFile(folder / f"keys{number}.json") for number in range(2)]
    key, other = (files[0].add(name, (Scope.SPEAK,), KeyLimits(streams=100)) for name in ("one", "two"))
    files[1].add("unused", (Scope.SPEAK,), KeyLimits())
    settings = {"cluster_redis_url": redis.url}
    async with (
        running_gateway(**settings, access_keys_file=folder / "keys0.json") as first,
        running_gateway(**settings, access_keys_file=folder / "keys1.json") as second,
        httpx.AsyncClient(trust_env=False, timeout=_TIMEOUT_S) as client,
    ):
        await _poll(lambda status: status == 200, client, second, other)
        redis.stop()
        statuses: Counter[int] = Counter()
        end_at = time.monotonic() + outage_s
        await asyncio.gather(*(_load(client, url, key, end_at, statuses) for url in (first, second)))
        files[0].revoke(other.split("_")[1])
        redis.start()
        started_at = time.monotonic()
        await _poll(lambda status: status == 401, client, second, other)
        return statuses, time.monotonic() - started_at


async def _load(client: httpx.AsyncClient, url: str, key: str, end_at: float, statuses: Counter[int]) -> None:
    async def ask_again() -> None:
        while time.monotonic() < end_at:
            statuses[await _ask(client, url, key)] += 1

    await asyncio.gather(*(ask_again() for _ in range(_CLIENTS)))


async def _poll(is_reached: Callable[[int], bool], client: httpx.AsyncClient, url: str, key: str) -> None:
    async with asyncio.timeout(_TIMEOUT_S):
        while not is_reached(await _ask(client, url, key)):
            await asyncio.sleep(0.05)


async def _ask(client: httpx.AsyncClient, url: str, key: str) -> int:
    """The status of a request for speech; 0 if the answer broke off or has no speech."""
    headers = {"authorization": f"Bearer {key}"}
    try:
        answer = await client.post(f"{url}/v1/audio/speech", json=_SPEECH, headers=headers)
    except httpx.HTTPError:
        return 0
    return answer.status_code if answer.content else 0
