"""AudioSocket calls whose media are in a process: speech, interruption, faults of the process, shutdown."""

import asyncio
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress

import pytest

from shared.calls.audiosocket_server import (
    CALL_ID,
    FunctionAgent,
    RunningServer,
    SpeakingAgent,
    call_id_message,
    connect,
    level_dbfs,
    message,
    run_server,
)
from shared.calls.thread_phone import ThreadPhone
from vivavoce.gateway.calls.agents.kinds.keys import KeysAgent
from vivavoce.gateway.calls.call import Call
from vivavoce.gateway.calls.events import CallEvent, SpeechFinished, WordHeard


def media_process(server: RunningServer) -> int:
    (pid,) = server.media.pids
    return pid


def test_an_utterance_is_heard_and_its_words_are_reported() -> None:
    events: list[CallEvent] = []

    async def talk(call: Call) -> None:
        call.events.add_listener(events.append)
        await call.speech.speak("One two three four five.")
        await call.speech.wait_played()

    async def scenario() -> None:
        async with (
            run_server(FunctionAgent(talk), media_processes=1) as server,
            connect(server, call_id_message()) as peer,
        ):
            packets, got_hangup = await peer.receive_all()
            assert got_hangup
            assert 49 <= sum(level_dbfs(packet) > -30 for packet in packets) <= 52  # five words of 0.2 s
            await server.until(lambda: len(server.audiosocket.registry) == 0)
            assert server.metric("packets_total") >= len(packets)

    asyncio.run(scenario())
    heard = [event.word.text for event in events if isinstance(event, WordHeard)]
    assert heard == ["One", "two", "three", "four", "five"]
    assert [event.heard for event in events if isinstance(event, SpeechFinished)] == [
        "One two three four five."
    ]


def test_an_interruption_says_what_was_heard_and_the_next_utterance_is_played() -> None:
    results: list[object] = []

    async def talk(call: Call) -> None:
        speaking = asyncio.create_task(call.speech.speak("One two three four five six seven eight nine ten."))
        heard = asyncio.Event()
        call.events.add_listener(lambda event: heard.set() if isinstance(event, WordHeard) else None)
        await heard.wait()
        discarding = call.speech.discard()
        await speaking
        outcome = await call.speech.speak("Again.")
        await call.speech.wait_played()
        results.extend([await discarding, outcome])

    async def scenario() -> None:
        async with (
            run_server(FunctionAgent(talk), media_processes=1) as server,
            connect(server, call_id_message()) as peer,
        ):
            await peer.receive_all()

    asyncio.run(scenario())
    discarded, outcome = results
    assert discarded.heard.startswith("One")  # type: ignore[attr-defined]
    assert discarded.cut_ms > 100  # type: ignore[attr-defined]
    assert outcome.value == "spoken"  # type: ignore[attr-defined]


def test_a_key_interrupts_the_keys_agent() -> None:
    async def scenario() -> None:
        async with (
            run_server(KeysAgent(), media_processes=1) as server,
            connect(server, call_id_message()) as peer,
        ):
            await peer.receive_packets(20)
            await peer.send(message(0x03, b"#"))
            packets, got_hangup = await peer.receive_all()
            assert got_hangup
            assert len(packets) < 200  # the greeting alone is longer

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_call_survives_the_death_of_its_media_process(caplog: pytest.LogCaptureFixture) -> None:
    async def talk(call: Call) -> None:
        await call.speech.speak("One two three four five six seven eight nine ten. " * 6)
        await call.speech.wait_played()

    async def scenario() -> None:
        async with (
            run_server(FunctionAgent(talk), media_processes=1) as server,
            connect(server, call_id_message()) as peer,
        ):
            while level_dbfs((await peer.receive_packets(1))[0]) < -30:
                pass
            await server.until(lambda: server.metric("packets_total") > 0)  # of the first report
            os.kill(media_process(server), signal.SIGKILL)
            packets, got_hangup = await peer.receive_all()
            assert got_hangup
            # 6 s of speech, of which what was ready at the death is lost.
            assert sum(level_dbfs(packet) > -30 for packet in packets) > 150

    asyncio.run(scenario())
    assert "The media server died; its 1 calls continue in a new one" in caplog.text


@pytest.mark.slow
def test_the_death_of_the_gateway_ends_a_call_with_a_hangup_and_no_reset() -> None:
    # After a hangup message Asterisk continues with its dial plan; after a reset its application hangs up.
    serve = "serve --http-port 0 --audiosocket-port 0 --agent keys".split()
    program = f"import sys; sys.argv[1:] = {serve!r}; from vivavoce.gateway.cli.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
    ) as gateway:
        try:
            assert gateway.stdout is not None
            address = re.search(r"AudioSocket on 127\.0\.0\.1:(\d+)", gateway.stdout.readline())
            assert address is not None
            with socket.create_connection(("127.0.0.1", int(address[1])), timeout=60) as caller:
                caller.sendall(call_id_message())
                assert caller.recv(323)
                gateway.kill()
                received = b""
                while data := caller.recv(65_536):  # a reset would raise ConnectionResetError
                    received += data
                    with suppress(BrokenPipeError):
                        caller.sendall(message(0x10, bytes(320)))
                assert received.endswith(message(0x00))
        finally:
            gateway.kill()


@pytest.mark.slow
def test_a_thousand_connections_at_once_are_refused_and_not_heard_in_a_call() -> None:
    async def talk(call: Call) -> None:
        await call.speech.speak("One two three four five six seven eight nine ten. " * 2)
        await call.speech.wait_played()

    def storm(port: int) -> int:
        refused = 0
        for _ in range(10):
            sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
            for sock in sockets:
                sock.settimeout(60)
                refused += sock.recv(3) == bytes(3)
                sock.close()
        return refused

    async def scenario() -> None:
        async with run_server(FunctionAgent(talk), media_processes=1, max_calls=1) as server:
            phone = ThreadPhone(socket.create_connection(("127.0.0.1", server.port)))
            phone.sock.sendall(call_id_message())
            await server.until(lambda: phone.sounding() > 5)
            assert await asyncio.to_thread(storm, server.port) == 1000
            await server.until(lambda: phone.hung_up)
            phone.close()
        sounds = [sounds for _, sounds in phone.arrivals]
        speech = sounds[sounds.index(True) : len(sounds) - sounds[::-1].index(True)]
        assert len(speech) - sum(speech) <= 3 * 20  # the pauses at the ends of words

    asyncio.run(scenario())


def test_a_shutdown_ends_calls_whose_media_process_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "vivavoce")
    monkeypatch.setattr("vivavoce.gateway.calls.kits.phone_leg._END_TIMEOUT_S", 0.2)
    monkeypatch.setattr("vivavoce.adapters.media.servers.media_servers._EXIT_TIMEOUT_S", 0.2)

    async def scenario() -> None:
        async with (
            run_server(SpeakingAgent("Word " * 100), media_processes=1) as server,
            connect(server, call_id_message()) as peer,
        ):
            await peer.receive_packets(3)
            os.kill(media_process(server), signal.SIGSTOP)

    asyncio.run(scenario())
    assert f"Call {CALL_ID} closed after" in caplog.text
    assert "the media server does not answer" in caplog.text
