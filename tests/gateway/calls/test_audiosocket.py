"""The AudioSocket server over loopback sockets: good callers, bad ones, and both at once."""

import asyncio
import logging
import os
import random
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from uuid import UUID

import numpy as np
import pytest

from benches.browser_calls import ProcessFootprint
from shared.standin_backend import StandInBackend
from vivavoce.adapters.audiosocket import call as audiosocket_call
from vivavoce.gateway.calls.agents import Agent, KeysAgent, SilentAgent
from vivavoce.gateway.calls.audiosocket import AudioSocketCallServer, AudioSocketCallSettings
from vivavoce.gateway.calls.call import Call, CallSpeechOptions
from vivavoce.gateway.calls.clock import Clock
from vivavoce.gateway.calls.registry import CallRegistry
from vivavoce.tts_engine.engine import Engine

CALL = UUID("00000000-0000-4000-8000-000000000007")
SILENCE = bytes(320)
POLICY = AudioSocketCallSettings(
    sample_rate=8000, first_message_s=5.0, stalled_s=5.0, lead_s=0.6, speech=CallSpeechOptions()
)


class Speaker:
    """Says one text, then the call ends."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def run(self, call: Call) -> None:
        await call.speak(self._text)


class Script:
    """Runs a coroutine function as an agent."""

    def __init__(self, run: Callable[[Call], Awaitable[None]]) -> None:
        self._run = run

    async def run(self, call: Call) -> None:
        await self._run(call)


class Gate:
    """A server on a free port of loopback."""

    def __init__(self, server: AudioSocketCallServer, port: int) -> None:
        self.server = server
        self.port = port

    def metric(self, name: str, **labels: str) -> float:
        registry = self.server.engine.metrics.registry
        return registry.get_sample_value(f"vivavoce_{name}", labels) or 0.0

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.005)


@asynccontextmanager
async def gate(
    agent: Agent | None = None, *, pitches_hz: tuple[int, ...] = (440,), max_calls: int = 50, **policy: object
) -> AsyncIterator[Gate]:
    before = asyncio.all_tasks()
    async with await Engine.open(backend=StandInBackend(pitches_hz)) as engine:
        clock = Clock(metrics=engine.metrics)
        ticking = asyncio.create_task(clock.run())
        server = AudioSocketCallServer(
            engine=engine, clock=clock, agent=agent or SilentAgent(), policy=replace(POLICY, **policy),
            registry=CallRegistry(engine, max_calls=max_calls),
        )  # fmt: skip
        sock = socket.create_server(("127.0.0.1", 0))
        await server.listen(sock)
        try:
            yield Gate(server, sock.getsockname()[1])
        finally:
            await server.aclose()
            ticking.cancel()
            await asyncio.wait({ticking})
    assert asyncio.all_tasks() == before
    assert engine.active_streams == 0


def message(kind: int, payload: bytes = b"") -> bytes:
    return struct.pack("!BH", kind, len(payload)) + payload


def call_id(number: int | UUID = CALL) -> bytes:
    return message(0x01, UUID(int=number).bytes if isinstance(number, int) else number.bytes)


class Caller:
    """A peer in a few lines, which says what it is told to and takes messages apart."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        with suppress(ConnectionError):
            await self.writer.drain()

    async def hear(self) -> tuple[int, bytes] | None:
        """The next message; None at the end of the connection. Fails on a part of one."""
        try:
            header = await self.reader.readexactly(3)
        except asyncio.IncompleteReadError as error:
            assert error.partial == b""
            return None
        except ConnectionError:
            return None
        kind, length = struct.unpack("!BH", header)
        return kind, await self.reader.readexactly(length)

    async def hear_packets(self, count: int) -> list[bytes]:
        heard = [await self.hear() for _ in range(count)]
        assert {one[0] for one in heard if one} == {0x10}
        return [one[1] for one in heard if one]

    async def hear_all(self) -> tuple[list[bytes], bool]:
        """Every packet until the end, and whether 0x00 came at the end. Nothing else may come."""
        packets: list[bytes] = []
        while (heard := await self.hear()) is not None:
            kind, payload = heard
            if kind == 0x00:
                assert await self.hear() is None
                return packets, True
            assert kind in (0x10, 0x13)
            packets.append(payload)
        return packets, False


