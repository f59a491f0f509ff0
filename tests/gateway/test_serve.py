"""The server process: start, signals and shutdown, with a stand-in voice and once with the packaged one."""

import asyncio
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import IO
from uuid import UUID

import pytest
from aiortc import RTCConfiguration, RTCPeerConnection

from shared.calls.thread_phone import ThreadPhone
from shared.engine.standin_backend import StandInBackend
from shared.event_loop import until
from shared.gateways.made_settings import make_settings
from shared.gateways.way_in_servers import audiosocket_calls, browser_calls
from vivavoce.gateway.calls.agents.kinds.keys import KeysAgent
from vivavoce.gateway.calls.agents.kinds.script import SilentAgent
from vivavoce.gateway.calls.call import Call
from vivavoce.gateway.cli.commands.serve.process import serve
from vivavoce.gateway.configuration.settings import Settings
from vivavoce.gateway.listening_sockets import AddressUnavailable
from vivavoce.gateway.serve import Gateway
from vivavoce.tts_engine.backends.process import ProcessBackend
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.engine_set import EngineSet, NamedEngine
from vivavoce.tts_engine.errors import BadRequest, UnknownVoice

CALL_ID = b"\x01\x00\x10" + UUID(int=7).bytes


def settings(**values: object) -> Settings:
    return make_settings(**({"http_port": 0, "audiosocket_port": 0, "agents_default": "none"} | values))  # type: ignore[arg-type]


async def stand_in_engine() -> Engine:
    return await Engine.open(backend=StandInBackend((440, 880)))


def run(scenario: Callable[[Engine], Awaitable[None]]) -> None:
    async def with_engine() -> None:
        before = asyncio.all_tasks()
        async with await stand_in_engine() as engine:
            await scenario(engine)
            assert engine.active_streams == 0
        assert asyncio.all_tasks() == before

    asyncio.run(with_engine())


async def dial(gateway: Gateway) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(*gateway.addresses.ways_in["audiosocket"])
    writer.write(CALL_ID)
    return reader, writer


async def read_to_the_end(reader: asyncio.StreamReader) -> list[int]:
    """Return the kinds of all messages until the connection ends."""
    kinds = []
    with suppress(asyncio.IncompleteReadError):
        while True:
            kind, length = struct.unpack("!BH", await reader.readexactly(3))
            await reader.readexactly(length)
            kinds.append(kind)
    return kinds


