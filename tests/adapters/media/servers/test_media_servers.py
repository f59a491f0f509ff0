"""Media servers in processes of their own, with phones on loopback sockets."""

import asyncio
import os
import resource
import signal
import socket
import struct
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from shared.calls.thread_phone import ThreadPhone
from shared.event_loop import until
from vivavoce.adapters.audiosocket.wire import AudioSocketOpening
from vivavoce.adapters.media.call_media import CallerAudioOptions, MediaReport
from vivavoce.adapters.media.phone_media import PhoneCallOptions
from vivavoce.adapters.media.servers.media_servers import MediaServers
from vivavoce.adapters.media.servers.messages import MediaMessage, MediaReady
from vivavoce.adapters.media.servers.remote_media import RemoteMedia
from vivavoce.adapters.playback.heard_words import DiscardResult, HeardMark, HeardWord
from vivavoce.adapters.voice_activity import VoiceActivityDetector
from vivavoce.tts_engine.chunk import SAMPLE_RATE, AudioChunk, Provenance, Word

CALL_ID = struct.pack("!BH", 0x01, 16) + UUID(int=7).bytes
PACKET_BYTES = 3 + 320


class CallRecord:
    """The owner and listener of a call: records what the media report."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.played = 0
        self.discards: list[DiscardResult] = []
        self.closed: list[str] = []
        self.reports = 0
        self.problems: list[str] = []

    def on_closed(self, reason: str) -> None:
        self.closed.append(reason)

    def on_problem(self, text: str, *, is_internal: bool) -> None:
        self.problems.append(text)

    def fail(self, error: Exception) -> None:
        raise error

    def on_words_heard(self, words: Sequence[HeardWord | HeardMark]) -> None:
        self.words += [heard.word.text for heard in words if isinstance(heard, HeardWord)]

    def on_played(self, pushes: int) -> None:
        self.played = pushes

    def on_discarded(self, result: DiscardResult, *, requested: bool) -> None:
        self.discards.append(result)

    def on_caller_speech(self, speaking: bool) -> None:
        pass

    def on_caller_audio(self, pcm: bytes, sample_rate: int) -> None:
        pass

    def on_key(self, digit: str) -> None:
        pass

    def on_report(self, report: MediaReport) -> None:
        self.reports += 1


@asynccontextmanager
async def open_call(
    processes: int,
) -> AsyncIterator[tuple[MediaServers, RemoteMedia, CallRecord, ThreadPhone]]:
    async with asyncio.timeout(60):
        servers = MediaServers(processes, VoiceActivityDetector)
        await servers.start()
        own_end, phone_end = tcp_pair()
        phone, record = ThreadPhone(phone_end), CallRecord()
        options = PhoneCallOptions(sample_rate=8_000, stalled_s=5.0)
        media = servers.open_phone_call(AudioSocketOpening(UUID(int=7), CALL_ID), own_end, record, options)
        media.set_listener(record)
        try:
            yield servers, media, record, phone
        finally:
            await servers.aclose()
            phone.close()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        phone = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
        return accepted, phone


def chunk(seconds: float, word: str, at_s: float = 0.0) -> AudioChunk:
    start, samples = round(at_s * SAMPLE_RATE), round(seconds * SAMPLE_RATE)
    words = (Word(word, at_s, at_s + seconds, 0, len(word)),)
    at = (start, start + samples)
    return AudioChunk(b"\1\1" * samples, 0, at, (0, len(word)), words, Provenance(None, None, 0, 0), False)


def process_of(servers: MediaServers) -> int:
    (pid,) = servers.pids
    return pid


def standby_of(servers: MediaServers) -> int | None:
    """The process that stands by, once it is ready."""
    standby = servers._standby
    return standby.pid if standby is not None and standby.is_ready else None


@pytest.mark.parametrize("processes", [0, 1], ids=["a thread", "a process"])
def test_speech_is_played_and_reported(processes: int) -> None:
    async def scenario() -> None:
        async with open_call(processes) as (_, media, record, phone):
            media.push(chunk(0.4, "one"), 0)
            assert 0.35 < media.lead_s(time.monotonic()) <= 0.4
            media.finish()
            await until(lambda: record.played == 1)
            assert record.words == ["one"]
            await until(lambda: phone.sounding() >= 20)
            assert phone.sounding() <= 22
            media.push(chunk(5.0, "two"), 1)
            await until(lambda: phone.sounding() > 30)
            media.discard()
            await until(lambda: record.discards)
            assert record.discards[0].utterance == 1
            assert 3_000 < record.discards[0].cut_ms < 5_000
            assert media.lead_s(time.monotonic()) == 0
            await until(lambda: record.reports)
            media.hang_up("enough")
            await until(lambda: record.closed)
            assert record.closed == ["enough"]
            assert media.report.stats.packets >= len(phone.arrivals) - 1
            await until(lambda: phone.hung_up)

    asyncio.run(scenario())


def test_media_go_on_while_control_does_nothing() -> None:
    async def scenario() -> None:
        async with open_call(1) as (_, media, _, phone):
            await until(lambda: phone.arrivals)
            media.push(chunk(0.5, "one"), 0)
            time.sleep(2.0)  # noqa: ASYNC251  # control is stopped
            arrived = len(phone.arrivals)
            assert arrived >= 60  # of 100, without any message of control
            assert 24 <= phone.sounding() <= 27
            media.push(chunk(0.5, "two", 0.5), 0)
            await until(lambda: phone.sounding() >= 49)
            seconds = phone.arrivals[-1][0] - phone.arrivals[0][0]
            assert len(phone.arrivals) <= seconds / 0.02 + 3  # no burst

    asyncio.run(scenario())


def test_a_call_goes_on_in_a_new_process_when_its_media_process_dies() -> None:
    async def scenario() -> None:
        async with open_call(1) as (servers, media, record, phone):
            media.set_caller_audio(CallerAudioOptions(is_forwarded=True))
            media.push(chunk(3.0, "one"), 0)
            await until(lambda: record.reports and phone.sounding() > 10)
            packets = media.report.stats.packets
            first = process_of(servers)
            media.discard()
            os.kill(first, signal.SIGKILL)
            await until(lambda: process_of(servers) != first)
            await until(lambda: record.discards and record.played == 1)
            before = phone.sounding()
            # The rest of an utterance of which a second was played.
            media.push(chunk(0.4, "two", 1.0), 0)
            media.finish()
            await until(lambda: record.played == 2)
            assert record.words[-1:] == ["two"]
            await until(lambda: phone.sounding() - before >= 19)
            assert record.closed == [] and not phone.hung_up
            reports = record.reports
            await until(lambda: record.reports > reports)
            assert media.report.stats.packets >= packets + 20  # of both processes

    asyncio.run(scenario())


def test_the_standby_takes_the_calls_over_and_another_one_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with open_call(1) as (servers, _, record, phone):
            await until(lambda: record.reports and standby_of(servers) is not None)
            standby = standby_of(servers)
            os.kill(process_of(servers), signal.SIGKILL)
            await until(lambda: process_of(servers) == standby)
            packets = len(phone.arrivals)
            await until(lambda: len(phone.arrivals) > packets + 10)
            await until(lambda: standby_of(servers) is not None)
            next_standby = standby_of(servers)
            assert next_standby not in (None, standby)
            os.kill(next_standby or 0, signal.SIGKILL)
            await until(lambda: standby_of(servers) not in (None, next_standby))
            assert process_of(servers) == standby and record.closed == []

    monkeypatch.setattr("vivavoce.adapters.media.servers.media_servers._RETRY_DELAY_S", 0.01)
    asyncio.run(scenario())


def test_a_media_server_tells_that_it_runs_while_it_has_calls() -> None:
    async def scenario() -> None:
        async with open_call(1) as (servers, _, _, _):
            (server,) = servers._servers
            told: list[MediaMessage | MediaReady] = []
            running = server._server
            receive = running.on_message
            running.on_message = lambda message: (told.append(message), receive(message))[1]
            await until(lambda: told.count(MediaReady()) == 3)

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_call_goes_on_in_a_new_process_when_its_media_process_hangs() -> None:
    async def scenario() -> None:
        async with open_call(1) as (servers, media, record, phone):
            await until(lambda: record.reports)
            first = process_of(servers)
            os.kill(first, signal.SIGSTOP)
            await until(lambda: process_of(servers) != first)
            media.push(chunk(0.2, "one"), 0)
            media.finish()
            await until(lambda: record.words == ["one"])
            await until(lambda: phone.sounding() >= 9)
            assert record.closed == []

    asyncio.run(scenario())


def test_a_new_process_is_killed_only_if_it_is_not_ready_in_half_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def launch_idle(_: MediaServers, sock: socket.socket) -> subprocess.Popen[bytes]:
        with sock:
            started.append(subprocess.Popen(["sleep", "60"], pass_fds=[sock.fileno()]))
        return started[-1]

    async def scenario() -> None:
        async with open_call(1) as (servers, _, record, phone):
            await until(lambda: phone.arrivals and standby_of(servers) is not None)
            with monkeypatch.context() as patch:
                patch.setattr(MediaServers, "launch", launch_idle)
                os.kill(process_of(servers), signal.SIGKILL)
                await until(lambda: started)  # the standby took over; this is the next one
                os.kill(process_of(servers), signal.SIGKILL)
                await until(lambda: len(started) == 2)
            (server,) = servers._servers
            assert not servers.are_ready
            for _ in range(119):
                server._check()
            with pytest.raises(subprocess.TimeoutExpired):
                started[1].wait(0.2)
            server._check()
            await until(lambda: process_of(servers) != started[1].pid)
            reports = record.reports
            await until(lambda: record.reports > reports)
            assert record.closed == []
            for process in started:
                process.kill()

    asyncio.run(scenario())


def test_a_hang_up_while_the_media_process_is_dead_is_executed_by_the_next() -> None:
    async def scenario() -> None:
        async with open_call(1) as (servers, media, record, phone):
            await until(lambda: phone.arrivals)
            os.kill(process_of(servers), signal.SIGSTOP)
            media.hang_up("enough")
            os.kill(process_of(servers), signal.SIGKILL)
            await until(lambda: record.closed)
            assert record.closed == ["enough"]
            await until(lambda: phone.hung_up)

    asyncio.run(scenario())


@pytest.mark.parametrize("processes", [0, 1], ids=["a thread", "a process"])
def test_a_connection_that_cannot_be_served_ends_its_call_and_no_other(processes: int) -> None:
    async def scenario() -> None:
        async with open_call(processes) as (servers, media, record, phone):
            own_end, other_end = socket.socketpair()  # has none of the options of TCP
            refused = CallRecord()
            options = PhoneCallOptions(sample_rate=8_000, stalled_s=5.0)
            refused_media = servers.open_phone_call(
                AudioSocketOpening(UUID(int=8), CALL_ID), own_end, refused, options
            )
            refused_media.hang_up("enough")
            await until(lambda: refused.closed)
            assert "could not be served" in refused.closed[0]
            assert other_end.recv(1) == b""
            other_end.close()
            media.push(chunk(0.2, "one"), 0)
            media.finish()
            await until(lambda: record.played == 1)
            assert servers.calls == (media,) and not phone.hung_up

    asyncio.run(scenario())


def test_a_media_process_raises_its_limit_of_descriptors_and_refuses_calls_beyond_it() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def scenario() -> None:
        async with open_call(1) as (servers, media, _, phone):
            await until(lambda: phone.arrivals)
            pid = process_of(servers)
            assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (limits[1], limits[1])
            in_use = set(map(int, os.listdir(f"/proc/{pid}/fd")))
            free = next(number for number in range(limits[1]) if number not in in_use)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, free))
            own_end, other_end = tcp_pair()
            refused = CallRecord()
            options = PhoneCallOptions(sample_rate=8_000, stalled_s=5.0)
            servers.open_phone_call(AudioSocketOpening(UUID(int=8), CALL_ID), own_end, refused, options)
            await until(lambda: refused.closed)
            assert refused.closed == ["the media server may open no more files"]
            assert other_end.recv(1) == b""
            other_end.close()
            packets = len(phone.arrivals)
            await until(lambda: len(phone.arrivals) > packets + 10)
            assert servers.calls == (media,)

    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, limits[1]), limits[1]))
    try:
        asyncio.run(scenario())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_signals_of_a_terminal_do_not_end_a_media_process() -> None:
    async def scenario() -> None:
        async with open_call(1) as (servers, _, record, phone):
            await until(lambda: phone.arrivals)
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(process_of(servers), number)
            packets = len(phone.arrivals)
            await until(lambda: len(phone.arrivals) > packets + 10)
            assert record.closed == []

    asyncio.run(scenario())


def test_a_peer_that_disconnects_ends_its_call() -> None:
    async def scenario() -> None:
        async with open_call(0) as (servers, _, record, phone):
            await until(lambda: phone.arrivals)
            phone.sock.shutdown(socket.SHUT_RDWR)
            await until(lambda: record.closed)
            assert record.closed == ["the caller hung up"]
            assert servers.calls == ()

    asyncio.run(scenario())
