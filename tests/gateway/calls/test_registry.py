"""The registry of calls: admission, counting, lookup, attachment and shutdown."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from shared.engine.standin_backend import StandInBackend
from vivavoce.adapters.media.paced_media import PacedMedia
from vivavoce.adapters.playback.playout import Playout
from vivavoce.gateway.calls.call import Call
from vivavoce.gateway.calls.registry import CallAlreadyAttached, CallRegistry, CallUnknown
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.errors import Overloaded
from vivavoce.tts_engine.records.spans import Span


class RegistryFixture:
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
    fixture: RegistryFixture
    kind: str
    ended: str | None = None

    def open(self, call_id: str) -> Call:
        self.media = PacedMedia(
            Playout(start=0.0), lambda packet: None, now=time.monotonic, dropped=lambda: 3
        )
        call = Call(call_id, engine=self.fixture.engine, media=self.media, close=self.end)
        self.fixture.registry.open(self, call, kind=self.kind, peer="10.0.0.9:5")
        return call

    def end(self, reason: str) -> None:
        self.ended = self.ended or reason
        self.fixture.registry.remove(self, reason)


def with_registry(test: Callable[[RegistryFixture], Awaitable[None]], max_calls: int = 2) -> None:
    async def run() -> None:
        async with asyncio.timeout(30), await Engine.open(backend=StandInBackend()) as engine:
            await test(RegistryFixture(engine, max_calls))

    asyncio.run(run())


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "vivavoce")
    return caplog


def test_calls_of_every_kind_and_admitted_connections_count_towards_max_calls(
    log: pytest.LogCaptureFixture,
) -> None:
    async def test(fixture: RegistryFixture) -> None:
        phone, browser = fixture.admit("audiosocket"), fixture.admit("webrtc")
        phone.open("a")
        assert (len(fixture.registry), fixture.metric("active_calls")) == (1, 1)
        assert fixture.refused().reason == "calls"
        assert fixture.metric("refusals_total", reason="calls") == 1
        browser.end("not connected")
        fixture.admit().open("b")
        assert [active_call.kind for active_call in fixture.registry] == ["audiosocket", "audiosocket"]

    with_registry(test)
    assert "Call from 10.0.0.9:5 refused: 2 calls are up, which is max_calls" in log.text


def test_the_load_grows_with_the_calls_and_is_one_when_another_would_be_refused() -> None:
    async def test(fixture: RegistryFixture) -> None:
        loads = [fixture.metric("load_ratio")]
        for _ in range(2):
            fixture.admit()
            loads.append(fixture.metric("load_ratio"))
        assert loads == [0, 0.5, 1]

    with_registry(test)


def test_the_utterances_of_a_call_are_in_its_span() -> None:
    async def test(fixture: RegistryFixture) -> None:
        spans: list[Span] = []
        fixture.engine.metrics.on_span = spans.append
        leg = fixture.admit()
        await leg.open("7f0c2d1e-5a4b-4c3d-9e8f-112233445566").speech.speak("One two.")
        leg.end("hung up")
        whole, speech, reading, first_audio = (
            *(span for span in spans if span.name == "call audiosocket"),
            *(span for span in spans if span.name != "call audiosocket"),
        )
        assert (speech.name, reading.name, first_audio.name) == ("speech", "reading", "first audio")
        assert (whole.parent, speech.parent) == ("", whole.id)
        assert reading.parent == first_audio.parent == speech.id
        assert {span.trace_number for span in spans} == {0x7F0C2D1E5A4B4C3D9E8F112233445566}
        assert whole.start <= speech.start and speech.stop <= whole.stop

    with_registry(test)


def test_an_overloaded_engine_refuses_calls_with_its_own_reason() -> None:
    async def test(fixture: RegistryFixture) -> None:
        streams = []
        while fixture.engine.refusal() is None:
            streams.append(fixture.engine.stream())
        assert fixture.refused().reason == fixture.engine.refusal().reason  # type: ignore[union-attr]
        for stream in streams:
            stream.cancel()

    with_registry(test)


def test_the_end_of_a_call_is_counted_and_its_numbers_are_logged_once(
    log: pytest.LogCaptureFixture,
) -> None:
    async def test(fixture: RegistryFixture) -> None:
        leg = fixture.admit()
        call = leg.open("a")
        leg.end("the caller hung up")
        leg.end("again")
        await call.end.wait_closed()
        assert (len(fixture.registry), fixture.metric("active_calls")) == (0, 0)
        fixture.admit()
        fixture.admit()

    with_registry(test)
    assert log.text.count("closed after") == 1
    assert "the caller hung up: 0 packets, 0 late, 0 skipped, 3 dropped, 0 underruns" in log.text


def test_a_call_is_found_by_its_id_and_one_program_at_a_time_is_attached() -> None:
    async def test(fixture: RegistryFixture) -> None:
        waiting = asyncio.create_task(fixture.registry.next_unattached())
        await asyncio.sleep(0)
        first = fixture.admit().open("a")
        assert (await waiting).call is first
        active_call = fixture.registry.get("a")
        with fixture.registry.attach(active_call):
            with (
                pytest.raises(CallAlreadyAttached, match="to call 'a'"),
                fixture.registry.attach(active_call),
            ):
                pass
            waiting = asyncio.create_task(fixture.registry.next_unattached())
            await asyncio.sleep(0)
            assert not waiting.done()
        assert (await waiting) is active_call
        second = fixture.admit().open("a")  # Asterisk may reuse an id
        assert fixture.registry.get("a").call is second
        with pytest.raises(CallUnknown, match="'b'"):
            fixture.registry.get("b")

    with_registry(test)


def test_finish_calls_finishes_sentences_ends_other_connections_and_refuses_new_ones() -> None:
    async def test(fixture: RegistryFixture) -> None:
        speaking_leg, waiting_leg = fixture.admit("webrtc"), fixture.admit()
        call = speaking_leg.open("a")
        speaking = asyncio.create_task(call.speech.speak("One two three."))
        await asyncio.sleep(0)
        finishing = asyncio.create_task(fixture.registry.finish_calls(20.0))
        await asyncio.sleep(0)
        assert fixture.refused().reason == "shutting_down"
        while not speaking.done():
            speaking_leg.media.tick(asyncio.get_running_loop().time())
            await asyncio.sleep(0.005)
        call.speech.discard()  # so that finish need not wait for the playout
        await finishing
        assert speaking_leg.ended == "shutting down after its sentence"
        assert waiting_leg.ended == "shutting down"
        assert fixture.metric("active_calls") == 0

    with_registry(test)


def test_finish_calls_ends_a_call_that_does_not_finish_in_time() -> None:
    async def test(fixture: RegistryFixture) -> None:
        leg = fixture.admit()
        call = leg.open("a")
        speaking = asyncio.create_task(call.speech.speak("One two three four five. " * 50))
        await asyncio.sleep(0)
        await fixture.registry.finish_calls(0.01)
        assert leg.ended == "shutting down"
        await speaking

    with_registry(test)


def test_finish_calls_leaves_no_task_when_it_is_cancelled() -> None:
    async def test(fixture: RegistryFixture) -> None:
        call = fixture.admit().open("a")
        speaking = asyncio.create_task(call.speech.speak("One two three four five. " * 50))
        await asyncio.sleep(0)
        before = asyncio.all_tasks()
        finishing = asyncio.create_task(fixture.registry.finish_calls(20.0))
        await asyncio.sleep(0.01)
        finishing.cancel()
        await asyncio.wait({finishing})
        assert asyncio.all_tasks() <= before
        call.on_closed()
        await speaking

    with_registry(test)
