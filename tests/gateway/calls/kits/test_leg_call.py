"""Bookkeeping of legs: their calls, tasks and faults, and the end of a group."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

import pytest

from shared.engine.standin_backend import StandInBackend
from vivavoce.adapters.media.paced_media import PacedMedia
from vivavoce.adapters.playback.playout import Playout
from vivavoce.gateway.calls.call_options import CallerSpeechAction, CallSettings, CallSpeechOptions
from vivavoce.gateway.calls.kits.leg_call import LegCall, LegGroup
from vivavoce.gateway.calls.registry import ActiveCall, CallRegistry
from vivavoce.gateway.calls.ways_in.way_in import CallServices
from vivavoce.tts_engine.engine import Engine

SETTINGS = CallSettings(0.6, CallSpeechOptions(), CallerSpeechAction.TELL)


class FakeLeg:
    """A leg whose connection ends synchronously."""

    def __init__(self, group: "LegGroup[FakeLeg]", services: CallServices) -> None:
        self.packets: list[bytes] = []
        self.reasons: list[str] = []
        self.leg_call = LegCall(self, group, services, SETTINGS, kind="fake", peer="10.0.0.9:5")
        self._group = group
        services.registry.admit(self, peer="10.0.0.9:5")
        group.add(self)

    def open(self, call_id: str) -> ActiveCall:
        self.media = PacedMedia(Playout(start=0.0), self.packets.append, now=time.monotonic)
        return self.leg_call.open(call_id, self.media)

    def fail(self, error: Exception) -> None:
        self.leg_call.fail(error)

    def end(self, reason: str) -> None:
        self.reasons.append(reason)
        self.leg_call.close(reason)
        self._group.remove(self)


def with_group(test: Callable[["LegGroup[FakeLeg]", CallServices], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(30), await Engine.open(backend=StandInBackend()) as engine:
            services = CallServices(engine, CallRegistry(engine, max_calls=2))
            await test(LegGroup(), services)

    asyncio.run(run())


def test_a_leg_s_call_is_registered_and_removed() -> None:
    async def test(group: LegGroup[FakeLeg], services: CallServices) -> None:
        leg = FakeLeg(group, services)
        active_call = leg.open("a")
        assert list(services.registry) == [active_call]
        assert (active_call.kind, active_call.peer) == ("fake", "10.0.0.9:5")
        leg.end("gone")
        leg.end("again")
        await active_call.call.end.wait_closed()
        assert list(services.registry) == []

    with_group(test)


def test_the_tasks_of_a_leg_end_with_its_call() -> None:
    async def test(group: LegGroup[FakeLeg], services: CallServices) -> None:
        leg = FakeLeg(group, services)
        leg.open("a")
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
            leg.open("a")
        faulty.leg_call.start_task(broken)
        while not faulty.reasons:
            await asyncio.sleep(0)
        assert faulty.reasons == ["internal error"]
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
        opened.open("a")
        group.start_task(release())
        await group.aclose()
        assert opened.reasons == admitted.reasons == ["shutting down"]
        assert released == [True]

    with_group(test)
    assert "Connection from 10.0.0.9:5 ended without a call: shutting down" in caplog.text
