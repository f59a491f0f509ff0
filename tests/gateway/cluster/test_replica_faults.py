"""Faults between gateways and replicas: stalls, slow gateways, clocks that differ, encoders that differ."""

import asyncio
import pickle
import time
from types import SimpleNamespace

import pytest

from shared.cluster.local_replicas import LocalReplica, open_cluster
from shared.engine.standin_backend import WORD_S, StandInBackend
from shared.event_loop import until
from vivavoce.gateway.cluster.replicas import gateway_link, replica_link
from vivavoce.gateway.cluster.replicas.messages import (
    EndInput,
    OpenStream,
    PushText,
    ReplicaEvent,
    ReportPlayout,
    StreamChunk,
    StreamCommand,
)
from vivavoce.gateway.cluster.replicas.replica_host import ReplicaHost
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.stream import Stream
from vivavoce.tts_engine.stream_request import StreamRequest

TEXT = "One two three four, five six seven. Eight nine ten, and eleven! Twelve thirteen fourteen fifteen."
WORDS = [word.strip(",.!") for word in TEXT.split()]
OTHER_CLOCK_S = -86_400.0  # the replica's clock is a day behind the gateway's
WORD_COUNT = 100


async def give_text(*streams: Stream) -> None:
    """Have replicas chosen for the streams."""
    for stream in streams:
        stream.push_text(TEXT)
        stream.end_input()
    await asyncio.sleep(0)


async def words_of(stream: Stream) -> list[str]:
    async with stream:
        if not stream.text:
            await give_text(stream)
        return [word.text async for chunk in stream for word in chunk.words]


def test_streams_of_a_stalled_replica_go_on_at_another_one_and_it_serves_again_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica_link, "MAX_SILENCE_S", 1.3)

    async def run() -> None:
        async with open_cluster(2) as (engine, directory):
            streams = [engine.stream() for _ in range(4)]
            await give_text(*streams)
            stalled = next(each for each in directory.replicas if each.name in streams[0].tried)
            stalled.hangs = True
            for words in await asyncio.gather(*map(words_of, streams)):
                assert words == WORDS
            await until(lambda: stalled.name not in engine.replicas)
            stalled.hangs = False
            await until(lambda: stalled.name in engine.replicas)
            await until(lambda: stalled.engine.active_streams == 0)  # it cancels those of before the stall
            directory.listed = [stalled]  # the routing may prefer the other one
            await until(lambda: engine.replicas == (stalled.name,))
            after = [engine.stream() for _ in range(4)]
            await give_text(*after)
            assert all(stalled.name in each.tried for each in after)
            for words in await asyncio.gather(*map(words_of, after)):
                assert words == WORDS

    asyncio.run(run())


def test_a_gateway_that_fetches_no_events_bounds_what_waits_for_it() -> None:
    async def run() -> None:
        engine = await Engine.open(backend=StandInBackend(), warm_up=False)
        host = ReplicaHost(engine, "one", "digest")
        events = host.events("gateway")
        await anext(events)
        opening = OpenStream(StreamRequest("tone-440"))
        text = PushText(" ".join(["word"] * WORD_COUNT))
        host.run_commands("gateway", [StreamCommand(1, each) for each in (opening, text, EndInput())])
        waiting = host._links["gateway"]._events
        rendered = engine.metrics.audio_seconds
        await until(lambda: len(waiting) * WORD_S >= 1.0 and rendered._value.get() >= 1.9)
        for _ in range(5):  # the gateway lives, and is slow
            host.run_commands("gateway", ())
            await asyncio.sleep(0.02)
        assert len(waiting) * WORD_S < 1.5
        assert rendered._value.get() < 3.0  # of 20 s
        words = 0
        while words < WORD_COUNT:
            for chunk in chunks_of(await anext(events)):
                words += len(chunk.chunk.words)
                report = ReportPlayout(chunk.chunk.seconds, None)
                host.run_commands("gateway", [StreamCommand(1, report)])
        await events.aclose()
        await engine.aclose()

    asyncio.run(asyncio.wait_for(run(), 60))


def chunks_of(events: tuple[ReplicaEvent, ...]) -> list[StreamChunk]:
    return [each for each in events if isinstance(each, StreamChunk)]


def test_a_replica_with_another_clock_keeps_the_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    other_clock = SimpleNamespace(monotonic=lambda: time.monotonic() + OTHER_CLOCK_S)
    monkeypatch.setattr(gateway_link, "time", other_clock)
    through_pickle = LocalReplica.send

    async def send(replica: LocalReplica, commands: tuple[StreamCommand, ...]) -> None:
        await through_pickle(replica, pickle.loads(pickle.dumps(commands)))

    monkeypatch.setattr(LocalReplica, "send", send)

    async def run() -> None:
        async with open_cluster(1) as (engine, directory):
            async with engine.stream() as stream:
                stream.push_text("word " * WORD_COUNT)
                await anext(stream)
                stream.set_deadline(time.monotonic() + 60.0)
                (session,) = directory.replicas[0].engine._sessions.streams
                await until(lambda: session.deadline is not None)
                lead_s = session.deadline - other_clock.monotonic()
                assert 30.0 < lead_s < 70.0
            assert await words_of(engine.stream()) == WORDS

    asyncio.run(run())
