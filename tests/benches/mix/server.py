"""The gateway process of the mixed load: agents that speak and are interrupted, and a record of its health.

``python -m benches.mix.server ...`` prints its ports as one JSON line, serves until its
standard input closes, and prints what it recorded as a second line.
"""

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import time
from asyncio import events
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from unittest.mock import patch

from shared.gateways.made_settings import make_settings
from vivavoce.gateway import engine_opening
from vivavoce.gateway.calls.agents.agent import llm_tokens
from vivavoce.gateway.calls.call import Call
from vivavoce.gateway.calls.utterance_tracker import UtteranceOutcome
from vivavoce.gateway.cli.bench.call_server import LoadAgent, LoadRecord, first_clause_tokens
from vivavoce.gateway.process_tuning import tune_process
from vivavoce.gateway.serve import Gateway

BARGE_IN_S = (0.3, 3.0)  # from the start of an utterance to its discard
HELD_S = 0.005  # a callback of the event loop that takes longer is recorded
_COUNT_INTERVAL_S = 5.0
_BEAT_S = 0.01


@dataclass(frozen=True, slots=True)
class MixedServerOptions:
    """The load of the agents."""

    calls: int  # that are up on average
    utterances_per_s: float  # over all calls
    discards_per_s: float


class MomentFile:
    """Moments of calls in a temporary file: an hour of them must not show in the memory of the process."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile("w+", encoding="ascii")  # noqa: SIM115  # open until read

    def add(self, call_id: str, at: float) -> None:
        """Add a moment, monotonic seconds."""
        self._file.write(f"{call_id} {at}\n")

    def read(self) -> list[tuple[str, float]]:
        """Return all moments and close the file."""
        with self._file:
            self._file.seek(0)
            return [(call_id, float(at)) for call_id, at in map(str.split, self._file)]


@dataclass(slots=True)
class MixedServerRecord:
    """What the process recorded of itself."""

    utterances: int = 0  # that began
    failed: int = 0  # utterances that the engine refused or failed
    underruns: int = 0
    late_packets: int = 0
    packets: int = 0
    max_loop_delay_ms: float = 0.0  # of a timer
    discarded_at: list[tuple[str, float]] = field(default_factory=list)  # call id, monotonic seconds
    # The first clause of each call was pushed.
    first_clause_at: list[tuple[str, float]] = field(default_factory=list)
    held: dict[str, list[float]] = field(default_factory=dict)  # by callback: times, total ms, longest ms
    tasks: list[tuple[float, int]] = field(default_factory=list)  # of asyncio; monotonic seconds, number


class MixedAgent(LoadAgent):
    """Speaks at random times on each call; some utterances are discarded while they are spoken."""

    def __init__(self, options: MixedServerOptions, record: MixedServerRecord) -> None:
        super().__init__(LoadRecord())
        self.texts += 2 * [
            first_clause(text) for text in self.texts
        ]  # short answers are usual in a conversation
        self.discards, self.first_clauses = MomentFile(), MomentFile()
        self._mix_record = record
        self._mean_pause_s = options.calls / options.utterances_per_s
        self._discard_share = options.discards_per_s / options.utterances_per_s

    async def run(self, call: Call) -> None:
        """Speak on one call and add its counters to the record."""
        try:
            await self.talk(call)
        finally:
            stats = call.media.report.stats
            self._mix_record.underruns += stats.underruns
            self._mix_record.late_packets += stats.late_packets
            self._mix_record.packets += stats.packets

    async def talk(self, call: Call) -> None:
        """Greet, then speak until the call ends. Utterances that are due during one follow it at once."""
        due = time.monotonic()
        is_first = True
        while True:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            speaking = asyncio.create_task(self._speak(call, self.random.choice(self.texts), is_first))
            is_first = False
            if self.random.random() < self._discard_share:
                await asyncio.wait({speaking}, timeout=self.random.uniform(*BARGE_IN_S))
                self.discards.add(call.call_id, time.monotonic())
                call.speech.discard()
            await speaking
            await call.speech.wait_played()
            due = max(due + self.random.expovariate(1 / self._mean_pause_s), time.monotonic())

    async def _speak(self, call: Call, text: str, is_first: bool) -> None:
        record = self.record.start_utterance(call, 0, text)
        self.record.utterances.clear()
        self._mix_record.utterances += 1
        outcome = await self.speak(call, record)
        self._mix_record.failed += outcome is UtteranceOutcome.FAILED
        if is_first and record.clause_pushed is not None:
            self.first_clauses.add(call.call_id, record.clause_pushed)


def first_clause(text: str) -> str:
    """Return the text up to its first punctuation mark."""
    tokens = llm_tokens(text)
    mark, _ = first_clause_tokens(tokens)
    return "".join(tokens[: mark + 1])


class LoopTrace:
    """Records which callbacks hold the event loop, how late its timers are, and long garbage collections."""

    def __init__(self, record: MixedServerRecord) -> None:
        self._record = record
        self._run: Callable[[events.Handle], None] = events.Handle._run
        self._collection_start = 0.0

    def install(self) -> None:
        """Measure every callback of every loop, and every collection, in this process from now on."""
        gc.callbacks.append(self._measure_collection)
        run, add = self._run, self._add

        def run_measured(handle: events.Handle) -> None:
            start = time.perf_counter()
            run(handle)
            taken = time.perf_counter() - start
            if taken > HELD_S:
                add(callback_name(handle), taken)

        events.Handle._run = run_measured  # type: ignore[method-assign,assignment]

    async def beat(self) -> None:
        """Measure how late a timer is, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _BEAT_S
            await asyncio.sleep(_BEAT_S)
            self._record.max_loop_delay_ms = max(self._record.max_loop_delay_ms, 1000 * (loop.time() - due))

    def _measure_collection(self, phase: str, details: dict[str, int]) -> None:
        if phase == "start":
            self._collection_start = time.perf_counter()
            return
        taken = time.perf_counter() - self._collection_start
        if taken > HELD_S:
            self._add(f"garbage collection of generation {details['generation']}", taken)

    def _add(self, name: str, taken_s: float) -> None:
        entry = self._record.held.setdefault(name, [0, 0.0, 0.0])
        entry[0] += 1
        entry[1] += 1000 * taken_s
        entry[2] = max(entry[2], 1000 * taken_s)


