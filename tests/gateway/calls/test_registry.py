"""Who is let in, who is counted, who is found, and how all are let go: whatever carries the calls."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from shared.standin_backend import StandInBackend
from vivavoce.adapters.playback.playout import Playout
from vivavoce.gateway.calls.call import Call
from vivavoce.gateway.calls.registry import CallAlreadyAttached, CallRegistry, CallUnknown
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.errors import Overloaded


class House:
    def __init__(self, engine: Engine, max_calls: int) -> None:
        self.engine = engine
        self.registry = CallRegistry(engine, max_calls=max_calls)

    def metric(self, name: str, **labels: str) -> float:
        return self.engine.metrics.registry.get_sample_value(f"vivavoce_{name}", labels) or 0.0

    def admit(self, kind: str = "audiosocket") -> "Leg":
        leg = Leg(self, kind)
        self.registry.admit(leg, peer="10.0.0.9:5")
        return leg

    def refused(self) -> Overloaded:
        with pytest.raises(Overloaded) as caught:
            self.admit()
        return caught.value


@dataclass(eq=False)
class Leg:
    house: House
    kind: str
    dropped: int = 3
    ended: str | None = None

    def open(self, call_id: str) -> Call:
        call = Call(
            call_id, engine=self.house.engine, playout=Playout(start=0.0),
            send=lambda packet: None, close=self.end,
        )  # fmt: skip
        self.house.registry.open(self, call, kind=self.kind, peer="10.0.0.9:5")
        return call

    def end(self, reason: str) -> None:
        self.ended = self.ended or reason
        self.house.registry.remove(self, reason)


def in_house(test: Callable[[House], Awaitable[None]], max_calls: int = 2) -> None:
    async def run() -> None:
        async with asyncio.timeout(30), await Engine.open(backend=StandInBackend()) as engine:
            await test(House(engine, max_calls))

    asyncio.run(run())


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "vivavoce")
    return caplog


def test_calls_of_every_kind_and_those_that_may_become_one_fill_one_house(
    log: pytest.LogCaptureFixture,
) -> None:
    async def test(house: House) -> None:
        phone, browser = house.admit("audiosocket"), house.admit("webrtc")
        phone.open("a")
        assert (len(house.registry), house.metric("active_calls")) == (1, 1)
        assert house.refused().reason == "calls"
        assert house.metric("refusals_total", reason="calls") == 1
        browser.end("it came to nothing")
        house.admit().open("b")
        assert [line.kind for line in house.registry] == ["audiosocket", "audiosocket"]

    in_house(test)
    assert "Call from 10.0.0.9:5 refused: 2 calls are up, which is max_calls" in log.text


def test_an_engine_that_is_full_refuses_calls_with_its_own_reason() -> None:
    async def test(house: House) -> None:
        streams = []
        while house.engine.refusal() is None:
            streams.append(house.engine.stream())
        assert house.refused().reason == house.engine.refusal().reason  # type: ignore[union-attr]
        for stream in streams:
            stream.cancel()

    in_house(test)


def test_a_call_that_ends_is_told_so_counted_no_more_and_its_numbers_are_logged_once(
    log: pytest.LogCaptureFixture,
) -> None:
    async def test(house: House) -> None:
        leg = house.admit()
        call = leg.open("a")
        leg.end("the caller hung up")
        leg.end("again")
        await call.wait_closed()
        assert (len(house.registry), house.metric("active_calls")) == (0, 0)
        house.admit()
        house.admit()

    in_house(test)
    assert log.text.count("closed after") == 1
    assert "the caller hung up: 0 packets, 0 late, 0 skipped, 3 dropped, 0 underruns" in log.text


def test_a_call_is_found_by_its_id_and_held_by_one_at_a_time() -> None:
    async def test(house: House) -> None:
        waiting = asyncio.create_task(house.registry.next_unattached())
        await asyncio.sleep(0)
        first = house.admit().open("a")
        assert (await waiting).call is first
        line = house.registry.get("a")
        with house.registry.attach(line):
            with pytest.raises(CallAlreadyAttached, match="to call 'a'"), house.registry.attach(line):
                pass
            waiting = asyncio.create_task(house.registry.next_unattached())
            await asyncio.sleep(0)
            assert not waiting.done()
        assert (await waiting) is line
        second = house.admit().open("a")  # an Asterisk may use an id twice
        assert house.registry.get("a").call is second
        with pytest.raises(CallUnknown, match="'b'"):
            house.registry.get("b")

    in_house(test)


def test_a_house_that_closes_lets_sentences_end_ends_all_else_and_lets_nobody_in() -> None:
    async def test(house: House) -> None:
        speaks, waits = house.admit("webrtc"), house.admit()
        call = speaks.open("a")
        speaking = asyncio.create_task(call.speak("One two three."))
        await asyncio.sleep(0)
        finishing = asyncio.create_task(house.registry.finish_calls(20.0))
        await asyncio.sleep(0)
        assert house.refused().reason == "shutting_down"
        while not speaking.done():
            call.tick(asyncio.get_running_loop().time())
            await asyncio.sleep(0.005)
        call.discard()  # what is left to hear takes its time
        await finishing
        assert (speaks.ended, waits.ended) == ("finished", "shutting down")
        assert house.metric("active_calls") == 0

    in_house(test)


def test_a_call_that_does_not_come_to_an_end_is_ended() -> None:
    async def test(house: House) -> None:
        leg = house.admit()
        call = leg.open("a")
        speaking = asyncio.create_task(call.speak("One two three four five. " * 50))
        await asyncio.sleep(0)
        await house.registry.finish_calls(0.01)
        assert leg.ended == "shutting down"
        await speaking

    in_house(test)


def test_a_shutdown_that_is_broken_off_leaves_nothing_running() -> None:
    async def test(house: House) -> None:
        call = house.admit().open("a")
        speaking = asyncio.create_task(call.speak("One two three four five. " * 50))
        await asyncio.sleep(0)
        before = asyncio.all_tasks()
        finishing = asyncio.create_task(house.registry.finish_calls(20.0))
        await asyncio.sleep(0.01)
        finishing.cancel()
        await asyncio.wait({finishing})
        assert asyncio.all_tasks() <= before
        call.on_closed()
        await speaking

    in_house(test)