def get(gateway: Gateway, path: str) -> tuple[int, str]:
    host, port = gateway.addresses.http
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def post(gateway: Gateway, path: str, body: object) -> tuple[int, str]:
    host, port = gateway.addresses.http
    request = urllib.request.Request(
        f"http://{host}:{port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_an_open_gateway_accepts_calls_and_answers_http() -> None:
    async def scenario(engine: Engine) -> None:
        gateway = await Gateway.open(settings(), engine=engine)
        reader, writer = await dial(gateway)
        assert (await reader.readexactly(3))[0] == 0x10
        status, metrics = await asyncio.to_thread(get, gateway, "/metrics")
        assert status == 200
        assert "vivavoce_active_calls 1.0" in metrics.splitlines()
        assert await asyncio.to_thread(get, gateway, "/readyz") == (200, '{"status":"ready"}')
        writer.close()
        await gateway.aclose()

    run(scenario)


def test_a_full_gateway_is_not_ready() -> None:
    async def scenario(engine: Engine) -> None:
        gateway = await Gateway.open(settings(calls_max_calls=1), engine=engine)
        reader, writer = await dial(gateway)
        await reader.readexactly(3)
        status, body = await asyncio.to_thread(get, gateway, "/readyz")
        assert (status, body) == (503, '{"status":"unready","reason":"full"}')
        writer.close()
        await gateway.aclose()

    run(scenario)


def test_readiness_names_a_bundle_whose_device_failed_while_the_others_speak() -> None:
    async def scenario(_: Engine) -> None:
        on_processor, on_card = StandInBackend((440,)), StandInBackend((880,))
        engines = (
            NamedEngine("default", await Engine.open(backend=on_processor)),
            NamedEngine("card", await Engine.open(backend=on_card)),
        )
        async with (
            EngineSet(engines) as engine,
            aclosing(await Gateway.open(settings(), engine=engine)) as gateway,
        ):
            on_card.memory_slots = 0
            status, ready = await asyncio.to_thread(get, gateway, "/readyz")
            assert (status, json.loads(ready)["status"]) == (200, "ready")
            assert json.loads(ready)["reason"].startswith("nothing computes the voices of card: ")
            speech = {"model": "tts-1", "voice": "tone-880", "input": "Hello.", "response_format": "pcm"}
            status, error = await asyncio.to_thread(post, gateway, "/v1/audio/speech", speech)
            assert (status, "its device failed" in error) == (503, True)
            async with engine.stream(voice="tone-440") as stream:
                stream.push_text("Hello.")
                stream.end_input()
                assert [chunk async for chunk in stream][-1].final
            on_processor.memory_slots = 0
            status, ready = await asyncio.to_thread(get, gateway, "/readyz")
            assert (status, "its device failed" in ready) == (503, True)

    run(scenario)


def test_a_gateway_whose_voice_process_died_is_not_ready_until_it_speaks_again() -> None:
    async def scenario(_: Engine) -> None:
        backend = ProcessBackend.start_backend(StandInBackend)
        async with (
            await Engine.open(backend=backend) as engine,
            aclosing(await Gateway.open(settings(), engine=engine)) as gateway,
        ):
            speech = {"model": "tts-1", "voice": "tone-440", "input": "Hello.", "response_format": "pcm"}
            os.kill(backend.pid, signal.SIGKILL)
            await until(lambda: gateway.unready() is not None)
            status, ready = await asyncio.to_thread(get, gateway, "/readyz")
            assert (status, "process of the voice" in ready) == (503, True)
            status, error = await asyncio.to_thread(post, gateway, "/v1/audio/speech", speech)
            assert (status, "is being started again" in error) == (503, True)
            await until(lambda: gateway.unready() is None)
            async with engine.stream() as stream:
                stream.push_text("Hello.")
                stream.end_input()
                assert [chunk async for chunk in stream][-1].final

    run(scenario)


@pytest.mark.parametrize("media_processes", [1], indirect=True)
def test_a_gateway_whose_media_process_is_being_started_is_not_ready(media_processes: int) -> None:
    async def scenario(engine: Engine) -> None:
        async with aclosing(await Gateway.open(settings(), engine=engine)) as gateway:
            for pid in (standby_of(gateway), *gateway.calls.host.media.pids):
                os.kill(pid, signal.SIGKILL)
            await until(lambda: gateway.unready() is not None)
            assert gateway.unready() == "the process that plays speech is being started again"
            await until(lambda: gateway.unready() is None)

    def standby_of(gateway: Gateway) -> int:
        standby = gateway.calls.host.media._standby
        assert standby is not None and standby.pid is not None
        return standby.pid

    run(scenario)


def test_browser_calls_count_towards_max_calls_and_are_finished_at_shutdown() -> None:
    async def scenario(engine: Engine) -> None:
        gateway = await Gateway.open(settings(calls_max_calls=2), engine=engine)
        reader, writer = await dial(gateway)
        await reader.readexactly(3)
        browser = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        browser.addTransceiver("audio", direction="recvonly")
        await browser.setLocalDescription(await browser.createOffer())
        offer = {"type": "offer", "sdp": browser.localDescription.sdp}
        assert (await asyncio.to_thread(post, gateway, "/api/offer", offer))[0] == 200
        assert gateway.unready() == "full"
        refused, sentence = await asyncio.to_thread(post, gateway, "/api/offer", offer)
        assert (refused, "2 calls are up" in sentence) == (503, True)
        await gateway.finish()
        assert len(gateway.calls.registry) == 0
        assert gateway.unready() == "shutting down"
        writer.close()
        await gateway.aclose()
        await browser.close()

    run(scenario)


def test_a_gateway_that_finishes_is_not_ready_and_ends_its_calls() -> None:
    class Sentence:
        async def run(self, call: Call) -> None:
            await call.speech.speak("one two three four. " * 50)

    async def scenario(engine: Engine) -> None:
        gateway = await Gateway.open(settings(), engine=engine, agent=Sentence())
        reader, writer = await dial(gateway)
        await reader.readexactly(3 + 320)
        finishing = asyncio.create_task(gateway.finish())
        await asyncio.sleep(0)
        assert gateway.unready() == "shutting down"
        async with asyncio.timeout(30):
            kinds = await read_to_the_end(reader)
            await finishing
        assert kinds[-1] == 0x00
        writer.close()
        await gateway.aclose()

    run(scenario)


def test_an_engine_that_was_passed_in_stays_open() -> None:
    async def scenario(engine: Engine) -> None:
        await (await Gateway.open(settings(), engine=engine)).aclose()
        async with engine.stream() as stream:
            stream.push_text("One.")
            stream.end_input()
            assert [chunk async for chunk in stream]

    run(scenario)


def test_closing_frees_the_ports() -> None:
    async def scenario(engine: Engine) -> None:
        first = await Gateway.open(settings(), engine=engine)
        ports = first.addresses.http[1], first.addresses.ways_in["audiosocket"][1]
        await first.aclose()
        again = settings(http_port=ports[0], audiosocket_port=ports[1])
        await (await Gateway.open(again, engine=engine)).aclose()

    run(scenario)


@pytest.mark.parametrize("key", ["http_port", "audiosocket_port"])
def test_a_port_in_use_is_an_error_and_nothing_stays_open(key: str) -> None:
    async def scenario(engine: Engine) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(
                AddressUnavailable, match=rf"^127\.0\.0\.1:{port} is in use by another program"
            ):
                await Gateway.open(settings(**{key: port}), engine=engine)

    run(scenario)


def test_an_unknown_voice_or_script_stops_the_start() -> None:
    async def scenario(engine: Engine) -> None:
        with pytest.raises(UnknownVoice, match="bob"):
            await Gateway.open(settings(bundle_voice="bob"), engine=engine)
        with pytest.raises(BadRequest, match="cannot read the script"):
            await Gateway.open(settings(agents_default="script:/absent.txt"), engine=engine)

    run(scenario)


# Signals to the process of the test


def serve_until_signalled(number: signal.Signals, **values: object) -> list[str]:
    """Serve, send a signal when ready, and return the announced lines."""
    announced: list[str] = []

    def announce(line: str) -> None:
        announced.append(line)
        os.kill(os.getpid(), number)

    asyncio.run(serve(settings(**values), announce=announce))
    return announced


@pytest.mark.usefixtures("stand_in_voice")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_cleanly(number: signal.Signals) -> None:
    handler = signal.getsignal(number)
    (line,) = serve_until_signalled(number)
    assert re.fullmatch(
        r"vivavoce is ready: AudioSocket on 127\.0\.0\.1:\d+, HTTP on http://127\.0\.0\.1:\d+, "
        r"agent none, voice tone-440",
        line,
    )
    assert signal.getsignal(number) == handler


@pytest.mark.usefixtures("stand_in_voice")
def test_an_ipv6_address_is_announced_in_brackets() -> None:
    (line,) = serve_until_signalled(signal.SIGTERM, http_host="::1", audiosocket_host="::1")
    assert re.search(r"AudioSocket on \[::1\]:\d+, HTTP on http://\[::1\]:\d+,", line)


@pytest.mark.usefixtures("stand_in_voice")
def test_a_signal_during_the_start_ends_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Gateway.open
    closed: list[bool] = []

    async def slow_open(*args: object, **keywords: object) -> Gateway:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.sleep(60)
        finally:
            closed.append(True)
        return await opened(settings())

    monkeypatch.setattr(Gateway, "open", slow_open)
    announced: list[str] = []
    asyncio.run(serve(settings(), announce=announced.append))
    assert (announced, closed) == ([], [True])


@pytest.mark.usefixtures("stand_in_voice")
def test_a_second_signal_does_not_wait_for_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    async def endless_finish(self: Gateway) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(60)

    monkeypatch.setattr(Gateway, "finish", endless_finish)
    assert len(serve_until_signalled(signal.SIGTERM)) == 1


@pytest.mark.usefixtures("stand_in_voice")
def test_a_server_whose_clock_fails_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stopped(self: object) -> None:
        raise ArithmeticError("the clock failed")

    monkeypatch.setattr("vivavoce.adapters.media.clock.Clock.run", stopped)
    with pytest.raises(ArithmeticError, match="the clock failed"):
        asyncio.run(serve(settings(), announce=lambda line: None))


# The server as a process


def test_the_command_serves_a_script_and_ends_with_0(tmp_path: Path) -> None:
    script = tmp_path / "script.txt"
    script.write_text("Hello.\n", encoding="utf-8")
    command = [sys.executable, "-c", "from vivavoce.gateway.cli.main import main; main()", "serve"]
    flags = ["--http-port", "0", "--audiosocket-port", "0", "--agent", f"script:{script}"]
    with subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        line = process.stdout.readline().decode()
        found = re.search(r"AudioSocket on 127\.0\.0\.1:(\d+)", line)
        assert found, process.stderr.read()
        with socket.create_connection(("127.0.0.1", int(found[1]))) as sock:
            sock.sendall(CALL_ID)
            received = b"".join(iter(lambda: sock.recv(4096), b""))
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        log = process.stderr.read().decode()
    assert received.startswith(b"\x10\x01\x40")
    assert received.endswith(b"\x00\x00\x00")
    assert len(received.replace(b"\x00", b"")) > 5000
    assert "opened from" in log
    assert "closed after" in log
    assert "Hello" not in log


@contextmanager
def served_process(
    *flags: str, stdin: int = subprocess.DEVNULL, stderr: IO[bytes] | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], tuple[str, int]]]:
    """Run the command in a process group of its own; yields it and its AudioSocket address."""
    command = [sys.executable, "-c", "from vivavoce.gateway.cli.main import main; main()", "serve"]
    ports = ["--http-port", "0", "--audiosocket-port", "0"]
    with subprocess.Popen(
        [*command, *ports, *flags],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout
            found = re.search(r"AudioSocket on 127\.0\.0\.1:(\d+)", process.stdout.readline().decode())
            assert found
            yield process, ("127.0.0.1", int(found[1]))
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_server_that_was_stopped_for_two_seconds_sends_no_burst() -> None:
    with served_process("--agent", "none") as (process, address):
        sock = socket.create_connection(address)
        sock.sendall(CALL_ID)
        phone = ThreadPhone(sock)
        while len(phone.arrivals) < 10:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGSTOP)
        time.sleep(2.0)
        before = len(phone.arrivals)
        continued = time.monotonic()
        os.killpg(process.pid, signal.SIGCONT)
        while len(phone.arrivals) < before + 15:
            time.sleep(0.02)
        phone.close()
    first_200_ms = [at for at, _ in phone.arrivals[before:] if at < continued + 0.2]
    assert len(first_200_ms) <= 10


