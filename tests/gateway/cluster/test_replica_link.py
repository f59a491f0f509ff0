"""Batches of commands, back-pressure reports and silence, in virtual time."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any

import pytest

from shared.virtual_time import VirtualTimeLoop
from vivavoce.gateway.cluster.replicas.gateway_link import MAX_SILENCE_S
from vivavoce.gateway.cluster.replicas.messages import (
    Flush,
    PushText,
    ReplicaDescription,
    ReplicaEvent,
    ReplicaLoad,
    ReplicaLost,
    ReplicaMetrics,
    ReportPlayout,
    StreamCommand,
)
from vivavoce.gateway.cluster.replicas.replica_host import ReplicaHost
from vivavoce.gateway.cluster.replicas.replica_link import MAX_SILENCE_S as MAX_REPLICA_SILENCE_S
from vivavoce.gateway.cluster.replicas.replica_link import ReplicaLink
from vivavoce.tts_engine.metrics import Metrics

Run = Callable[[Coroutine[Any, Any, None]], None]
LOAD = ReplicaLoad(0, 8, 0.0, None)


class SlowChannel:
    """Answers after ``answer_s``, and notes when each batch came."""

    def __init__(self, answer_s: float) -> None:
        self.answer_s = answer_s
        self.batches: list[tuple[float, tuple[StreamCommand, ...]]] = []

    async def send(self, commands: tuple[StreamCommand, ...]) -> None:
        self.batches.append((asyncio.get_running_loop().time(), commands))
        await asyncio.sleep(self.answer_s)

    async def events(self) -> AsyncGenerator[tuple[ReplicaEvent, ...], None]:
        yield (LOAD,)
        await asyncio.Event().wait()


class Losses:
    def __init__(self) -> None:
        self.errors: list[ReplicaLost] = []

    def link_to(self, channel: SlowChannel) -> ReplicaLink:
        description = ReplicaDescription("one", "digest", (), LOAD)
        return ReplicaLink(
            *(description, channel, lambda link: None, lambda metrics: None),
            lambda link, error: self.errors.append(error),
        )


def test_commands_that_come_up_during_a_call_share_the_next_one_in_order(run_virtually: Run) -> None:
    async def run() -> None:
        channel, losses = SlowChannel(0.1), Losses()
        link = losses.link_to(channel)
        for each in "abcde":
            link.send(StreamCommand(1, PushText(each)))
            await asyncio.sleep(0.03)
        link.send(StreamCommand(2, Flush()))
        await asyncio.sleep(0.5)
        batches = [batch for _, batch in channel.batches if batch]
        assert sum(batches, ()) == (
            *(StreamCommand(1, PushText(each)) for each in "abcde"),
            StreamCommand(2, Flush()),
        )
        assert len(batches) == 3
        await link.aclose()
        assert losses.errors == []

    run_virtually(run())


def test_reports_of_playout_are_added_up_and_share_a_batch(run_virtually: Run) -> None:
    async def run() -> None:
        channel, losses = SlowChannel(0.001), Losses()
        link = losses.link_to(channel)
        await asyncio.sleep(0.01)
        for _ in range(4):
            link.send(StreamCommand(1, ReportPlayout(0.05, None)))
            link.send(StreamCommand(1, ReportPlayout(0.0, 0.6)))
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.1)
        assert [batch for _, batch in channel.batches if batch] == [
            (StreamCommand(1, ReportPlayout(0.2, 0.6)),)
        ]
        await link.aclose()

    run_virtually(run())


def test_an_idle_link_sends_heartbeats(run_virtually: Run) -> None:
    async def run() -> None:
        channel, losses = SlowChannel(0.0), Losses()
        link = losses.link_to(channel)
        await asyncio.sleep(MAX_SILENCE_S)
        times = [at for at, _ in channel.batches]
        assert max(after - before for before, after in itertools.pairwise(times)) < 2.0
        await link.aclose()

    run_virtually(run())


def test_a_replica_that_takes_nothing_is_lost(run_virtually: Run) -> None:
    async def run() -> None:
        channel, losses = PromptChannel(5.0), Losses()
        link = losses.link_to(channel)
        await asyncio.sleep(0.01)
        link.send(StreamCommand(1, Flush()))
        await asyncio.sleep(MAX_REPLICA_SILENCE_S - 0.2)
        assert losses.errors == []  # one late answer is no loss
        await asyncio.sleep(0.3)
        assert [str(error) for error in losses.errors] == ["replica one took nothing for 3.5 s"]
        await link.aclose()

    run_virtually(run())


class PromptChannel(SlowChannel):
    """Sends its load every second."""

    async def events(self) -> AsyncGenerator[tuple[ReplicaEvent, ...], None]:
        while True:
            yield (LOAD,)
            await asyncio.sleep(1.0)


@pytest.mark.parametrize("stall_s", [1.4, 3.0, 600.0])
def test_no_replica_is_lost_because_the_gateway_itself_stood_still(
    run_virtually: Run, stall_s: float
) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        losses = Losses()
        link = losses.link_to(PromptChannel(0.3))
        await asyncio.sleep(2.05)
        link.send(StreamCommand(1, Flush()))
        await asyncio.sleep(0.01)
        loop.pass_time(stall_s)
        await asyncio.sleep(10.0)
        assert losses.errors == []
        await link.aclose()

    run_virtually(run())


def test_a_replica_that_answers_and_sends_no_events_is_lost(run_virtually: Run) -> None:
    async def run() -> None:
        channel, losses = SlowChannel(0.0), Losses()
        link = losses.link_to(channel)
        await asyncio.sleep(3.6)
        assert [str(error) for error in losses.errors] == ["replica one sent nothing for 3.5 s"]
        await link.aclose()

    run_virtually(run())


class BusyEngine:
    """Speaks one stream; its cost changes all the time."""

    voices, active_streams, max_streams, compute_s_per_audio_s = (), 1, 8, 0.0

    def __init__(self) -> None:
        self.metrics = Metrics()

    def refusal(self) -> None:
        self.compute_s_per_audio_s += 0.05
        self.compute_s_per_audio_s *= 2
        return None


def test_a_busy_replica_reports_changes_of_its_load_every_50_ms(run_virtually: Run) -> None:
    async def run() -> None:
        host = ReplicaHost(BusyEngine(), "one", "digest")  # type: ignore[arg-type]
        loop = asyncio.get_running_loop()
        begin, times = loop.time(), []
        async with aclosing(host.events("gateway")) as batches:
            async for load, *_ in batches:
                assert isinstance(load, ReplicaLoad)
                times.append(round(loop.time() - begin, 3))
                if len(times) == 5:
                    break
        assert times == [0.0, 0.05, 0.1, 0.15, 0.2]

    run_virtually(run())


def test_the_metrics_of_a_replica_go_to_the_oldest_gateway_only(run_virtually: Run) -> None:
    async def run() -> None:
        host = ReplicaHost(EngineWithoutStreams(), "one", "digest")  # type: ignore[arg-type]
        first, second = host.events("first"), host.events("second")

        def has_metrics(batch: tuple[ReplicaEvent, ...]) -> bool:
            return any(isinstance(each, ReplicaMetrics) for each in batch)

        assert has_metrics(await anext(first)) and not has_metrics(await anext(second))
        await first.aclose()
        assert has_metrics(await anext(second))
        await second.aclose()

    run_virtually(run())


class EngineWithoutStreams:
    """What a host asks of an engine while no stream is open."""

    voices, active_streams, max_streams, compute_s_per_audio_s = (), 0, 8, 0.0

    def __init__(self) -> None:
        self.metrics = Metrics()

    def refusal(self) -> None:
        return None


def test_a_gateway_that_is_silent_loses_its_link(run_virtually: Run) -> None:
    async def run() -> None:
        host = ReplicaHost(EngineWithoutStreams(), "one", "digest")  # type: ignore[arg-type]
        loop = asyncio.get_running_loop()
        begin, batches, metrics = loop.time(), [], []
        loop.call_later(4.0, host.run_commands, "gateway", ())
        async for batch in host.events("gateway"):
            batches.append((round(loop.time() - begin), batch[0]))
            metrics += [round(loop.time() - begin) for each in batch if isinstance(each, ReplicaMetrics)]
        assert batches == [(second, LOAD) for second in range(14)]  # a sign of life each second
        assert metrics == [0, 5, 10]
        assert loop.time() - begin == pytest.approx(4.0 + MAX_SILENCE_S)

    run_virtually(run())
