"""Phones that nobody here wrote: SIPp with its own scenarios and ours, and baresip."""

import asyncio
import json
import shutil
import socket
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection

from peers.sip.sipp_scenarios import CALLER_WITH_CHANGES, CANCELLED, CANCELS, CHALLENGING, TRANSFERRED
from shared.calls.call_server import CallServer, call_server, run
from shared.calls.call_server import until as told
from shared.sip.gateway import place, server_of, speak
from shared.sip.phone import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("sipp") is None, reason="needs sip-tester"),
]
BARESIP_MODULES = Path("/usr/lib/baresip/modules")


def free_port() -> int:
    """Return a port that is free for UDP and TCP."""
    while True:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
            socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
            suppress(OSError),
        ):
            udp.bind(("127.0.0.1", 0))
            tcp.bind(udp.getsockname())
            return int(udp.getsockname()[1])


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
    await until(lambda: len(server.gateway.calls.registry) > 0)
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
    await until(lambda: outgoing.state.value in states)
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
            await until(lambda: len(server.gateway.calls.registry) == 0)

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


class Baresip:
    """A baresip that runs; ``command`` is one of its menu, such as ``dial`` or ``hold``."""

    def __init__(self, control: asyncio.StreamWriter) -> None:
        self._control = control

    def command(self, name: str, parameters: str = "") -> None:
        message = json.dumps({"command": name, "params": parameters})
        self._control.write(f"{len(message)}:{message},".encode())


@asynccontextmanager
async def baresip(folder: Path, account: str, *, port: int = 0) -> AsyncIterator[Baresip]:
    """Run baresip with an account, and a port of SIP; what it hears is written to the folder."""
    control_port = free_port()
    config = (
        f"sip_listen 127.0.0.1:{port}",
        f"module_path {BARESIP_MODULES}",
        *(f"module {name}.so" for name in ("g711", "aubridge", "aufile", "sndfile")),
        *(f"module_app {name}.so" for name in ("account", "menu", "ctrl_tcp")),
        *(f"{use} aubridge,nil" for use in ("audio_player", "audio_alert")),
        f"audio_source aufile,{folder / 'noise.wav'}",
        f"ctrl_tcp_listen 127.0.0.1:{control_port}",
        f"snd_path {folder}",
    )
    with wave.open(str(folder / "noise.wav"), "wb") as noise:
        noise.setparams((1, 2, 8_000, 0, "NONE", ""))
        noise.writeframes(np.random.default_rng(1).integers(-300, 300, 60 * 8_000, "<i2").tobytes())
    (folder / "config").write_text("\n".join(config) + "\n", encoding="ascii")
    (folder / "accounts").write_text(account + "\n", encoding="ascii")
    (folder / "contacts").touch()
    running = asyncio.create_task(execute("baresip", "-f", str(folder), "-t", "50", cwd=folder))
    control = await connect(control_port)
    phone = Baresip(control)
    try:
        yield phone
    finally:
        phone.command("quit")
        await running
        control.close()
        await control.wait_closed()


async def connect(port: int) -> asyncio.StreamWriter:
    """Connect to a port of this machine that is opened within 20 s."""
    async with asyncio.timeout(20):
        while True:
            try:
                return (await asyncio.open_connection("127.0.0.1", port))[1]
            except OSError:
                await asyncio.sleep(0.05)


needs_baresip = pytest.mark.skipif(shutil.which("baresip") is None, reason="needs baresip")


@needs_baresip
def test_baresip_hears_the_agent(tmp_path: Path) -> None:
    async def call() -> None:
        account = "<sip:anna@127.0.0.1>;regint=0"
        async with call_server(sip_port=0) as server, baresip(tmp_path, account) as phone:
            phone.command("dial", f"sip:100@127.0.0.1:{port_of(server)}")
            call_id = await next_call(server)
            listed = server.gateway.calls.registry.get(call_id)
            await speak(server, call_id)
            phone.command("hangup")
            await wait_no_call(server)
            assert listed.call.media.report.stats.speech_packets >= 20

    run(call())
    heard = [np.frombuffer(file.read_bytes()[44:], "<i2") for file in tmp_path.glob("*dec.wav")]
    assert heard and max(np.abs(samples.astype(float)).max() for samples in heard if samples.size) > 3000


@needs_baresip
def test_baresip_registers_is_rung_holds_and_presses_a_key(tmp_path: Path) -> None:
    async def call() -> None:
        changes = {"sip_peers": ["10.9.9.9"], "sip_users": {"anna": "secret"}}
        async with call_server(sip_port=0, **changes) as server:
            registrar = f"127.0.0.1:{port_of(server)}"
            account = f"<sip:anna@{registrar}>;auth_pass=secret;regint=60;answermode=auto"
            async with baresip(tmp_path, account) as phone:
                await until(lambda: server_of(server).registrar.phones("anna"))
                outgoing = await place(server, "anna")
                await until(lambda: outgoing.state.value == "answered")
                async with server.socket(outgoing.call_id) as socket:
                    phone.command("hold")
                    assert (await told(socket, "hold"))[-1]["on"] is True
                    phone.command("resume")
                    assert (await told(socket, "hold"))[-1]["on"] is False
                    phone.command("sndcode", "5")
                    assert (await told(socket, "dtmf"))[-1]["digit"] == "5"
                async with server.http() as client:
                    await client.delete(f"/{outgoing.call_id}")
                await wait_no_call(server)

    run(call())


@needs_baresip
def test_baresip_is_a_trunk_that_is_called_and_calls(tmp_path: Path) -> None:
    async def call() -> None:
        own = free_port()
        trunk = {"host": "127.0.0.1", "port": own, "user": "4930", "expires_s": 0}
        changes = {"sip_trunks": {"home": trunk}, "sip_outgoing": {"destinations": ["49"]}, "sip_peers": []}
        account = "<sip:4940123@127.0.0.1>;regint=0;answermode=auto"
        async with (
            call_server(sip_port=0, **changes) as server,
            baresip(tmp_path, account, port=own) as phone,
        ):
            outgoing = await place(server, "4940123")
            await until(lambda: outgoing.state.value == "answered")
            await speak(server, outgoing.call_id)
            phone.command("hangup")
            await until(lambda: outgoing.state.value == "ended")
            await wait_no_call(server)
            phone.command("dial", f"sip:100@127.0.0.1:{port_of(server)}")
            caller = server.gateway.calls.registry.get(await next_call(server)).call.caller
            assert (caller.number, dict(caller.variables)) == ("4940123", {"trunk": "home"})
            phone.command("hangup")
            await wait_no_call(server)

    run(call())


async def wait_no_call(server: CallServer) -> None:
    await until(lambda: len(server.gateway.calls.registry) == 0)
