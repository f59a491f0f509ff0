"""The calls API over real sockets: a gateway, a phone, and a program that attaches to its call."""

import asyncio
import importlib.util
import json
import uuid
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from shared.standin_backend import StandInBackend
from shared.unreadable_texts import UNREADABLE_TEXTS
from vivavoce.adapters.audio.resample import Downsampler
from vivavoce.adapters.audiosocket.protocol import (
    AudioSocketAudio,
    AudioSocketConnection,
    AudioSocketRole,
    CallId,
    Dtmf,
    Hangup,
)
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.calls import api
from vivavoce.gateway.calls.agents import SilentAgent
from vivavoce.gateway.serve import Gateway
from vivavoce.gateway.settings import Settings
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.errors import Overloaded


class Phone:
    """A caller over AudioSocket; keeps the audio it receives."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.call_id = str(uuid.uuid4())
        self.heard = bytearray()
        self.hung_up = asyncio.Event()
        self._writer = writer
        self._connection = AudioSocketConnection(AudioSocketRole.CALLER)
        self.send(CallId(uuid.UUID(self.call_id)))
        self._listening = asyncio.create_task(self._listen(reader))

    def send(self, message: CallId | AudioSocketAudio | Dtmf | Hangup) -> None:
        self._writer.write(self._connection.send(message))

    async def aclose(self) -> None:
        self._listening.cancel()
        self._writer.close()
        await asyncio.gather(self._listening, return_exceptions=True)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(4096):
            self._connection.receive_data(data)
            for event in self._connection.events():
                if isinstance(event, AudioSocketAudio):
                    self.heard += event.payload
                elif isinstance(event, Hangup):
                    self.hung_up.set()
        self.hung_up.set()


class CallServer:
    """A gateway, its phones, and clients of its calls API."""

    def __init__(self, gateway: Gateway, headers: dict[str, str]) -> None:
        self.gateway = gateway
        self.headers = headers
        self.phones: list[Phone] = []
        host, port = gateway.addresses.http
        self.base = f"{host}:{port}/v1/calls"

    async def phone(self) -> Phone:
        phone = Phone(*await asyncio.open_connection(*self.gateway.addresses.audiosocket))
        self.phones.append(phone)
        while phone.call_id not in [
            active_call.call.call_id for active_call in self.gateway.audiosocket_server.registry
        ]:
            await asyncio.sleep(0.005)
        return phone

    @asynccontextmanager
    async def socket(self, call_id: str, query: str = "") -> AsyncIterator[ClientConnection]:
        url = f"ws://{self.base}/{call_id}/socket{query}"
        async with connect(url, additional_headers=self.headers) as socket:
            yield socket

    @asynccontextmanager
    async def http(self) -> AsyncIterator[httpx.AsyncClient]:
        async with httpx.AsyncClient(
            base_url=f"http://{self.base}", timeout=20, follow_redirects=True, headers=self.headers
        ) as client:
            yield client


@asynccontextmanager
async def call_server(keys_file: Path | None = None, key: str = "") -> AsyncIterator[CallServer]:
    settings = Settings(http_port=0, audiosocket_port=0, keys_file=keys_file)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with await Engine.open(backend=StandInBackend()) as engine:
        gateway = await Gateway.open(settings, engine=engine, agent=SilentAgent())
        server = CallServer(gateway, headers)
        try:
            yield server
        finally:
            for phone in server.phones:
                await phone.aclose()
            await gateway.aclose()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 120))


async def send_utterance(socket: ClientConnection, *texts: str) -> None:
    for text in texts:
        await socket.send(json.dumps({"type": "text", "text": text}))
    await socket.send(json.dumps({"type": "end"}))


async def until(socket: ClientConnection, kind: str) -> list[dict[str, Any]]:
    """Return the messages up to the first of that type."""
    messages = []
    while True:
        message = json.loads(await socket.recv())
        messages.append(message)
        if message["type"] == kind:
            return messages


async def until_unattached(server: CallServer, phone: Phone) -> None:
    """Wait until the gateway has noticed that the call's program is gone."""
    while server.gateway.audiosocket_server.registry.get(phone.call_id).attached:
        await asyncio.sleep(0.01)


def test_a_program_attaches_speaks_and_gets_the_words_heard() -> None:
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
                phone.send(AudioSocketAudio(8000, b"\x01\x02" * 160))
                assert await socket.recv() == b"\x01\x02" * 160

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
            async with server.socket("next"), server.socket("next") as impatient:
                await impatient.send(json.dumps({"type": "text", "text": "Are you there?"}))
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


