"""Hundreds of strangers who connect and say nothing, beside real calls: ``python -m hostile.strangers``.

They keep connections to every TCP listener of a server with keys, and connect again when one is closed. Each
second a phone calls, and a client with a key asks. A line tells the descriptors, the memory, and what was
answered; the exit status is 1 if a call or a request was not.
"""

import asyncio
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import uuid4

import click
import httpx

from hostile.server import AttackedServer, attacked_server
from vivavoce.adapters.audiosocket.protocol import AudioSocketConnection, AudioSocketRole, CallId
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope

_ANSWER_S: Final = 10.0
_CALL_PACKETS: Final = 25  # half a second
_PACKET_BYTES: Final = 3 + 320
_BEGINNINGS: Final = {
    "http": (b"", b"GET /v1/calls HTTP/1.1\r\nHost: x\r\n", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"),
    "audiosocket": (b"", b"\x01\x00\x10"),
}
_PAUSE_S: Final = 0.05  # before a stranger connects again


@dataclass(slots=True)
class StrangersReport:
    """What has been seen so far."""

    connected: int = 0  # strangers now
    connections: int = 0  # of strangers, ever
    calls: int = 0  # that were answered
    requests: int = 0
    refused: list[str] = field(default_factory=list)  # calls and requests
    max_first_packet_s: float = 0.0


async def run_strangers(
    strangers: int, seconds: float, line_s: float, key: str, server: AttackedServer
) -> StrangersReport:
    """Let so many strangers disturb each listener for so long; print a line each ``line_s``."""
    report, end = StrangersReport(), time.monotonic() + seconds
    addresses = {"http": server.http, "audiosocket": server.audiosocket}
    tasks = [
        asyncio.create_task(
            _be_a_stranger(address, _BEGINNINGS[name][number % len(_BEGINNINGS[name])], report)
        )
        for name, address in addresses.items()
        for number in range(strangers)
    ]
    tasks += [asyncio.create_task(_call_each_second(server, report))]
    tasks += [asyncio.create_task(_ask_each_second(server, key, report))]
    try:
        while time.monotonic() < end:
            await asyncio.sleep(min(line_s, max(0.0, end - time.monotonic())))
            _print_line(seconds - max(0.0, end - time.monotonic()), server, report)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return report


async def _be_a_stranger(address: tuple[str, int], beginning: bytes, report: StrangersReport) -> None:
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(*address)
            report.connected += 1
            report.connections += 1
            try:
                writer.write(beginning)
                while await reader.read(65_536):
                    pass
            finally:
                report.connected -= 1
                writer.transport.abort()
        await asyncio.sleep(_PAUSE_S)


async def _call_each_second(server: AttackedServer, report: StrangersReport) -> None:
    while True:
        begun = time.monotonic()
        try:
            async with asyncio.timeout(_ANSWER_S):
                await _call(server, report)
            report.calls += 1
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            report.refused.append(f"a call: {error!r}")
        await asyncio.sleep(max(0.0, begun + 1 - time.monotonic()))


async def _call(server: AttackedServer, report: StrangersReport) -> None:
    begun = time.monotonic()
    reader, writer = await asyncio.open_connection(*server.audiosocket)
    try:
        writer.write(AudioSocketConnection(AudioSocketRole.CALLER).send(CallId(uuid4())))
        for number in range(_CALL_PACKETS):
            packet = await reader.readexactly(_PACKET_BYTES)
            if packet[0] != 0x10:
                raise OSError(f"a message of kind {packet[0]:#x}")
            if number == 0:
                report.max_first_packet_s = max(report.max_first_packet_s, time.monotonic() - begun)
    finally:
        writer.close()


async def _ask_each_second(server: AttackedServer, key: str, report: StrangersReport) -> None:
    async with httpx.AsyncClient(
        base_url=f"http://{server.url}", trust_env=False, timeout=_ANSWER_S
    ) as client:
        while True:
            begun = time.monotonic()
            for path, headers in (("/v1/calls", {"x-api-key": key}), ("/readyz", {"connection": "close"})):
                try:
                    answer = await client.get(path, headers=headers)
                    problem = "" if answer.status_code == 200 else f"{answer.status_code} {answer.text[:100]}"
                except httpx.HTTPError as error:
                    problem = repr(error)
                report.requests += not problem
                report.refused += [f"GET {path}: {problem}"] if problem else []
            await asyncio.sleep(max(0.0, begun + 1 - time.monotonic()))


def _print_line(elapsed_s: float, server: AttackedServer, report: StrangersReport) -> None:
    memory = server.memory_mb()
    click.echo(
        f"{elapsed_s:6.0f} s: {server.open_files():5} descriptors, {memory['server']:6.1f} MB, "
        f"{report.connected} strangers ({report.connections} connections), {report.calls} calls and "
        f"{report.requests} requests answered, {len(report.refused)} refused, "
        f"first packet within {1000 * report.max_first_packet_s:.0f} ms"
    )


async def _main(strangers: int, seconds: float, line_s: float) -> StrangersReport:
    with tempfile.TemporaryDirectory(prefix="vivavoce-strangers-") as name:
        folder = Path(name)
        key = KeysFile(folder / "keys.json").add("strangers", (Scope.ADMIN,), KeyLimits())
        async with attacked_server(folder, "--keys-file", str(folder / "keys.json")) as server:
            report = await run_strangers(strangers, seconds, line_s, key, server)
            await asyncio.sleep(1.0)
            click.echo(
                f"after they left: {server.open_files()} descriptors, {server.memory_mb()['server']:.1f} MB"
            )
    return report


@click.command()
@click.option("--seconds", type=click.FloatRange(1), default=60.0, show_default=True)
@click.option(
    "--strangers", type=click.IntRange(1), default=300, show_default=True, help="For each listener."
)
@click.option(
    "--line-s", type=click.FloatRange(0.5), default=10.0, show_default=True, help="From line to line."
)
def main(strangers: int, seconds: float, line_s: float) -> None:
    """Hold silent connections to a new server beside real calls."""
    report = asyncio.run(_main(strangers, seconds, line_s))
    for text in report.refused[:20]:
        click.echo(text)
    sys.exit(bool(report.refused))


if __name__ == "__main__":
    main()
