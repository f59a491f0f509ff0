"""How long the largest text of each API holds the event loop of a server with 50 calls.

Processor time of the loop's thread in its longest callback, which does not depend on what else the machine
does.
"""

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from benches.api_texts.requests import HTTP_TEXT_APIS, SOCKET_TEXT_APIS, HttpTextApi, SocketTextApi
from shared.reading_work import ORDINARY, repeated
from vivavoce.gateway.cli.bench.report import BenchFailed, BenchFigure, BenchReport

MAX_CALLBACK_MS: Final = 10.0
_START_S: Final = 180.0
_HEARD_S: Final = 0.7  # of each text
_TEXTS: Final[Mapping[str, tuple[str, str, str]]] = {
    "prose": ("", ORDINARY, ""),
    "'½'": ("", "½", ""),
    "'1e'": ("", "1e", ""),
    "'a1b2'": ("", "a1b2", ""),
    "letters": ("", "a", ""),
    "SSML breaks": ("<speak>", "<break/>a", "</speak>"),
    "SSML sentences": ("<speak>", "<s>a</s>", "</speak>"),
    "SSML rates": ("<speak>", '<prosody rate="2">a</prosody>', "</speak>"),
}


@dataclass(frozen=True, slots=True)
class _TimedServer:
    process: asyncio.subprocess.Process
    http: str  # host and port
    audiosocket: str

    async def take(self) -> dict[str, Any]:
        """The server's record since the last one."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(b"\n")
        record: dict[str, Any] = json.loads(await self.process.stdout.readline())
        return record


def measure(calls: int = 50, only: str = "") -> BenchReport:
    """Send every API's largest texts. only: a part of the names of APIs."""
    figures = asyncio.run(_measure(calls, only))
    return BenchReport(bench="api-texts", figures=figures, settings={"calls": calls})


async def _measure(calls: int, only: str) -> tuple[BenchFigure, ...]:
    figures: list[BenchFigure] = []
    with tempfile.TemporaryDirectory(prefix="vivavoce-texts-") as folder:
        async with _timed_server(Path(folder)) as server, _phones(server, calls, Path(folder)):
            await asyncio.sleep(_HEARD_S)
            await server.take()
            await asyncio.sleep(2 * _HEARD_S)
            figures.append(_figure("no text", await server.take()))
            for api in (*HTTP_TEXT_APIS, *SOCKET_TEXT_APIS):
                if only not in api.name:
                    continue
                for name, (begin, unit, end) in _TEXTS.items():
                    text = begin + repeated_whole(unit, api.max_characters - len(begin + end)) + end
                    problem = await _send(server, api, text)
                    figures.append(_figure(f"{api.name}, {name}{problem}", await server.take()))
    return tuple(figures)


def repeated_whole(unit: str, characters: int) -> str:
    """A text that repeats a unit as often as it fits."""
    return unit * (characters // len(unit)) if unit != ORDINARY else repeated(unit, characters)


def _figure(name: str, record: Mapping[str, Any]) -> BenchFigure:
    where = record["name"] + (f", in {record['function']}" if record["function"] else "")
    if record["collection_ms"] >= 1:
        where += f", garbage collection {record['collection_ms']:.1f} ms of it"
    return BenchFigure(f"{name}: {where}", record["ms"], "ms", at_most=MAX_CALLBACK_MS)


@asynccontextmanager
async def _timed_server(folder: Path) -> AsyncIterator[_TimedServer]:
    flags = ("--http-port", "0", "--audiosocket-port", "0", "--max-streams", "200", "--max-calls", "200")
    with (folder / "server.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benches.api_texts.server", *flags),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), _START_S)).decode()
        ports = re.findall(r"127\.0\.0\.1:\d+", line)
        if len(ports) != 2:
            raise BenchFailed(f"the server did not start: {(folder / 'server.log').read_text()[-1000:]}")
        yield _TimedServer(process, ports[1], ports[0])
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


@asynccontextmanager
async def _phones(server: _TimedServer, calls: int, folder: Path) -> AsyncIterator[None]:
    """Keep calls up."""
    host, port = server.audiosocket.split(":")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "vivavoce.gateway.cli.bench.load_generator", host, port),
        *("--calls", str(calls), "--ramp", "2", "--seconds", "3600", "--out", str(folder / "phones.npz")),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        if not await asyncio.wait_for(process.stdout.readline(), _START_S):
            raise BenchFailed("the phones got no calls")
        yield
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _send(server: _TimedServer, api: HttpTextApi | SocketTextApi, text: str) -> str:
    """Have a text spoken for a moment; return "", or what was refused."""
    if isinstance(api, HttpTextApi):
        problem = await _request(server, api, text)
    else:
        problem = await _converse(server, api, text)
    await asyncio.sleep(_HEARD_S / 4)  # the end of it counts too
    return f" ({problem})" if problem else ""


async def _request(server: _TimedServer, api: HttpTextApi, text: str) -> str:
    path, fields = api.request(text)
    body = {"data": fields} if api.is_form else {"json": fields}
    async with httpx.AsyncClient(base_url=f"http://{server.http}", trust_env=False, timeout=60) as client:
        with suppress(TimeoutError):
            async with asyncio.timeout(_HEARD_S), client.stream("POST", path, **body) as response:  # type: ignore[arg-type]
                if response.status_code != httpx.codes.OK:
                    return f"{response.status_code} {(await response.aread()).decode()[:100]}"
                async for _ in response.aiter_raw():
                    pass
    return ""


async def _converse(server: _TimedServer, api: SocketTextApi, text: str) -> str:
    path = api.path.replace("{call}", await _a_call(server)) if "{call}" in api.path else api.path
    problem = ""
    async with connect(f"ws://{server.http}{path}", proxy=None, compression=None) as socket:
        with suppress(TimeoutError, ConnectionClosed):
            for message in api.messages(text):
                await socket.send(json.dumps(message))
            async with asyncio.timeout(_HEARD_S):
                async for answer in socket:
                    if isinstance(answer, str) and re.search("error|failed", answer[:200], re.I):
                        problem = problem or answer[:200]
        if "{call}" in api.path:
            await socket.send(json.dumps({"type": "discard"}))
        socket.transport.abort()
    return problem


async def _a_call(server: _TimedServer) -> str:
    async with httpx.AsyncClient(base_url=f"http://{server.http}", trust_env=False) as client:
        calls = (await client.get("/v1/calls")).json()
    entries = calls["calls"] if isinstance(calls, dict) else calls
    return str(entries[0].get("call") or entries[0].get("id"))