def test_calls_are_listed_spoken_on_and_ended_over_http() -> None:
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
            cut = (await client.post(f"/{phone.call_id}/discard")).json()
            assert cut == {"cut_ms": 0.0, "heard": "", "words": []}
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
            cut = (await client.post(f"/{phone.call_id}/discard")).json()
            assert 500 < cut["cut_ms"] < 12_000
            assert text.startswith(cut["heard"]) and cut["words"] == cut["heard"].split()
            assert (await speaking).json()["outcome"] == "discarded"

    run(test())


def test_invalid_messages_are_answered_with_errors_and_the_call_goes_on() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await until(socket, "started")
                for bad in (b"\x00\x01", "{", json.dumps({"type": "text", "text": "x" * 1_000_000})):
                    await socket.send(bad)
                    assert (await until(socket, "error"))[-1]["message"]
                await send_utterance(socket, "Still here.")
                assert (await until(socket, "speech_finished"))[-1]["outcome"] == "spoken"

    run(test())


def test_an_unknown_call_or_voice_is_an_error_and_an_alias_is_none() -> None:
    async def test() -> None:
        async with call_server() as server:
            async with server.socket("unknown") as socket:
                assert "no call 'unknown'" in (await until(socket, "error"))[-1]["message"]
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await socket.send(json.dumps({"type": "speech", "voice": "unknown"}))
                await send_utterance(socket, "Hello.")
                await socket.send(json.dumps({"type": "speech", "voice": "alloy"}))  # an alias
                await send_utterance(socket, "Hello.")
                assert (await until(socket, "speech_finished"))[-1]["outcome"] == "spoken"

    run(test())


def test_text_beyond_the_limit_is_refused() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await send_utterance(socket, "First words here.")
                for _ in range(6):
                    await socket.send(json.dumps({"type": "text", "text": "word " * 12_000}))
                received = await until(socket, "error")
                assert "waiting" in received[-1]["message"]
                assert server.gateway.unready() is None

    run(test())


# With a key that has limits


def limited_key(tmp_path: Path, characters_per_minute: int) -> dict[str, Any]:
    """Settings of a server with one key of that quota."""
    file = tmp_path / "keys.json"
    limits = KeyLimits(characters_per_minute=characters_per_minute)
    return {"keys_file": file, "key": KeysFile(file).add("program", (Scope.CALLS,), limits)}


def words(received: list[dict[str, Any]]) -> list[str]:
    return [message["text"] for message in received if message["type"] == "word"]


def test_text_within_a_key_s_quota_is_spoken_to_the_last_character(tmp_path: Path) -> None:
    async def test() -> None:
        async with call_server(**limited_key(tmp_path, 27)) as server, server.http() as client:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await send_utterance(socket, "One ", "two.", " Three")
                received = await until(socket, "speech_finished")
                assert words(received) == ["One", "two", "Three"]
            answer = await client.post(f"/{phone.call_id}/speech", content="Over HTTP.")
            while answer.status_code == 409:  # the program is still attached
                answer = await client.post(f"/{phone.call_id}/speech", content="Over HTTP.")
            assert answer.json()["outcome"] == "spoken"

    run(test())


@pytest.mark.parametrize(
    ("text", "can_wait"),
    [(" far too much for", True), (" far too much for a key of twenty characters", False)],
)
def test_text_beyond_a_key_s_quota_is_refused_up_to_the_end_of_its_utterance(
    text: str, can_wait: bool, tmp_path: Path
) -> None:
    async def test() -> None:
        async with call_server(**limited_key(tmp_path, 20)) as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await send_utterance(socket, "One two", text, " hole")
                await send_utterance(socket, "Three.")
                received = await until(socket, "speech_finished") + await until(socket, "speech_finished")
                (error,) = [message for message in received if message["type"] == "error"]
                assert "allowed 20 characters a minute" in error["message"]
                assert "nothing is said up to the next flush or end" in error["message"]
                assert 0 < error["retry_after_s"] <= 60 if can_wait else "retry_after_s" not in error
                assert words(received) == ["One", "two", "Three"]
                await socket.send(json.dumps({"type": "hang_up"}))
                await until(socket, "hung_up")

    run(test())


