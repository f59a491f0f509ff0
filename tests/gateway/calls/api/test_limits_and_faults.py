"""The calls API over real sockets: invalid messages, limits, character quotas, and faults."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed

from shared.calls.call_server import (
    call_server,
    run,
    send_utterance,
    until,
    until_unattached,
    words,
)
from shared.unreadable_texts import UNREADABLE_TEXTS
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.calls.api import program_socket
from vivavoce.tts_engine.errors import Overloaded


def test_invalid_messages_are_answered_with_errors_and_the_call_continues() -> None:
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


def test_an_unknown_call_or_voice_is_an_error_and_an_alias_is_accepted() -> None:
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


def limited_key(tmp_path: Path, characters_per_minute: int) -> dict[str, Any]:
    """Settings of a server with one key of that quota."""
    file = tmp_path / "keys.json"
    limits = KeyLimits(characters_per_minute=characters_per_minute)
    return {"keys_file": file, "key": KeysFile(file).add("program", (Scope.CALLS,), limits)}


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
def test_text_beyond_a_key_s_quota_is_dropped_up_to_the_end_of_its_utterance(
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
            message = "this key is allowed 30 characters a minute; 15 characters of this text were taken"
            assert refused.json() == {"error": message}
            assert np.abs(np.frombuffer(bytes(phone.heard), "<i2")).max() > 4000
            refused = await client.post(f"/{phone.call_id}/speech", content="All of this is too much.")
            assert refused.status_code == 429
            assert "; 0 characters of this text were taken" in refused.json()["error"]
            answer = await client.post(f"/{phone.call_id}/speech", content="Four.")
            assert answer.json()["outcome"] == "spoken"

    run(test())


def test_a_program_is_closed_and_its_text_refused_after_its_key_is_revoked(tmp_path: Path) -> None:
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
                received = await until(socket, "error")
                assert "was revoked" in received[-1]["message"] and words(received) == []
                with pytest.raises(ConnectionClosed) as closed:
                    await socket.recv()
                assert closed.value.rcvd is not None and closed.value.rcvd.code == 4401
                assert (await posting).status_code == 401
                await until_unattached(server, phone)
                assert not phone.hung_up.is_set()

    run(test())


def test_an_utterance_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise Overloaded("full", reason="streams", retry_after_s=1.0)

    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await until(socket, "started")
                with monkeypatch.context() as patch:
                    patch.setattr(server.gateway.engine, "open_stream", full)
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
                monkeypatch.setattr(program_socket, "parse_client_message", broken)
                await send_utterance(socket, "Hello.")
                with pytest.raises(ConnectionClosed) as closed:
                    await until(socket, "nothing")
                assert closed.value.rcvd is not None and closed.value.rcvd.code == 1011
            assert not server.gateway.calls.registry.get(phone.call_id).attached
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
            active_call = server.gateway.calls.registry.get(phone.call_id)
            while not active_call.attached:
                await asyncio.sleep(0.01)
            writer.close()
            while active_call.attached:
                await asyncio.sleep(0.01)
            assert not phone.hung_up.is_set()

    run(test())
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_the_call_continues_when_its_program_disconnects_within_a_sentence() -> None:
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


def test_text_that_the_voice_cannot_read_is_an_error_over_http_and_on_the_socket() -> None:
    async def test() -> None:
        async with call_server() as server, server.http() as client:
            phone = await server.phone()
            for text in UNREADABLE_TEXTS.values():
                refused = await client.post(f"/{phone.call_id}/speech", content=text)
                assert refused.status_code == 400
                assert "can read no word" in refused.json()["error"]
            async with server.socket(phone.call_id) as socket:
                await send_utterance(socket, "你好", "。")
                error = (await until(socket, "error"))[-1]
                assert "can read no word" in error["message"]
                await send_utterance(socket, "One 你好 two.")
                messages = await until(socket, "speech_finished")
                assert words(messages) == ["One", "two"]
                assert messages[-1]["outcome"] == "spoken"

    run(test())


def test_a_result_that_is_too_long_is_refused_over_http_and_the_call_goes_on() -> None:
    async def test() -> None:
        async with call_server() as server, server.http() as client:
            phone = await server.phone()
            refused = await client.delete(f"/{phone.call_id}", params={"result": 1_001 * "x"})
            assert (refused.status_code, refused.json()) == (
                400,
                {"error": "result: at most 1000 characters are kept"},
            )
            assert (await client.get(f"/{phone.call_id}")).status_code == 200

    run(test())