@pytest.fixture
def _hangup_is_not_ignored() -> Iterator[None]:
    """Restore SIGHUP, which programs inherit as ignored from ``nohup``."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("_hangup_is_not_ignored")
def test_sighup_is_ignored_and_logged(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        log.open("wb") as written,
        served_process("--agent", "none", stderr=written) as (process, address),
        socket.create_connection(address) as sock,
    ):
        sock.sendall(CALL_ID)
        assert sock.recv(3) == b"\x10\x01\x40"
        process.send_signal(signal.SIGHUP)
        while "SIGHUP is ignored" not in log.read_text():
            time.sleep(0.02)
        for _ in range(20):  # the call goes on
            assert sock.recv(4096)


@pytest.mark.usefixtures("_hangup_is_not_ignored")
def test_a_server_that_was_started_in_a_terminal_stops_when_it_is_closed() -> None:
    controller, terminal = os.openpty()
    with served_process("--agent", "none", stdin=terminal) as (process, _):
        process.send_signal(signal.SIGHUP)
        assert process.wait(timeout=60) == 0
    os.close(controller)
    os.close(terminal)


def test_without_an_agent_phones_get_the_keys_agent_and_browsers_the_greeting() -> None:
    async def scenario(engine: Engine) -> None:
        gateway = await Gateway.open(make_settings(http_port=0, audiosocket_port=0), engine=engine)
        assert isinstance(audiosocket_calls(gateway).agent, KeysAgent)
        assert browser_calls(gateway).agent is None
        await gateway.aclose()

    run(scenario)


def test_the_agent_none_is_used_for_phones_and_browsers() -> None:
    async def scenario(engine: Engine) -> None:
        gateway = await Gateway.open(settings(), engine=engine)
        assert isinstance(audiosocket_calls(gateway).agent, SilentAgent)
        assert browser_calls(gateway).agent is audiosocket_calls(gateway).agent
        await gateway.aclose()

    run(scenario)


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own elsewhere")
@pytest.mark.usefixtures("stand_in_voice")
def test_rendering_threads_have_a_lower_priority() -> None:
    async def scenario() -> None:
        gateway = await Gateway.open(settings())
        rendering = [thread for thread in threading.enumerate() if thread.name.startswith("vivavoce-")]
        assert rendering
        assert {niceness_of(thread) for thread in rendering} == {niceness_of(threading.current_thread()) + 5}
        await gateway.aclose()

    asyncio.run(scenario())


def niceness_of(thread: threading.Thread) -> int:
    assert thread.native_id is not None
    return os.getpriority(os.PRIO_PROCESS, thread.native_id)