def test_a_body_beyond_a_key_s_quota_is_spoken_as_far_as_the_quota_goes(tmp_path: Path) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"One two three. "
        await asyncio.sleep(0.3)
        yield b"And this is too much."

    async def test() -> None:
        async with call_server(**limited_key(tmp_path, 30)) as server, server.http() as client:
            phone = await server.phone()
            refused = await client.post(f"/{phone.call_id}/speech", content=body())
            assert refused.status_code == 429
            assert 0 < int(refused.headers["retry-after"]) <= 60
            sentence = "this key is allowed 30 characters a minute; 15 characters of this text were taken"
            assert refused.json() == {"error": sentence}
            assert np.abs(np.frombuffer(bytes(phone.heard), "<i2")).max() > 4000
            refused = await client.post(f"/{phone.call_id}/speech", content="All of this is too much.")
            assert refused.status_code == 429
            assert "; 0 characters of this text were taken" in refused.json()["error"]
            answer = await client.post(f"/{phone.call_id}/speech", content="Four.")
            assert answer.json()["outcome"] == "spoken"

    run(test())


def test_nothing_more_is_spoken_for_a_key_that_is_revoked(tmp_path: Path) -> None:
    async def test() -> None:
        secured = limited_key(tmp_path, 1_000)
        async with call_server(**secured) as server, server.http() as client:
            phone, second = await server.phone(), await server.phone()
            revoked = asyncio.Event()

            async def body() -> AsyncIterator[bytes]:
                yield b"One. "
                await revoked.wait()
                yield b"Two."

            posting = asyncio.create_task(client.post(f"/{second.call_id}/speech", content=body()))
            async with server.socket(phone.call_id) as socket:
                await send_utterance(socket, "One.")
                await until(socket, "speech_finished")
                while not any(second.heard):
                    await asyncio.sleep(0.01)
                KeysFile(secured["keys_file"]).revoke(secured["key"][3:11])
                revoked.set()
                await send_utterance(socket, "Two.", " Three.")
                assert "no valid API key" in (await until(socket, "error"))[-1]["message"]
                assert (await posting).status_code == 401
                await send_utterance(socket, "Four.")
                assert "no valid API key" in (await until(socket, "error"))[-1]["message"]
                assert not phone.hung_up.is_set()

    run(test())


def test_an_utterance_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise Overloaded("full", reason="streams", retry_after_s=1.0)

    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await until(socket, "started")
                with monkeypatch.context() as patch:
                    patch.setattr(server.gateway.engine, "stream", full)
                    await send_utterance(socket, "Never heard.")
                    assert "could not be spoken" in (await until(socket, "error"))[-1]["message"]
                await send_utterance(socket, "Heard.")
                assert (await until(socket, "speech_finished"))[-1]["outcome"] == "spoken"

    run(test())


def test_a_fault_of_the_server_ends_the_attachment_and_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(message: str) -> None:
        raise ArithmeticError("a fault of the server")

    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await until(socket, "started")
                monkeypatch.setattr(api, "parse_client_message", broken)
                await send_utterance(socket, "Hello.")
                with pytest.raises(ConnectionClosed) as closed:
                    await until(socket, "nothing")
                assert closed.value.rcvd is not None and closed.value.rcvd.code == 1011
            assert not server.gateway.audiosocket_server.registry.get(phone.call_id).attached
            assert not phone.hung_up.is_set()

    run(test())
    assert "a fault of the server" in caplog.text


def test_a_request_that_is_aborted_ends_its_speech_without_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            _, writer = await asyncio.open_connection(*server.gateway.addresses.http)
            writer.write(
                f"POST /v1/calls/{phone.call_id}/speech HTTP/1.1\r\nhost: 127.0.0.1\r\n"
                "content-length: 100\r\n\r\nOne two three four ".encode()
            )
            active_call = server.gateway.audiosocket_server.registry.get(phone.call_id)
            while not active_call.attached:
                await asyncio.sleep(0.01)
            writer.close()
            while active_call.attached:
                await asyncio.sleep(0.01)
            assert not phone.hung_up.is_set()

    run(test())
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_the_call_goes_on_when_its_program_leaves_in_mid_sentence() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await socket.send(json.dumps({"type": "text", "text": "one two three four five six seven, "}))
                await until(socket, "word")
            await until_unattached(server, phone)
            assert not phone.hung_up.is_set()
            async with server.socket(phone.call_id) as socket:
                await until(socket, "started")

    run(test())


async def spoken_question() -> bytes:
    """Return a sentence of the packaged voice, s16le at 8 kHz."""
    async with await Engine.open() as engine, engine.stream() as stream:
        stream.push_text("Excuse me, could you please stop talking?")
        stream.end_input()
        down = Downsampler()
        return b"".join([down.push(chunk.pcm) async for chunk in stream])


