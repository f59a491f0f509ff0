"""Phones that nobody here wrote: SIPp with its own scenarios and ours, and baresip."""

import asyncio
import json
import re
import shutil
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection

from peers.sip.sipp_scenarios import CALLER_WITH_CHANGES, CANCELLED, CANCELS, CHALLENGING, TRANSFERRED
from shared.calls.call_server import CallServer, call_server, run
from shared.sip.gateway import place, server_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("sipp") is None, reason="needs sip-tester"),
]
BARESIP_MODULES = Path("/usr/lib/baresip/modules")


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def execute(*command: str, cwd: Path, seconds: float = 60) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(seconds):
        output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode(errors="replace")


def read_errors(folder: Path) -> str:
    return "".join(file.read_text(errors="replace") for file in folder.glob("*errors.log"))


async def sipp(folder: Path, *options: str, port: int | None = None) -> None:
    """Run SIPp on loopback; it must succeed."""
    own = ("-i", "127.0.0.1", "-p", str(port or free_port()), "-mp", str(free_port() & ~1))
    common = ("-nostdin", "-m", "1", "-timeout", "30s", "-timeout_error", "-trace_err")
    status, output = await execute("sipp", *options, *own, *common, cwd=folder)
    errors = read_errors(folder)
    assert status == 0, errors[-3000:] or output[-3000:]


def scenario(folder: Path, name: str, text: str) -> str:
    file = folder / f"{name}.xml"
    file.write_text(text, encoding="ascii")
    return str(file)


def port_of(server: CallServer) -> int:
    return server_of(server).sockets.port


async def next_call(server: CallServer) -> str:
    """Wait for a call; return its id."""
    async with asyncio.timeout(20):
        while not len(server.gateway.calls.registry):
            await asyncio.sleep(0.01)
    (listed,) = server.gateway.calls.registry
    return str(listed.call.call_id)


async def messages_of(socket: ClientConnection) -> AsyncIterator[dict[str, Any]]:
    """Yield what a program is told until the call is over."""
    async for message in socket:
        if isinstance(message, str):
            yield json.loads(message)


async def place_call(server: CallServer, port: int) -> str:
    """Call a port of this machine; return the call's id."""
    return (await place(server, f"sip:bob@127.0.0.1:{port}")).call_id


async def state_of(server: CallServer, call_id: str, *states: str) -> str:
    outgoing = server.gateway.calls.registry.outgoing.get(call_id)
    assert outgoing is not None
    async with asyncio.timeout(20):
        while outgoing.state.value not in states:
            await asyncio.sleep(0.02)
    return str(outgoing.state.value)


def test_sipp_calls_and_is_called(tmp_path: Path) -> None:
    async def call() -> None:
        outgoing = {"destinations": ["sip:*@127.0.0.1:*"]}
        async with call_server(sip_port=0, sip_outgoing=outgoing) as server:
            port = port_of(server)
            await sipp(tmp_path, "-sn", "uac", f"127.0.0.1:{port}", "-d", "500")
            own = free_port()
            answering = asyncio.create_task(sipp(tmp_path, "-sn", "uas", port=own))
            await asyncio.sleep(0.5)
            call_id = await place_call(server, own)
            await state_of(server, call_id, "answered")
            async with server.http() as client:
                await client.delete(f"/{call_id}")
            await answering
            cancelling = asyncio.create_task(
                sipp(tmp_path, "-sf", scenario(tmp_path, "cancelled", CANCELLED), port=own)
            )
            await asyncio.sleep(0.5)
            call_id = await place_call(server, own)
            await state_of(server, call_id, "ringing")
            async with server.http() as client:
                assert (await client.delete(f"/{call_id}")).status_code == 200
            await cancelling
            assert await state_of(server, call_id, "cancelled") == "cancelled"
            transferring = asyncio.create_task(
                sipp(tmp_path, "-sf", scenario(tmp_path, "transferred", TRANSFERRED), port=own)
            )
            await asyncio.sleep(0.5)
            call_id = await place_call(server, own)
            await state_of(server, call_id, "answered")
            async with server.http() as client:
                answer = await client.post(f"/{call_id}/transfer", json={"to": "sip:carol@127.0.0.1:5"})
            assert answer.status_code == 200, answer.text
            await transferring

    run(call())