def callback_name(handle: events.Handle) -> str:
    """Return the name of a callback of an event loop; of a step of a task, that of its coroutine."""
    callback: Any = handle._callback  # type: ignore[attr-defined]  # None when the handle was cancelled
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return str(getattr(task.get_coro(), "__qualname__", task))
    return str(getattr(callback, "__qualname__", callback))


async def count_tasks(record: MixedServerRecord) -> None:
    """Count the tasks every 5 s, until cancelled."""
    while True:
        record.tasks.append((time.monotonic(), len(asyncio.all_tasks())))
        await asyncio.sleep(_COUNT_INTERVAL_S)


async def serve_mix(options: MixedServerOptions) -> MixedServerRecord:
    """Answer calls and requests until standard input closes."""
    settings = make_settings(
        audiosocket_port=0,
        http_port=0,
        calls_max_calls=4 * options.calls + 16,
        engine_max_streams=4 * options.calls + 64,
        server_log_level="WARNING",
        server_drain_s=0,
    )
    record = MixedServerRecord()
    trace = LoopTrace(record)
    trace.install()
    agent = MixedAgent(options, record)
    with patch.object(engine_opening, "KEPT_SPEECH_BYTES", 0):
        gateway = await Gateway.open(settings, agent=agent)
    tasks = [asyncio.create_task(trace.beat()), asyncio.create_task(count_tasks(record))]
    try:
        tune_process()
        addresses = {
            "audiosocket": gateway.addresses.ways_in["audiosocket"][1],
            "http": gateway.addresses.http[1],
        }
        print(json.dumps(addresses), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    finally:
        for task in tasks:
            task.cancel()
        await gateway.aclose()
    record.discarded_at = agent.discards.read()
    record.first_clause_at = agent.first_clauses.read()
    return record


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments and serve."""
    parser = argparse.ArgumentParser(prog="benches.mix.server", description="server")
    parser.add_argument("--calls", type=int, required=True)
    parser.add_argument("--utterances-per-s", type=float, required=True)
    parser.add_argument("--discards-per-s", type=float, required=True)
    record = asyncio.run(serve_mix(MixedServerOptions(**vars(parser.parse_args(arguments)))))
    print(json.dumps(asdict(record)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
