"""Bookkeeping of legs: their calls, tasks and faults, and the end of a group."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from shared.standin_backend import StandInBackend
from vivavoce.gateway.calls.call import CallerSpeechAction, CallSpeechOptions
from vivavoce.gateway.calls.clock import Clock
from vivavoce.gateway.calls.leg import CallServices, CallSettings, LegCall, LegGroup
from vivavoce.gateway.calls.registry import CallRegistry
from vivavoce.tts_engine.engine import Engine

SETTINGS = CallSettings(8_000, 0.6, CallSpeechOptions(), CallerSpeechAction.TELL)


class FakeLeg:
    """A leg whose connection ends synchronously."""

    dropped = 0

    def __init__(self, group: "LegGroup[FakeLeg]", services: CallServices) -> None:
        self.packets: list[bytes] = []
        self.reasons: list[str] = []
        self.leg_call = LegCall(self, group, services, SETTINGS, kind="fake", peer="10.0.0.9:5")
        self._group = group
        services.registry.admit(self, peer="10.0.0.9:5")
        group.add(self)

    def tick(self, now: float) -> int:
        return self.leg_call.tick(now)

    def fail(self, error: Exception) -> None:
        self.leg_call.fail(error)

    def end(self, reason: str) -> None:
        self.reasons.append(reason)
        self.leg_call.close(reason)
        self._group.remove(self)


def with_group(test: Callable[["LegGroup[FakeLeg]", CallServices], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(30), await Engine.open(backend=StandInBackend()) as engine:
            clock = Clock(metrics=engine.metrics)
            services = CallServices(engine, clock, CallRegistry(engine, max_calls=2))
            await test(LegGroup(), services)

    asyncio.run(run())


def test_a_leg_s_call_is_registered_ticked_and_removed() -> None:
    async def test(group: LegGroup[FakeLeg], services: CallServices) -> None:
        leg = FakeLeg(group, services)
        assert leg.tick(0.0) == 0
        active_call = leg.leg_call.open("a", send=leg.packets.append)
        assert list(services.registry) == [active_call]
        assert (active_call.kind, active_call.peer) == ("fake", "10.0.0.9:5")
        services.clock.advance(asyncio.get_running_loop().time() + 1.0)
        assert leg.packets
        leg.end("gone")
        leg.end("again")
        await active_call.call.wait_closed()
        sent = len(leg.packets)
        services.clock.advance(asyncio.get_running_loop().time() + 2.0)
        assert len(leg.packets) == sent
        assert list(services.registry) == []

    with_group(test)


def test_the_tasks_of_a_leg_end_with_its_call() -> None:
    async def test(group: LegGroup[FakeLeg], services: CallServices) -> None:
        leg = FakeLeg(group, services)
        leg.leg_call.open("a", send=leg.packets.append)
        leg.leg_call.start_task(asyncio.Event().wait)  # type: ignore[arg-type]
        await asyncio.sleep(0)
        leg.end("gone")
        await group.wait_idle()

    with_group(test)


def test_a_task_that_raises_ends_its_leg_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> None:
        raise ArithmeticError("no words")

    async def test(group: LegGroup[FakeLeg], services: CallServices) -> None:
        faulty, other = FakeLeg(group, services), FakeLeg(group, services)
        for leg in (faulty, other):
            leg.leg_call.open("a", send=leg.packets.append)
        faulty.leg_call.start_task(broken)
        while not faulty.reasons:
            await asyncio.sleep(0)
        assert faulty.reasons == ["an error of ours"]
        assert group.legs == {other}
        other.end("gone")

    with_group(test)
    assert "Call a failed" in caplog.text and "no words" in caplog.text


def test_a_group_that_is_closed_ends_every_leg_and_waits_for_its_tasks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "vivavoce")
    released: list[bool] = []

    async def release() -> None:
        await asyncio.sleep(0.01)
        released.append(True)

    async def test(group: LegGroup[FakeLeg], services: CallServices) -> None:
        opened, admitted = FakeLeg(group, services), FakeLeg(group, services)
        opened.leg_call.open("a", send=opened.packets.append)
        group.start_task(release())
        await group.aclose()
        assert opened.reasons == admitted.reasons == ["shutting down"]
        assert released == [True]

    with_group(test)
    assert "Connection from 10.0.0.9:5 ended without a call: shutting down" in caplog.text