def test_sipp_calls_over_tcp_and_gives_up_too_late(tmp_path: Path) -> None:
    async def call() -> None:
        async with call_server(sip_port=0) as server:
            address = f"127.0.0.1:{port_of(server)}"
            await sipp(tmp_path, "-sn", "uac", address, "-d", "500", "-t", "t1")
            await sipp(tmp_path, "-sf", scenario(tmp_path, "cancels", CANCELS), address)
            assert len(server.gateway.calls.registry) == 0

    run(call())


def test_sipp_challenges_a_call_through_a_trunk(tmp_path: Path) -> None:
    async def call() -> None:
        own = free_port()
        trunk = {"host": "127.0.0.1", "port": own, "user": "4930", "password": "secret", "expires_s": 0}
        changes = {"sip_trunks": {"trunk": trunk}, "sip_outgoing": {"destinations": ["+49"]}}
        async with call_server(sip_port=0, **changes) as server:
            file = scenario(tmp_path, "challenging", CHALLENGING)
            answering = asyncio.create_task(sipp(tmp_path, "-sf", file, port=own))
            await asyncio.sleep(0.5)
            call_id = (await place(server, "+4930777")).call_id
            await state_of(server, call_id, "answered")
            async with server.http() as client:
                await client.delete(f"/{call_id}")
            await answering

    run(call())


def test_sipp_calls_with_a_password_and_changes_the_media(tmp_path: Path) -> None:
    async def call() -> None:
        changes = {"sip_peers": ["10.9.9.9"], "sip_users": {"anna": "secret"}}
        async with call_server(sip_port=0, **changes) as server:
            file = scenario(tmp_path, "changes", CALLER_WITH_CHANGES)
            address = f"127.0.0.1:{port_of(server)}"
            account = ("-au", "anna", "-ap", "secret", "-auth_uri", f"100@{address}")
            calling = asyncio.create_task(sipp(tmp_path, "-sf", file, address, *account))
            call_id = await next_call(server)
            async with server.socket(call_id) as socket:
                messages = [message async for message in messages_of(socket)]
            await calling
            told = [(each["type"], each.get("on", each.get("digit"))) for each in messages]
            assert [each for each in told if each[0] in ("hold", "dtmf")] == [
                ("hold", True), ("hold", False), ("dtmf", "7")
            ]  # fmt: skip

    run(call())


@pytest.mark.skipif(shutil.which("baresip") is None, reason="needs baresip")
def test_baresip_hears_the_agent(tmp_path: Path) -> None:
    config = (
        "sip_listen 127.0.0.1:0",
        f"module_path {BARESIP_MODULES}",
        *(f"module {name}.so" for name in ("g711", "aubridge", "sndfile")),
        *(f"module_app {name}.so" for name in ("account", "menu")),
        *(f"{use} aubridge,nil" for use in ("audio_player", "audio_source", "audio_alert")),
        f"snd_path {tmp_path}",
    )
    (tmp_path / "config").write_text("\n".join(config) + "\n", encoding="ascii")
    (tmp_path / "accounts").write_text("<sip:anna@127.0.0.1>;regint=0\n", encoding="ascii")
    (tmp_path / "contacts").touch()

    async def call() -> None:
        async with call_server(sip_port=0) as server:
            dial = f"/dial sip:100@127.0.0.1:{port_of(server)}"
            calling = asyncio.create_task(
                execute("baresip", "-f", str(tmp_path), "-e", dial, "-t", "6", cwd=tmp_path)
            )
            call_id = await next_call(server)
            listed = server.gateway.calls.registry.get(call_id)
            async with server.http() as client:
                text = {"content": "Good morning.", "headers": {"content-type": "text/plain"}}
                await client.post(f"/{call_id}/speech", **text)  # type: ignore[arg-type]
            _, output = await calling
            assert re.search(r"terminated \(duration: \d+ secs\)", output), output[-2000:]
            assert listed.call.media.report.stats.packets > 100

    run(call())
    heard = [np.frombuffer(file.read_bytes()[44:], "<i2") for file in tmp_path.glob("*dec.wav")]
    assert heard and max(np.abs(samples.astype(float)).max() for samples in heard if samples.size) > 3000
