"""aiohttp, httpx and OpenAI's SDK reuse connections at the end of the time for which the server keeps them.

They send up to the time that ``Keep-Alive`` says, as Node.js does. None of them sends a POST again, so a
request on a connection that the server is closing is lost.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import httpx
import pytest

from vivavoce.gateway.cli.bench import processes

aiohttp = pytest.importorskip("aiohttp", reason="needs the extra: make test EXTRAS=dev,stt,pipecat")
openai = pytest.importorskip("openai", reason="needs the extra: make test EXTRAS=dev,stt,pipecat")

TIMEOUT_S = 120.0
KEEP_ALIVE_S = 1
IMPATIENT = (  # what the server does first
    "import functools, vivavoce.gateway.serve as serving; "
    f"serving.HttpServer = functools.partial(serving.HttpServer, keep_alive_s={KEEP_ALIVE_S}); "
)
# Seconds between the requests of a connection: around the advertised end, where a server without a margin
# closes. A client's time begins with the response that it gets, and its request needs a way to the server.
PAUSES_S = [KEEP_ALIVE_S + step / 1_000 for step in range(-10, 20)]
LATE_S = 1.0
BETWEEN_CLIENTS_S = 0.1  # all at once would be more than a slow machine speaks
ROUNDS = 2
BODY = {"model": "tts-1", "voice": "alloy", "input": "One.", "response_format": "pcm"}

Speak = Callable[[], Awaitable[int]]  # requests speech and returns how many bytes came


async def open_aiohttp(url: str, keep_s: float, opened: AsyncExitStack) -> Speak:
    connector = aiohttp.TCPConnector(keepalive_timeout=keep_s)
    client = await opened.enter_async_context(aiohttp.ClientSession(url, connector=connector))

    async def speak() -> int:
        async with client.post("/v1/audio/speech", json=BODY) as answer:
            assert answer.status == 200
            return len(await answer.read())

    return speak


async def open_httpx(url: str, keep_s: float, opened: AsyncExitStack) -> Speak:
    client = await opened.enter_async_context(httpx_client(url, keep_s))

    async def speak() -> int:
        answer = await client.post("/v1/audio/speech", json=BODY)
        assert answer.status_code == 200
        return len(answer.content)

    return speak


async def open_openai(url: str, keep_s: float, opened: AsyncExitStack) -> Speak:
    transport = httpx_client(url, keep_s)
    client = await opened.enter_async_context(
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, http_client=transport)
    )

    async def speak() -> int:
        return len((await client.audio.speech.create(**BODY)).content)

    return speak


def httpx_client(url: str, keep_s: float) -> httpx.AsyncClient:
    limits = httpx.Limits(keepalive_expiry=keep_s)
    return httpx.AsyncClient(base_url=url, limits=limits, trust_env=False, verify=False, timeout=TIMEOUT_S)


async def advertised_s(url: str) -> int:
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        value = (await client.get("/healthz")).headers["keep-alive"]
    return int(value.removeprefix("timeout="))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server with a process of its own: its event loop does not stop while a client sends."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setattr(processes, "_SERVE", IMPATIENT + processes._SERVE)
        with processes.run_server_process() as address:
            yield address


@pytest.mark.parametrize("open_client", [open_aiohttp, open_httpx, open_openai])
def test_no_request_is_lost_at_the_end_of_a_connection(
    open_client: Callable[[str, float, AsyncExitStack], Awaitable[Speak]], url: str
) -> None:
    async def speak_again(keep_s: int, pause_s: float, start_s: float) -> None:
        await asyncio.sleep(start_s)
        async with AsyncExitStack() as opened:
            speak = await open_client(url, keep_s + LATE_S, opened)
            first = await speak()
            for _ in range(ROUNDS):
                await asyncio.sleep(pause_s)
                assert await speak() == first > 0

    async def test() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            keep_s = await advertised_s(url)
            assert keep_s == KEEP_ALIVE_S
            clients = (
                speak_again(keep_s, pause_s, client * BETWEEN_CLIENTS_S)
                for client, pause_s in enumerate(PAUSES_S)
            )
            await asyncio.gather(*clients)

    asyncio.run(test())
