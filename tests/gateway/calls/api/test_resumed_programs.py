"""Programs that lose their socket, and attach to their call again with a new one."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from shared.calls.call_server import (
    CallServer,
    Phone,
    call_server,
    run,
    send_utterance,
    until,
    until_unattached,
)
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope

TEXT = "One two three four five six seven eight nine ten."
KEPT = "?keep_s=120"  # longer than a test may take


def words_of(messages: list[dict[str, Any]]) -> list[str]:
    """Return the words heard."""
    return [message["text"] for message in messages if message["type"] == "word"]


async def lose(socket: ClientConnection) -> None:
    """Break the connection without a closing handshake, as a network does."""
    socket.transport.abort()
    await socket.wait_closed()


async def until_silent(server: CallServer, phone: Phone) -> None:
    """Wait until all speech of a call is heard."""
    while server.gateway.calls.registry.get(phone.call_id).call.speech.is_speaking:
        await asyncio.sleep(0.01)


async def close_code(socket: ClientConnection) -> int:
    """Read to the end of a socket; return its close code."""
    with pytest.raises(ConnectionClosed) as closed:
        while True:
            await socket.recv()
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code


async def call_with_a_lost_program(server: CallServer, query: str = KEPT) -> Phone:
    """Call, and lose the socket of a program that has received ``started``; wait until the server knows."""
    phone = await server.phone()
    before = len(asyncio.all_tasks())
    async with server.socket(phone.call_id, query) as socket:
        await until(socket, "started")
        await lose(socket)
    while len(asyncio.all_tasks()) > before + 1:  # that of the session
        await asyncio.sleep(0.01)
    return phone


def test_a_program_that_comes_back_is_told_every_word_once() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id, KEPT) as socket:
                await send_utterance(socket, TEXT)
                before = await until(socket, "word")
                await lose(socket)
            await until_silent(server, phone)
            async with server.socket(phone.call_id, f"{KEPT}&received={len(before)}") as socket:
                resumed, *after = await until(socket, "speech_finished")
                assert resumed == {"type": "resumed", "call": phone.call_id, "taken": 2, "missed": 0}
                assert words_of(before + after) == TEXT.rstrip(".").split()
                await send_utterance(socket, "Back again.")
                assert words_of(await until(socket, "speech_finished")) == ["Back", "again"]

    run(test())


def test_messages_that_the_program_did_not_receive_are_sent_again() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id, KEPT) as socket:
                await send_utterance(socket, "One two three.")
                sent = await until(socket, "speech_finished")
                await lose(socket)
            async with server.socket(phone.call_id, "?received=1") as socket:
                resumed, *again = await until(socket, "speech_finished")
                assert resumed["missed"] == 0
                assert again == sent[1:]

    run(test())


def test_a_socket_that_still_seems_open_is_replaced() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id, KEPT) as first:
                await until(first, "started")
                async with server.socket(phone.call_id, f"{KEPT}&received=1") as second:
                    await until(second, "resumed")
                    assert await close_code(first) == 4409
                    await send_utterance(second, "Still here.")
                    assert words_of(await until(second, "speech_finished")) == ["Still", "here"]

    run(test())


def test_without_the_parameter_a_lost_program_leaves_the_call() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await call_with_a_lost_program(server, "")
            await until_unattached(server, phone)

    run(test())


def test_a_program_that_closes_its_socket_leaves_the_call() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id, KEPT) as socket:
                await until(socket, "started")
            await until_unattached(server, phone)

    run(test())


def test_a_program_that_does_not_come_back_in_time_leaves_the_call() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await call_with_a_lost_program(server, "?keep_s=0.1")
            await until_unattached(server, phone)
            async with server.socket(phone.call_id, "?received=1") as socket:
                await until(socket, "started")

    run(test())


def test_a_program_that_begins_anew_takes_the_place_of_its_lost_one() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await call_with_a_lost_program(server)
            async with server.socket(phone.call_id) as socket:
                first = json.loads(await socket.recv())["type"]
            assert first == "started"

    run(test())


def test_the_end_of_the_call_ends_a_lost_program() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            before = len(asyncio.all_tasks())
            async with server.socket(phone.call_id, KEPT) as socket:
                await until(socket, "started")
                await lose(socket)
            await phone.aclose()
            while len(asyncio.all_tasks()) > before:
                await asyncio.sleep(0.01)

    run(test())


def test_more_messages_than_were_sent_are_refused() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await call_with_a_lost_program(server)
            async with server.socket(phone.call_id, "?received=9") as socket:
                assert "1 messages were sent, not 9" in (await until(socket, "error"))[-1]["message"]
                assert await close_code(socket) == 4400

    run(test())


@pytest.mark.parametrize(("scope", "code"), [(Scope.CALLS_ALL, 4409), (Scope.CALLS_OWN, 4404)])
def test_another_key_cannot_claim_a_lost_program(tmp_path: Path, scope: Scope, code: int) -> None:
    file = tmp_path / "keys.json"
    key = KeysFile(file).add("program", (Scope.CALLS_ALL,), KeyLimits())
    other = KeysFile(file).add("other", (scope,), KeyLimits())

    async def test() -> None:
        async with call_server(file, key) as server:
            phone = await call_with_a_lost_program(server)
            server.headers = {"authorization": f"Bearer {other}"}
            async with server.socket(phone.call_id, "?received=0") as socket:
                assert json.loads(await socket.recv())["type"] == "error"
                assert await close_code(socket) == code
            assert server.gateway.calls.registry.get(phone.call_id).attached

    run(test())


def test_a_revoked_key_ends_a_lost_program(tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("program", (Scope.CALLS_ALL,), KeyLimits())

    async def test() -> None:
        async with call_server(tmp_path / "keys.json", key) as server:
            phone = await call_with_a_lost_program(server)
            keys.revoke(key[3:11])
            await until_unattached(server, phone)

    run(test())