@asynccontextmanager
async def caller(
    gate: Gate, first: bytes = b"", *, receive_buffer: int | None = None
) -> AsyncIterator[Caller]:
    sock = socket.socket()
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", gate.port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=2**20)
    try:
        async with asyncio.timeout(60):
            peer = Caller(reader, writer)
            await peer.say(first)
            yield peer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def level_dbfs(pcm: bytes) -> float:
    samples = np.frombuffer(pcm, "<i2").astype(np.float64)
    return 20 * float(np.log10(np.sqrt(np.mean(np.square(samples))) / 32768 + 1e-9))


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "vivavoce")
    return caplog


# Good callers


def test_a_silent_line_gets_silence_packets_from_the_first_tick() -> None:
    async def scenario() -> None:
        async with gate() as house, caller(house, call_id()) as peer:
            assert await peer.hear_packets(5) == [SILENCE] * 5

    asyncio.run(scenario())


def test_at_24_khz_packets_are_of_kind_0x13() -> None:
    async def scenario() -> None:
        async with gate(sample_rate=24000) as house, caller(house, call_id()) as peer:
            assert await peer.hear() == (0x13, bytes(960))

    asyncio.run(scenario())


def test_what_the_agent_says_is_heard_and_then_0x00() -> None:
    async def scenario() -> None:
        async with gate(Speaker("One two three four five.")) as house, caller(house, call_id()) as peer:
            packets, goodbye = await peer.hear_all()
            speech = [packet for packet in packets if level_dbfs(packet) > -30]
            assert goodbye
            assert {len(packet) for packet in packets} == {320}
            assert 49 <= len(speech) <= 52  # five words of 0.2 s
            await house.until(lambda: len(house.server.registry) == 0)

    asyncio.run(scenario())


def test_a_call_id_in_any_split_opens_the_call() -> None:
    async def scenario() -> None:
        async with gate() as house, caller(house) as peer:
            for byte in call_id():
                await peer.say(bytes([byte]))
                await asyncio.sleep(0.001)
            assert await peer.hear_packets(1) == [SILENCE]

    asyncio.run(scenario())


def test_a_payload_later_than_its_header_is_waited_for() -> None:
    async def scenario() -> None:
        async with gate() as house, caller(house, call_id()) as peer:
            await peer.say(message(0x10, SILENCE)[:3])
            await peer.hear_packets(2)
            await peer.say(SILENCE)
            await peer.hear_packets(2)
            assert len(house.server.registry) == 1

    asyncio.run(scenario())