def test_a_caller_who_speaks_is_reported_and_interrupts() -> None:
    async def test() -> None:
        question = await spoken_question()
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await socket.send(json.dumps({"type": "on_speech", "action": "discard"}))
                await send_utterance(
                    socket, "one two three four five six seven eight nine ten eleven twelve " * 4
                )
                await until(socket, "word")
                for start in range(0, len(question), 320):
                    phone.send(AudioSocketAudio(8000, question[start : start + 320]))
                received = [message["type"] for message in await until(socket, "discarded")]
                assert received[-2:] == ["caller_speaking", "discarded"]
                for _ in range(50):
                    phone.send(AudioSocketAudio(8000, bytes(320)))
                await until(socket, "caller_silent")

    run(test())


def test_text_of_an_utterance_that_was_interrupted_over_http_is_refused_up_to_its_end() -> None:
    async def test() -> None:
        async with call_server() as server, server.http() as client:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await socket.send(json.dumps({"type": "text", "text": "one two three four five six, "}))
                await until(socket, "word")
                assert (await client.post(f"/{phone.call_id}/discard")).json()["heard"]
                await until(socket, "discarded")
                await send_utterance(socket, "seven ", "eight.")
                await send_utterance(socket, "Nine.")
                received = await until(socket, "speech_finished")
                errors = [message["message"] for message in received if message["type"] == "error"]
                assert errors == [
                    "this utterance was interrupted; its text is dropped up to the next end or discard"
                ]
                assert words(received) == ["Nine"]

    run(test())


def test_a_discard_is_answered_when_nothing_is_playing() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await socket.send(json.dumps({"type": "discard"}))
                assert (await until(socket, "discarded"))[-1] == {
                    "type": "discarded",
                    "utterance": None,
                    "cut_ms": 0.0,
                    "heard": "",
                }

    run(test())


def test_with_all_events_text_is_reported_as_it_is_written_and_counters_once_a_second() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id, "?events=all") as socket:
                (started,) = await until(socket, "started")
                assert started["voices"][0]["id"] == started["voice"] == "tone-440"
                assert (started["held"], started["speed"], started["answers"]) == (True, 1.0, False)
                await send_utterance(socket, "Hello ", "there.")
                received = await until(socket, "speech_started")
                assert received[:2] == [
                    {"type": "utterance", "turn": 0, "text": "Hello "},
                    {"type": "utterance", "turn": 0, "text": "there."},
                ]
                assert received[-1].keys() == {"type", "utterance", "turn", "after_text_ms"}
                stats = (await until(socket, "stats"))[-1]
                assert stats["packets"] > 0 and stats["underruns"] == 0

    run(test())


def test_a_program_may_press_keys_and_is_told_that_no_language_model_answers() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await socket.send(json.dumps({"type": "dtmf", "digit": "#"}))
                assert (await until(socket, "dtmf"))[-1]["digit"] == "#"
                await socket.send(json.dumps({"type": "ask", "text": "Why?"}))
                assert "no language model" in (await until(socket, "error"))[-1]["message"]

    run(test())


def test_the_example_attaches_to_a_call_and_answers_a_key(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[3] / "examples" / "attach_to_a_call.py"
    spec = importlib.util.spec_from_file_location("attach_to_a_call", path)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)

    printed = ""

    async def until_printed(text: str) -> None:
        nonlocal printed
        while text not in printed:
            await asyncio.sleep(0.01)
            printed += capsys.readouterr().out

    async def test() -> None:
        async with call_server() as server:
            holding = asyncio.create_task(example.attach(f"ws://{server.base}/next/socket"))
            phone = await server.phone()
            await until_printed("Hello")
            phone.send(Dtmf("7"))
            await until_printed("That was key")
            await phone.aclose()
            await holding

    run(test())
    assert "interrupted after: Hello" in printed
    assert "the caller hung up" in printed + capsys.readouterr().out


def test_text_that_the_voice_cannot_read_is_an_error_over_http_and_on_the_socket() -> None:
    async def test() -> None:
        async with call_server() as server, server.http() as client:
            phone = await server.phone()
            for text in UNREADABLE_TEXTS.values():
                refused = await client.post(f"/{phone.call_id}/speech", content=text)
                assert refused.status_code == 400 and "can read no word" in refused.json()["error"]
            async with server.socket(phone.call_id) as socket:
                await send_utterance(socket, "你好", "。")
                error = (await until(socket, "error"))[-1]
                assert "can read no word" in error["message"]
                await send_utterance(socket, "One 你好 two.")
                messages = await until(socket, "speech_finished")
                words = [message["text"] for message in messages if message["type"] == "word"]
                assert words == ["One", "two"]
                assert messages[-1]["outcome"] == "spoken"

    run(test())
