"""Each socket of each dialect keeps the promises of all: texts, drops, faults, limits, keys, the end.

What only one dialect promises is tested in its folder of ``tests/gateway/apis/dialects/``.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conformance.sockets.cartesia import CartesiaDriver
from conformance.sockets.dashscope import DashScopeDriver, PaiDriver
from conformance.sockets.deepgram import DeepgramDriver, FluxDriver
from conformance.sockets.driver import Message, SocketClient, SocketDriver, open_socket
from conformance.sockets.elevenlabs import ElevenLabsContextsDriver, ElevenLabsTextDriver
from conformance.sockets.inworld import InworldDriver
from conformance.sockets.jambonz import JambonzDriver
from conformance.sockets.native_stream import NativeStreamDriver
from conformance.sockets.realtime import RealtimeDriver
from websockets.exceptions import ConnectionClosed, InvalidStatus

from shared.event_loop import until
from shared.served_apis import TIMEOUT_S, serve_every_api
from shared.unreadable_texts import UNREADABLE_TEXTS
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.apis.kits.backpressure import BackpressureSender
from vivavoce.gateway.apis.kits.speech_socket import MAX_CONTEXTS
from vivavoce.gateway.apis.shell.speech_server import SpeechApiPolicy

DRIVERS: tuple[SocketDriver, ...] = (
    *(CartesiaDriver(), ElevenLabsContextsDriver(), ElevenLabsTextDriver(), InworldDriver()),
    *(DeepgramDriver(), FluxDriver(), JambonzDriver(), NativeStreamDriver(), DashScopeDriver(), PaiDriver()),
    RealtimeDriver(),
)
TEXT = "One two three four five six. "
Test = Callable[[Any], Awaitable[None]]


def each(*drivers: SocketDriver) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("driver", drivers, ids=[driver.name for driver in drivers])


every_socket = each(*DRIVERS)


class Servers:
    """Servers that the tests of this module share, each made when it is needed first."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._served: dict[str, Any] = {}

    def run(self, test: Test, name: str = "open", step_s: float = 0.0, **options: Any) -> None:
        """Run a test on the server of that name, whose first test gives its options."""
        self._runner.run(self._run(test, name, step_s, options))

    async def _run(self, test: Test, name: str, step_s: float, options: dict[str, Any]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            if name not in self._served:
                server = serve_every_api(**options)
                self._served[name] = await server.__aenter__(), server
            served, _ = self._served[name]
            served.backend.step_s, served.backend.broken_after, served.backend.steps = step_s, None, 0
            await test(served)
            await until(lambda: served.backend.open_slots == 0)

    def close(self) -> None:
        for _, server in self._served.values():
            self._runner.run(server.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with asyncio.Runner() as runner:
        shared = Servers(runner)
        yield shared
        shared.close()


async def after_error(client: SocketClient, fault: str, context: str = "next") -> None:
    """Expect an error, after which the next text is spoken unless the socket closes."""
    await client.error(fault)
    if client.driver.closes_on_error is not None:
        assert await client.closing_code() == client.driver.closes_on_error
        return
    client.audio.clear()
    await client.speak(context, "One two. ")
    await client.spoken(2, context)


# Speech


@every_socket
def test_text_in_pieces_is_spoken_while_it_is_written(driver: SocketDriver, servers: Servers) -> None:
    async def test(served: Any) -> None:
        async with open_socket(driver, served) as client:
            await client.write("a", "One two, ", "thr", "ee ")
            await client.until("audio")
            await client.send(*driver.text("a", "four."), *driver.end("a"))
            await client.spoken(4, "a")
            assert client.words("a") <= 8  # with the pauses
            await until(lambda: served.backend.open_slots == 0)

    servers.run(test)


@each(*(driver for driver in DRIVERS if driver.has_contexts))
def test_contexts_interleave_and_have_their_own_sound(driver: SocketDriver, servers: Servers) -> None:
    async def test(served: Any) -> None:
        async with open_socket(driver, served) as client:
            numbers = range(1, 9)
            for number in numbers:
                await client.speak(str(number), "word " * number * 4)
            for _ in numbers:
                await client.until("done")
            for number in numbers:
                assert 0 <= client.words(str(number)) - 4 * number <= 3  # with the pause at the end
            switches = sum(one != other for one, other in pairwise(client.order))
            assert switches > len(numbers) - 1  # as many as there are if one came after the other

    servers.run(test)


@each(*(driver for driver in DRIVERS if driver.cancel("a")))
def test_a_text_that_is_dropped_is_sent_and_rendered_no_further(
    driver: SocketDriver, servers: Servers
) -> None:
    async def test(served: Any) -> None:
        async with open_socket(driver, served) as client:
            await client.write("a", TEXT * 60)
            await client.until("audio")
            await client.send(*driver.cancel("a"))
            await until(lambda: served.backend.open_slots == 0)
            assert served.backend.steps < 200  # of 360 words
            if driver.is_cancel_the_end:
                assert await client.closing_code() == 1000
                return
            await client.speak("b", "One two. ")
            dropped, heard = client.words("a"), ""
            while heard != "b" and driver.has_contexts:
                heard = (await client.until("audio")).context
            await client.spoken(2, "b")
            if driver.has_contexts:
                assert client.words("a") <= dropped + 60 and "a" not in client.order[-2:]

    servers.run(test, step_s=0.005)


@each(*(driver for driver in DRIVERS if driver.cancel("a")))
def test_a_piece_that_is_held_back_is_dropped(
    driver: SocketDriver, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hold(_: BackpressureSender, data: bytes, __: int, write: Callable[[bytes], Any]) -> None:
        await write(data[:8])
        await asyncio.sleep(0.2)
        await write(data[8:])

    monkeypatch.setattr(BackpressureSender, "send", hold)

    async def test(served: Any) -> None:
        async with open_socket(driver, served) as client:
            await client.write("a", TEXT)
            await client.until("audio")
            await client.send(*driver.cancel("a"))
            with suppress(TimeoutError, ConnectionClosed):
                async with asyncio.timeout(0.4):
                    while True:
                        await client.next()
            assert sum(map(len, client.audio.values())) == 8

    servers.run(test)


# Faults


WRONG = [(driver, message) for driver in DRIVERS for message in driver.wrong]


@pytest.mark.parametrize(
    ("driver", "message"), WRONG, ids=[f"{driver.name}-{str(message)[:20]}" for driver, message in WRONG]
)
def test_a_wrong_message_is_an_error(driver: SocketDriver, message: Message, servers: Servers) -> None:
    async def test(served: Any) -> None:
        async with open_socket(driver, served) as client:
            await client.send(message)
            await after_error(client, "wrong")

    servers.run(test)


@every_socket
@pytest.mark.parametrize("language", UNREADABLE_TEXTS)
def test_a_text_that_the_voice_cannot_read_is_an_error(
    driver: SocketDriver, language: str, servers: Servers
) -> None:
    async def test(served: Any) -> None:
        async with open_socket(driver, served) as client:
            await client.speak("a", UNREADABLE_TEXTS[language])
            await after_error(client, "unreadable")

    servers.run(test)


@every_socket
def test_a_text_in_a_language_that_the_voice_lacks_is_refused_where_the_settings_say_so(
    driver: SocketDriver, servers: Servers
) -> None:
    async def test(served: Any) -> None:
        async with open_socket(driver, served) as client:
            await client.write("a", "Guten Tag, wie geht es Ihnen heute? ")
            await client.error("unreadable")
            await client.send(*driver.end_of_failed("a"))
            if driver.closes_on_error is None:
                await client.speak("b", TEXT)
                await client.spoken(6, "b")

    servers.run(test, "strict", language="en", policy=SpeechApiPolicy(refuses_guessed_languages=True))


@every_socket
def test_a_voice_that_breaks_is_an_error_of_its_text(driver: SocketDriver, servers: Servers) -> None:
    async def test(served: Any) -> None:
        served.backend.broken_after = 2
        async with open_socket(driver, served) as client:
            await client.speak("a", TEXT)
            await client.error("broken")
            assert client.words("a") < 6
            served.backend.broken_after = None
        async with open_socket(driver, served) as client:
            await client.speak("b", TEXT)
            await client.spoken(6, "b")

    servers.run(test)


# Limits


@every_socket
def test_a_full_server_refuses_a_text_and_speaks_the_next(driver: SocketDriver, servers: Servers) -> None:
    async def test(served: Any) -> None:
        async with open_socket(driver, served) as client:
            async with served.apis.server.engine.stream():
                await client.write("a", TEXT)
                await client.error("full")
                await client.send(*driver.end_of_failed("a"))
            if driver.closes_on_error is None:
                await client.speak("b", TEXT)
                await client.spoken(6, "b")

    servers.run(test, "full", max_streams=1)


@every_socket
def test_waiting_text_is_bounded(
    driver: SocketDriver, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*driver.text_limit, 1_000)

    async def test(served: Any) -> None:
        async with open_socket(driver, served) as client:
            await client.write("a", "x" * 1_001)
            await client.error("waiting")
            await client.send(*driver.end_of_failed("a"))
            if driver.closes_on_error is None:
                await client.speak("b", "One two. ")
                await client.spoken(2, "b")

    servers.run(test)


@each(*(driver for driver in DRIVERS if driver.has_contexts))
def test_contexts_are_bounded(driver: SocketDriver, servers: Servers) -> None:
    async def test(served: Any) -> None:
        async with open_socket(driver, served) as client:
            for number in range(MAX_CONTEXTS):
                await client.write(str(number), " ")
            await client.send(*(driver.begin("more") or driver.text("more", "One. ")))
            await client.error("contexts")
            await client.send(*driver.cancel("0"))
            await client.speak("next", "One. ")
            await client.spoken(1, "next")

    servers.run(test)


# Keys


def with_key(tmp_path: Path, **limits: Any) -> tuple[str, dict[str, Any]]:
    keys = KeysFile(tmp_path / "keys.json")
    return keys.add("test", (Scope.SPEAK,), KeyLimits(**limits)), {"access": AccessControl(keys)}


@every_socket
def test_a_handshake_needs_a_key(driver: SocketDriver, servers: Servers, tmp_path: Path) -> None:
    key, options = with_key(tmp_path)

    async def test(served: Any) -> None:
        for headers in ({}, driver.headers("wrong")):
            with pytest.raises(InvalidStatus) as refused:
                async with open_socket(driver, served, headers):
                    pass
            assert refused.value.response.status_code == 401
            assert json.loads(refused.value.response.body)
        async with open_socket(driver, served, driver.headers(key)) as client:
            await client.speak("a", "One two. ")
            await client.spoken(2, "a")

    servers.run(test, driver.name, **options)


@each(*(driver for driver in DRIVERS if driver.wrong_address))
def test_a_wrong_address_is_refused_at_the_handshake(driver: SocketDriver, servers: Servers) -> None:
    async def test(served: Any) -> None:
        with pytest.raises(InvalidStatus) as refused:
            async with open_socket(driver, served, path=driver.wrong_address):
                pass
        assert refused.value.response.status_code in (400, 404, 422)
        assert json.loads(refused.value.response.body)

    servers.run(test)


@each(*(driver for driver in DRIVERS if driver.closes_on_error is None))
def test_each_text_is_charged_as_a_request(driver: SocketDriver, servers: Servers, tmp_path: Path) -> None:
    key, options = with_key(tmp_path, requests_per_minute=1)

    async def test(served: Any) -> None:
        async with open_socket(driver, served, driver.headers(key)) as client:
            await client.speak("a", "One two. ")
            await client.spoken(2, "a")
            await client.speak("b", "One two. ")
            await client.error("limited")

    servers.run(test, f"{driver.name} requests", **options)


@every_socket
def test_characters_are_charged_as_they_arrive(
    driver: SocketDriver, servers: Servers, tmp_path: Path
) -> None:
    key, options = with_key(tmp_path, characters_per_minute=25)

    async def test(served: Any) -> None:
        async with open_socket(driver, served, driver.headers(key)) as client:
            await client.write("a", "One two. ")
            await client.until("audio")
            await client.send(*driver.text("a", "three four five six."))
            await client.error("limited")

    servers.run(test, f"{driver.name} characters", **options)


# The end


@every_socket
def test_a_client_that_vanishes_frees_the_engine(driver: SocketDriver, servers: Servers) -> None:
    async def test(served: Any) -> None:
        async with open_socket(driver, served) as client:
            for context in "abc" if driver.has_contexts else "a":
                await client.write(context, TEXT * 50)
            await client.until("audio")
            client.socket.transport.abort()
        await until(lambda: served.backend.open_slots == 0)
        assert served.backend.steps < 200

    servers.run(test, step_s=0.005)


@every_socket
def test_a_client_that_closes_in_the_middle_frees_the_engine(driver: SocketDriver, servers: Servers) -> None:
    async def test(served: Any) -> None:
        async with open_socket(driver, served) as client:
            await client.write("a", TEXT * 50)
            await client.until("audio")
        await until(lambda: served.backend.open_slots == 0)
        assert served.backend.steps < 200

    servers.run(test, step_s=0.005)


@every_socket
def test_an_idle_connection_is_closed_and_a_speaking_one_is_not(
    driver: SocketDriver, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(served: Any) -> None:
        driver.shorten_idle_time(monkeypatch, served, 0.3)
        async with open_socket(driver, served) as client:
            await client.speak("a", TEXT * 4)
            await client.spoken(24, "a")  # after more than 0.3 s
            assert await client.closing_code() == 1000

    servers.run(test, step_s=0.02)


@every_socket
def test_a_shutdown_waits_for_speech_and_refuses_new_texts(driver: SocketDriver, servers: Servers) -> None:
    async def test(served: Any) -> None:
        async with open_socket(driver, served) as client:
            await client.speak("a", TEXT * 6)
            await client.until("audio")
            finishing = asyncio.create_task(served.apis.finish(20.0))
            await asyncio.sleep(0)
            if driver.is_second_text_refused:
                await client.speak("b", "One. ")
                await client.error("shutdown")
            assert await client.closing_code() == driver.closes_at_shutdown
            if driver.closes_on_error is None:
                assert client.words("a") >= 36
            await finishing

    servers.run(test, f"{driver.name} shutdown", step_s=0.02)