def test_keys_reach_the_agent_and_interrupt_it() -> None:
    async def scenario() -> None:
        async with gate(KeysAgent()) as house, caller(house, call_id()) as peer:
            await peer.hear_packets(20)
            await peer.say(message(0x03, b"#"))
            packets, goodbye = await peer.hear_all()
            assert goodbye
            assert len(packets) < 200  # the greeting alone is longer

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "last",
    [b"", message(0x00), message(0x00) + message(0x10, SILENCE)],
    ids=["by closing", "with 0x00", "with 0x00 and more behind it"],
)
def test_a_caller_who_hangs_up_is_a_normal_end(last: bytes, log: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with gate(Speaker("Word " * 100)) as house:
            async with caller(house, call_id()) as peer:
                await peer.hear_packets(3)
                await peer.say(last)
            await house.until(lambda: len(house.server.registry) == 0)

    asyncio.run(scenario())
    assert f"Call {CALL} closed after" in log.text
    assert "the caller hung up" in log.text
    assert [record for record in log.records if record.levelno > logging.INFO] == []


def test_a_reset_is_a_normal_end(log: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with gate(Speaker("Word " * 100)) as house:
            async with caller(house, call_id()) as peer:
                await peer.hear_packets(3)
                linger = struct.pack("ii", 1, 0)
                peer.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            await house.until(lambda: len(house.server.registry) == 0)

    asyncio.run(scenario())
    assert f"Call {CALL} closed after" in log.text
    assert [record for record in log.records if record.levelno > logging.INFO] == []


def test_an_agent_is_cancelled_when_its_caller_hangs_up() -> None:
    cancelled = asyncio.Event()

    async def absorbed(call: Call) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def scenario() -> None:
        async with gate(Script(absorbed)) as house:
            async with caller(house, call_id()) as peer:
                await peer.hear_packets(1)
            async with asyncio.timeout(30):
                await cancelled.wait()

    asyncio.run(scenario())


def test_opening_and_closing_are_logged_with_the_numbers(log: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with gate(Speaker("Secret words.")) as house, caller(house, call_id()) as peer:
            await peer.hear_all()

    asyncio.run(scenario())
    assert f"Call {CALL} opened from 127.0.0.1:" in log.text
    closed = next(record.getMessage() for record in log.records if "closed" in record.getMessage())
    for number in ("packets", "late", "skipped", "dropped", "underruns", "ms discarded"):
        assert number in closed
    assert "Secret" not in log.text


def test_calls_and_packets_are_counted() -> None:
    async def scenario() -> None:
        async with gate() as house:
            async with caller(house, call_id(1)) as one, caller(house, call_id(2)) as two:
                await one.hear_packets(3)
                await two.hear_packets(3)
                assert house.metric("active_calls") == 2
            await house.until(lambda: house.metric("active_calls") == 0)
            assert house.metric("packets_total") >= 6

    asyncio.run(scenario())


# A full house


def test_a_full_house_is_refused_at_once_with_the_reason(log: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with gate(max_calls=1) as house:
            async with caller(house, call_id(1)) as first, caller(house, call_id(2)) as second:
                await first.hear_packets(1)
                assert await second.hear_all() == ([], True)
                assert house.metric("refusals_total", reason="calls") == 1
                await first.hear_packets(3)
            await house.until(lambda: len(house.server.registry) == 0)
            async with caller(house, call_id(3)) as third:
                await third.hear_packets(1)

    asyncio.run(scenario())
    assert "refused: 1 calls are up, which is max_calls" in log.text


def test_peers_without_an_id_take_places_too() -> None:
    async def scenario() -> None:
        async with gate(max_calls=1, first_message_s=1.0) as house:
            async with caller(house) as silent:
                await house.until(lambda: house.server.registry.refusal() is not None)
                assert await silent.hear_all() == ([], True)
            assert house.server.registry.refusal() is None

    asyncio.run(scenario())


def test_while_shutting_down_new_calls_are_refused_and_sentences_finished(
    log: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        sentence = "One two three four five six. "
        async with gate(Speaker(sentence * 20)) as house, caller(house, call_id()) as peer:
            await peer.hear_packets(30)
            finishing = asyncio.create_task(house.server.registry.finish_calls(15.0))
            await asyncio.sleep(0)
            async with caller(house, call_id(2)) as late:
                assert await late.hear_all() == ([], True)
            packets, goodbye = await peer.hear_all()
            await finishing
            assert goodbye
            assert len(packets) < 200  # not all of the twenty sentences
            spoken = sum(level_dbfs(packet) > -30 for packet in packets)
            assert spoken > 10
            assert house.metric("refusals_total", reason="shutting_down") == 1

    asyncio.run(scenario())
    assert "the server is shutting down" in log.text


def test_shutting_down_does_not_wait_longer_than_it_may() -> None:
    async def endless(call: Call) -> None:
        await call.speak("Word " * 1000)

    async def scenario() -> None:
        async with gate(Script(endless)) as house, caller(house, call_id()) as peer:
            await peer.hear_packets(3)
            async with asyncio.timeout(60):  # the words would take 200 s
                await house.server.registry.finish_calls(0.1)
            _, goodbye = await peer.hear_all()
            assert goodbye

    asyncio.run(scenario())


# Bad callers

GARBAGE = {
    "an unknown kind": message(0x7F, b"what?"),
    "a second id": call_id(9),
    "an id of the wrong length": message(0x01, b"short"),
    "a zero-length audio message": message(0x10),
    "65,535 bytes of audio": message(0x10, bytes(65_535)),
    "an odd length": message(0x10, bytes(319)),
    "a key that is none": message(0x03, b"\xff"),
    "HTTP": b"GET / HTTP/1.1\r\nHost: gateway\r\n\r\n",
    "noise": random.Random(1).randbytes(4096),
    "an error of its own": message(0xFF, b"\x01"),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_ends_its_call_with_a_log_line_and_no_other(
    garbage: bytes, log: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with gate() as house, caller(house, call_id(1)) as good, caller(house, call_id()) as bad:
            await bad.hear_packets(2)
            await bad.say(garbage)
            _, goodbye = await bad.hear_all()
            assert goodbye
            assert len(house.server.registry) == 1
            await good.hear_packets(3)

    asyncio.run(scenario())
    warnings = [record for record in log.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert warnings[0].getMessage().startswith(f"Call {CALL}: ")


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_before_a_call_id_ends_the_connection(garbage: bytes) -> None:
    async def scenario() -> None:
        async with gate(first_message_s=0.2) as house, caller(house, garbage) as bad:
            packets, goodbye = await bad.hear_all()
            assert goodbye
            if garbage != GARBAGE["a second id"]:
                assert packets == []
            assert len(house.server.registry) == 0

    # A call id alone is a good beginning: such a call has to be hung up by its agent.
    if garbage != GARBAGE["a second id"]:
        asyncio.run(scenario())


def test_a_peer_that_never_says_who_it_is_is_ended(log: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with gate(first_message_s=0.05) as house, caller(house) as peer:
            assert await peer.hear_all() == ([], True)
            assert house.metric("active_calls") == 0

    asyncio.run(scenario())
    assert "no call id within 0.05 s" in log.text


def test_a_message_that_never_ends_ends_its_call(log: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with gate(stalled_s=0.1) as house, caller(house, call_id()) as peer:
            await peer.say(message(0x10, SILENCE)[:2])
            _, goodbye = await peer.hear_all()
            assert goodbye

    asyncio.run(scenario())
    assert f"Call {CALL}: a message stayed incomplete for 0.1 s" in log.text


def test_ulaw_labelled_as_linear_ends_the_call_with_advice(log: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with gate() as house, caller(house, call_id()) as peer:
            for _ in range(10):
                await peer.say(message(0x10, b"\xff" * 160))
            _, goodbye = await peer.hear_all()
            assert goodbye

    asyncio.run(scenario())
    assert "c(slin)" in log.text


def test_a_flood_of_messages_ends_the_call_that_sends_it(log: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with gate() as house, caller(house, call_id(1)) as good, caller(house, call_id()) as bad:
            await good.hear_packets(1)
            await bad.say(message(0x03, b"1") * 20_000)
            _, goodbye = await bad.hear_all()
            assert goodbye
            await good.hear_packets(3)

    asyncio.run(scenario())
    assert "messages came faster than a phone sends them" in log.text


def test_a_peer_that_does_not_close_behind_our_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audiosocket_call, "LINGER_S", 0.05)

    async def scenario() -> None:
        async with gate(Speaker("One.")) as house, caller(house, call_id()) as peer:
            assert (await peer.hear_all())[1]
            await house.until(lambda: not house.server._server.calls)

    asyncio.run(scenario())


def test_what_still_comes_after_our_end_is_swallowed() -> None:
    async def scenario() -> None:
        async with gate(Speaker("Bye.")) as house, caller(house, call_id()) as peer:
            while (heard := await peer.hear()) is not None and heard[0] != 0x00:
                await peer.say(message(0x10, SILENCE))
            for _ in range(20):
                await peer.say(message(0x10, SILENCE))
            assert await peer.reader.read() == b""  # and no reset

    asyncio.run(scenario())


def test_a_peer_that_reads_late_gets_whole_messages_and_some_are_dropped(
    log: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with gate() as house, caller(house, call_id(), receive_buffer=2304) as peer:
            await peer.hear_packets(1)
            peer.writer.transport.pause_reading()
            await house.until(lambda: dropped_by(house) > 5)
            peer.writer.transport.resume_reading()
            for _ in range(60):
                assert await peer.hear() == (0x10, SILENCE)
            assert len(house.server.registry) == 1

    asyncio.run(scenario())
    assert " 0 dropped" not in log.text


def test_a_peer_that_stops_reading_is_ended(log: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with (
            gate(stalled_s=0.2) as house,
            caller(house, call_id(1)) as good,
            caller(house, call_id(), receive_buffer=2304) as bad,
        ):
            bad.writer.transport.pause_reading()
            await house.until(lambda: len(house.server.registry) == 2)
            await house.until(lambda: len(house.server.registry) == 1)
            await good.hear_packets(3)

    asyncio.run(scenario())
    assert f"Call {CALL}: the peer has taken nothing for 0.2 s" in log.text
    assert "the peer stopped reading" in log.text


def dropped_by(house: Gate) -> int:
    return sum(leg.dropped for leg in house.server._server.calls)


# Faults of ours


def test_an_agent_that_raises_ends_its_own_call_only(log: pytest.LogCaptureFixture) -> None:
    async def faulty(call: Call) -> None:
        if call.call_id == str(CALL):
            raise RuntimeError("a bug")
        await call.wait_closed()

    async def scenario() -> None:
        async with gate(Script(faulty)) as house, caller(house, call_id(1)) as good:
            await good.hear_packets(1)
            async with caller(house, call_id()) as bad:
                _, goodbye = await bad.hear_all()
                assert goodbye
            await good.hear_packets(3)

    asyncio.run(scenario())
    assert f"Call {CALL} failed" in log.text
    assert "RuntimeError: a bug" in log.text


def test_a_call_that_cannot_send_is_ended_alone(log: pytest.LogCaptureFixture) -> None:
    def broken(now: float) -> list[bytes]:
        raise ValueError("no packets")

    async def scenario() -> None:
        async with gate() as house, caller(house, call_id(1)) as good, caller(house, call_id()) as bad:
            await good.hear_packets(1)
            await bad.hear_packets(1)
            call = house.server.registry.get(str(CALL)).call
            call.playout.due = broken  # type: ignore[method-assign]
            _, goodbye = await bad.hear_all()
            assert goodbye
            await good.hear_packets(3)

    asyncio.run(scenario())
    assert f"Call {CALL} failed" in log.text


def test_a_server_that_closes_says_goodbye_and_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        async with gate(Speaker("Word " * 100)) as house, caller(house, call_id()) as peer:
            await peer.hear_packets(3)
            closing = asyncio.create_task(house.server.aclose())
            _, goodbye = await peer.hear_all()
            assert goodbye
            peer.writer.close()
            await closing
            assert len(house.server.registry) == 0

    asyncio.run(scenario())


# One write, whole messages: seen at the transport


class FakeTransport(asyncio.Transport):
    def __init__(self, sock: socket.socket) -> None:
        super().__init__({"socket": sock, "peername": ("127.0.0.1", 1)})
        self.written: list[bytes] = []
        self.unsent = 0
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def write_eof(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.aborted = True


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="counts as Linux does")
def test_fifty_calls_leave_no_task_file_thread_or_memory_behind() -> None:
    def is_at_most(now: ProcessFootprint, then: ProcessFootprint) -> bool:
        return now.tasks <= then.tasks and now.files <= then.files and now.threads <= then.threads

    async def one_call(house: Gate, number: int) -> None:
        async with caller(house, call_id(number)) as peer:
            await peer.hear_packets(2)
            if number % 2:
                await peer.say(message(0x00))
                await peer.hear_all()
        await house.until(lambda: not house.server._server.calls)

    async def scenario() -> None:
        async with gate(Speaker("One two three.")) as house:
            for number in range(10):
                await one_call(house, number)
            before = ProcessFootprint.now()
            for number in range(50):
                await one_call(house, number)
            await house.until(lambda: is_at_most(ProcessFootprint.now(), before))
            assert ProcessFootprint.now().resident_mb - before.resident_mb < 5

    asyncio.run(scenario())


def test_each_message_is_one_write_and_a_backlog_costs_whole_messages() -> None:
    async def scenario() -> None:
        async with gate(stalled_s=0.2) as house:
            with socket.socket() as sock:
                transport = FakeTransport(sock)
                leg = house.server._server.new_call()
                leg.connection_made(transport)
                leg.data_received(call_id())
                house.server.clock.leave(leg)  # ticked by hand
                start = leg._handler.call.playout.next_due()
                for number in range(3):
                    leg.tick(start + number * 0.02)
                assert transport.written == [message(0x10, SILENCE)] * 3
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
                transport.unsent = 5 * 323
                for number in range(3, 12):
                    leg.tick(start + number * 0.02)
                assert len(transport.written) == 3
                assert not transport.aborted
                transport.unsent = 0
                leg.tick(start + 12 * 0.02)
                assert len(transport.written) == 4
                transport.unsent = 5 * 323
                for number in range(13, 22):
                    leg.tick(start + number * 0.02)
                assert not transport.aborted  # a packet that was taken begins a new count
                leg.tick(start + 22 * 0.02)
                assert transport.aborted
                assert leg.tick(start + 1) == 0
                leg.connection_lost(None)

    asyncio.run(scenario())


# Everybody at once

TONES_HZ = tuple(range(300, 3300, 150))


class OwnTone:
    """Each call speaks with the voice that its id names."""

    async def run(self, call: Call) -> None:
        tone = TONES_HZ[UUID(call.call_id).int]
        await call.speak("la " * 10 + "la.", speech=CallSpeechOptions(voice=f"tone-{tone}"))


async def vandal(house: Gate, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(5):
        with suppress(ConnectionError, TimeoutError):
            async with caller(house, call_id(1000 + seed) if chance.random() < 0.7 else b"") as peer:
                await peer.say(chance.choice(list(GARBAGE.values())))
                await asyncio.sleep(chance.random() * 0.2)


def test_of_20_calls_nobody_hears_a_sample_of_another_whatever_others_send() -> None:
    async def hear(house: Gate, number: int) -> bytes:
        async with caller(house, call_id(number)) as peer:
            packets, goodbye = await peer.hear_all()
            assert goodbye
            return b"".join(packets)

    async def scenario() -> list[bytes]:
        agent = Script(
            lambda call: OwnTone().run(call) if UUID(call.call_id).int < 20 else call.wait_closed()
        )
        async with gate(agent, pitches_hz=TONES_HZ) as house:
            async with asyncio.TaskGroup() as tasks:
                ears = [tasks.create_task(hear(house, number)) for number in range(20)]
                for seed in range(5):
                    tasks.create_task(vandal(house, seed))
            return [ear.result() for ear in ears]

    for number, heard in enumerate(asyncio.run(scenario())):
        levels = _levels_of_tones(heard)
        assert int(np.argmax(levels)) == number
        others = np.delete(levels, number)
        assert others.max() < levels[number] * 1e-3


def _levels_of_tones(heard: bytes) -> np.ndarray:
    samples = np.frombuffer(heard, "<i2").astype(np.float64)
    loud = np.flatnonzero(np.abs(samples) > 1000)
    middle = (loud[0] + loud[-1]) // 2
    speech = samples[middle - 4000 : middle + 4000]  # a second, whole periods of every tone
    spectrum = np.abs(np.fft.rfft(speech * np.hanning(len(speech))))
    return np.array([spectrum[tone] for tone in TONES_HZ])
