"""The calls API over real sockets: programs that attach to a phone's call, speak, discard and hang up."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed

from shared.calls.call_server import (
    Phone,
    call_server,
    run,
    send_utterance,
    until,
    until_unattached,
)
from vivavoce.adapters.audiosocket.protocol import (
    AudioSocketAudio,
    Dtmf,
)


def caller_packet(sample_rate: int) -> AudioSocketAudio:
    """20 ms of a caller's audio."""
    return AudioSocketAudio(sample_rate, bytes([1, 2]) * (sample_rate // 50))


@asynccontextmanager
async def sending(phone: Phone, packet: AudioSocketAudio) -> AsyncIterator[None]:
    """Send a packet each 20 ms, as a phone does: a gateway may need some of them to begin forwarding."""

    async def send() -> None:
        while True:
            phone.send(packet)
            await asyncio.sleep(0.02)

    task = asyncio.create_task(send())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


def test_an_attached_program_speaks_and_gets_the_words_heard() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                started = (await until(socket, "started"))[0]
                assert started["call"] == phone.call_id
                assert started["kind"] == "audiosocket"
                await send_utterance(socket, "Hel", "lo ", "there, my fri", "end.")
                received = await until(socket, "speech_finished")
                assert received[0] == {"type": "speech_started", "utterance": 0}
                assert [message["text"] for message in received if message["type"] == "word"] == [
                    "Hello",
                    "there",
                    "my",
                    "friend",
                ]
                assert received[-1] == {"type": "speech_finished", "utterance": 0, "outcome": "spoken"}
            assert np.abs(np.frombuffer(bytes(phone.heard), "<i2")).max() > 4000

    run(test())


def test_utterances_are_spoken_one_after_another() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await send_utterance(socket, "First one.")
                await send_utterance(socket, "Second one.")
                received = await until(socket, "speech_finished") + await until(socket, "speech_finished")
                words = [
                    (message["utterance"], message["text"])
                    for message in received
                    if message["type"] == "word"
                ]
                assert words == [(0, "First"), (0, "one"), (1, "Second"), (1, "one")]

    run(test())


def test_a_goodbye_is_heard_before_the_call_is_hung_up() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await send_utterance(socket, "First one.")
                await socket.send(json.dumps({"type": "text", "text": "Good bye"}))
                await socket.send(json.dumps({"type": "hang_up", "after_speech": True, "result": "done"}))
                received = await until(socket, "hung_up")
                heard = [message["text"] for message in received if message["type"] == "word"]
                assert heard == ["First", "one", "Good", "bye"]

    run(test())


def test_a_request_hangs_up_when_speech_is_heard() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket, server.http() as client:
                await send_utterance(socket, "Thank you and good bye.")
                await until(socket, "speech_started")
                answer = await client.delete(f"/{phone.call_id}", params={"after_speech": "true"})
                assert answer.json()["status"] == "hung up"
                received = await until(socket, "hung_up")
                assert [message["text"] for message in received if message["type"] == "word"][-1] == "bye"

    run(test())


def test_flush_speaks_text_without_a_full_stop() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await socket.send(json.dumps({"type": "text", "text": "one moment please"}))
                await socket.send(json.dumps({"type": "flush"}))
                received = await until(socket, "word")
                assert received[-1]["text"] == "one"

    run(test())


def test_a_discard_stops_speech_and_reports_the_text_heard() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                text = "one two three four five six seven eight nine ten eleven twelve " * 4
                await send_utterance(socket, text)
                await send_utterance(socket, "never spoken.")
                await until(socket, "word")
                await until(socket, "word")
                await socket.send(json.dumps({"type": "discard"}))
                received = await until(socket, "discarded")
                words = [message["text"] for message in received if message["type"] == "word"]
                heard = received[-1]["heard"].split()
                assert heard == text.split()[: len(heard)]
                assert 2 <= len(heard) <= 2 + len(words)
                assert received[-1]["cut_ms"] > 300
                await send_utterance(socket, "Back again.")
                received = await until(socket, "speech_finished")
                assert [message["text"] for message in received if message["type"] == "word"] == [
                    "Back",
                    "again",
                ]

    run(test())


def test_keys_and_audio_of_the_caller_are_sent_to_the_program() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id, "?audio=in") as socket:
                await until(socket, "started")
                phone.send(Dtmf("7"))
                assert (await until(socket, "dtmf"))[-1]["digit"] == "7"
                async with sending(phone, caller_packet(8_000)):
                    await until(socket, "audio")
                    assert await socket.recv() == caller_packet(8_000).payload

    run(test())


@pytest.mark.parametrize("sent_rate", [8_000, 24_000])
def test_the_rate_of_the_caller_s_audio_is_sent_before_it_and_when_it_changes(sent_rate: int) -> None:
    async def test() -> None:
        async with call_server(audiosocket_rate=sent_rate) as server:
            phone = await server.phone()
            async with server.socket(phone.call_id, "?audio=in") as socket:
                started = (await until(socket, "started"))[-1]
                assert started["sample_rate"] == sent_rate
                earlier = b""
                for rate in (16_000, 8_000):
                    audio = caller_packet(rate).payload
                    announced = {"type": "audio", "sample_rate": rate, "encoding": "pcm_s16le"}
                    async with sending(phone, caller_packet(rate)):
                        received = await socket.recv()
                        while received == earlier:  # was under way
                            received = await socket.recv()
                        assert json.loads(received) == announced
                        assert [await socket.recv() for _ in range(2)] == [audio, audio]
                    earlier = audio

    run(test())


def test_hang_up_ends_the_call_and_the_socket() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await socket.send(json.dumps({"type": "hang_up"}))
                await until(socket, "hung_up")
                with pytest.raises(ConnectionClosed):
                    await socket.recv()
            await phone.hung_up.wait()

    run(test())


def test_a_caller_s_hang_up_is_reported() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await phone.aclose()
                await until(socket, "hung_up")

    run(test())


def test_one_program_at_a_time_is_attached_to_a_call() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await until(socket, "started")
                async with server.socket(phone.call_id) as second:
                    assert "another program is attached" in (await until(second, "error"))[-1]["message"]
                    with pytest.raises(ConnectionClosed) as closed:
                        await second.recv()
                    assert closed.value.rcvd is not None and closed.value.rcvd.code == 4409
                async with server.http() as client:
                    answer = await client.post(f"/{phone.call_id}/speech", content="Hello.")
                    assert answer.status_code == 409
            await until_unattached(server, phone)
            async with server.socket(phone.call_id) as third:
                await until(third, "started")

    run(test())


def test_next_waits_for_a_call_without_a_program() -> None:
    async def test() -> None:
        async with call_server() as server, server.socket("next") as socket:
            waiting = asyncio.create_task(until(socket, "started"))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            phone = await server.phone()
            assert (await waiting)[-1]["call"] == phone.call_id

    run(test())


def test_a_program_that_disconnects_while_it_waits_leaves_no_task() -> None:
    async def test() -> None:
        async with call_server() as server:
            before = len(asyncio.all_tasks())
            async with server.socket("next"), server.socket("next") as second:
                await second.send(json.dumps({"type": "text", "text": "Are you there?"}))
                await asyncio.sleep(0.05)
            while len(asyncio.all_tasks()) > before:
                await asyncio.sleep(0.01)

    run(test())


def test_text_sent_while_waiting_for_a_call_is_spoken_on_it() -> None:
    async def test() -> None:
        async with call_server() as server, server.socket("next") as socket:
            await send_utterance(socket, "One ", "two.")
            await asyncio.sleep(0.05)
            await server.phone()
            received = await until(socket, "speech_finished")
            assert [message["text"] for message in received if message["type"] == "word"] == ["One", "two"]

    run(test())


def test_calls_can_be_listed_spoken_on_and_ended_over_http() -> None:
    async def test() -> None:
        async def body() -> AsyncIterator[bytes]:
            for byte in "Grüße. Good day.".encode():
                yield bytes([byte])

        async with call_server() as server, server.http() as client:
            assert (await client.get("")).json() == {"calls": []}
            phone = await server.phone()
            (listed,) = (await client.get("")).json()["calls"]
            assert listed["call"] == phone.call_id
            assert listed["held"] is False
            assert (await client.get(f"/{phone.call_id}")).json()["peer"].startswith("127.0.0.1:")
            spoken = await client.post(f"/{phone.call_id}/speech", content=body())
            assert spoken.json()["outcome"] == "spoken"
            discarded = (await client.post(f"/{phone.call_id}/discard")).json()
            assert discarded == {"cut_ms": 0.0, "heard": "", "words": [], "marks": [], "heard_s": 0.0}
            assert (await client.delete(f"/{phone.call_id}")).status_code == 200
            await phone.hung_up.wait()
            assert (await client.get(f"/{phone.call_id}")).status_code == 404

    run(test())


def test_a_discard_over_http_cuts_the_utterance() -> None:
    async def test() -> None:
        async with call_server() as server, server.http() as client:
            phone = await server.phone()
            text = "one two three four five six seven eight nine ten " * 6
            speaking = asyncio.create_task(client.post(f"/{phone.call_id}/speech", content=text))
            while not any(phone.heard):
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.5)
            discarded = (await client.post(f"/{phone.call_id}/discard")).json()
            assert 500 < discarded["cut_ms"] < 12_000
            assert text.startswith(discarded["heard"])
            assert discarded["words"] == discarded["heard"].split()
            assert (await speaking).json()["outcome"] == "discarded"

    run(test())
