"""The gateway process of the call bench: agents speak like a language model and record the times.

``python -m vivavoce.gateway.cli.bench.call_server PATTERN ...`` prints one JSON line when it accepts calls,
serves until its standard input closes, then writes its records to a file. The phones (``load_generator``) are
another process. The gateway is the real one; only its limits are raised to what the bench asks for.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from uuid import UUID

from ....adapters.playback.background import Awaited
from ...background_tasks import cancel_and_wait
from ...calls.agents.agent import at_pace, llm_tokens
from ...calls.call import Call
from ...calls.call_options import CallSpeechOptions
from ...calls.utterance_tracker import UtteranceOutcome
from ...process_tuning import tune_process
from ...serve import Gateway
from ..configuration.settings_loader import load_settings
from .trace import UtteranceTimes

TOKENS_PER_S = 50.0  # a fast hosted language model
WARM_UP_UTTERANCES = 2  # of each call, not measured
PAUSE_S = (0.3, 0.8)  # between utterances; random, so that onsets are not in phase with the packets
BARGE_IN_S = (0.7, 3.0)  # from the start of an utterance to its discard
SILENCE_AFTER_BARGE_IN_S = 0.7  # any sound in this time is a fault
RETRY_S = 1.0  # after the engine refused an utterance
# The texts are few and come again; what a call says is new.
_RENDERED_ANEW = CallSpeechOptions(keeps_speech=False)
_CLAUSE_ENDS = frozenset(",.;:!?—")


class SpeechPattern(StrEnum):
    """The way in which the agents speak on their calls."""

    ALONE = "alone"  # one utterance after another with pauses between
    RANDOM = "random"  # utterances start at random times on free calls
    AT_ONCE = "at-once"  # every call speaks without a pause
    BARGE_IN = "barge-in"  # utterances are discarded while they are playing


@dataclass(slots=True)
class UtteranceRecord:
    """The record of one utterance while it is spoken; ``UtteranceTimes`` documents the fields."""

    call: str
    number: int
    text: str
    started: float
    punctuation_pushed: float | None = None
    clause_pushed: float | None = None
    discarded: float | None = None
    ended: float | None = None


@dataclass(slots=True)
class CallCounters:
    """A call's counters at its end; ``PlayoutStats`` documents them."""

    call: str
    packets: int
    late_packets: int
    skipped_packets: int
    underruns: int


@dataclass(slots=True)
class LoadRecord:
    """The records of one run."""

    utterances: list[UtteranceRecord] = field(default_factory=list)
    calls: list[CallCounters] = field(default_factory=list)
    unassigned: int = 0  # utterances for which no call was free
    failed: int = 0  # utterances that the engine refused or failed

    def start_utterance(self, call: Call, number: int, text: str) -> UtteranceRecord:
        """Add the record of an utterance that starts now."""
        utterance = UtteranceRecord(call.call_id, number, text, time.monotonic())
        self.utterances.append(utterance)
        return utterance

    def close_call(self, call: Call) -> None:
        """Add a call's counters."""
        stats = call.media.report.stats
        self.calls.append(
            CallCounters(
                call.call_id, stats.packets, stats.late_packets, stats.skipped_packets, stats.underruns
            )
        )

    def write(self, path: Path) -> None:
        """Write the records as JSON."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


def read_load_record(path: Path) -> tuple[LoadRecord, list[UtteranceTimes]]:
    """Read a file written by ``LoadRecord.write``."""
    record = json.loads(path.read_text(encoding="utf-8"))
    notes = [UtteranceRecord(**utterance) for utterance in record.pop("utterances")]
    calls = [CallCounters(**utterance) for utterance in record.pop("calls")]
    utterances = [
        UtteranceTimes(**(asdict(utterance) | {"call": UUID(utterance.call)})) for utterance in notes
    ]
    return LoadRecord(notes, calls, **record), utterances


def utterance_texts() -> list[str]:
    """The texts to speak, each with a first clause of 3 to 10 words."""
    return files(__package__).joinpath("utterances.txt").read_text(encoding="utf-8").splitlines()


def first_clause_tokens(tokens: Sequence[str]) -> tuple[int, int]:
    """Indices of the first clause's punctuation and of the token that completes the clause.

    A comma completes its clause. After a full stop the next token does, because "2." may become "2.5".
    """
    mark = next(index for index, token in enumerate(tokens) if token.strip() in _CLAUSE_ENDS)
    return mark, mark if tokens[mark].strip() == "," else mark + 1


async def timed_tokens(utterance: UtteranceRecord) -> AsyncIterator[str]:
    """Yield the text at a language model's pace and record when its first clause was pushed."""
    tokens = llm_tokens(utterance.text)
    punctuated, complete = first_clause_tokens(tokens)
    number = 0
    async for token in at_pace(tokens, TOKENS_PER_S):
        if number == punctuated:
            utterance.punctuation_pushed = time.monotonic()
        if number == complete:
            utterance.clause_pushed = time.monotonic()
        yield token
        number += 1
    if utterance.clause_pushed is None:  # the end of the text completes the clause
        utterance.clause_pushed = time.monotonic()


class LoadAgent:
    """Base class of the bench's agents; one object serves all calls."""

    def __init__(self, record: LoadRecord) -> None:
        self.record = record
        self.random = random.Random(0)
        self.texts = utterance_texts()

    async def run(self, call: Call) -> None:
        """Speak on one call, as a program that is attached does, and record its counters."""
        try:
            with call.speech.awaiting(Awaited.PROGRAM):
                await self.talk(call)
        finally:
            self.record.close_call(call)

    async def talk(self, call: Call) -> None:
        """Speak on one call until it ends."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Release what the calls share."""

    async def speak_until_played(self, call: Call, number: int, text: str) -> UtteranceRecord:
        """Speak one utterance and wait until its last packet has been sent."""
        utterance = self.record.start_utterance(call, number, text)
        await self.speak(call, utterance)
        await call.speech.wait_played()
        utterance.ended = time.monotonic()
        return utterance

    async def speak(self, call: Call, utterance: UtteranceRecord) -> UtteranceOutcome:
        """Speak one utterance and wait until its last audio is in the playout; count a failure."""
        outcome = await call.speech.speak(timed_tokens(utterance), speech=_RENDERED_ANEW)
        self.record.failed += outcome in (UtteranceOutcome.FAILED, UtteranceOutcome.UNREADABLE)
        return outcome


class SequentialAgent(LoadAgent):
    """Speaks ``utterances`` one after another, then hangs up."""

    def __init__(self, record: LoadRecord, *, utterances: int) -> None:
        super().__init__(record)
        self._utterances = utterances

    async def talk(self, call: Call) -> None:
        """Speak and pause in turn; warm-up utterances have negative numbers."""
        for number in range(-WARM_UP_UTTERANCES, self._utterances):
            await asyncio.sleep(self.random.uniform(*PAUSE_S))
            await self.speak_until_played(call, number, self.texts[number % len(self.texts)])


class PoissonAgent(LoadAgent):
    """Open loop: utterances start as a Poisson process, each on a free call that has been silent for 0.3 s.

    ``speaking`` calls speak on average, by Little's law for utterances of ``UTTERANCE_S``.
    """

    UTTERANCE_S = 4.6  # mean length of the speech in ``utterances.txt``
    START_S = 2.0  # every phone has dialled by then

    def __init__(self, record: LoadRecord, *, speaking: int) -> None:
        super().__init__(record)
        self._rate_hz = speaking / self.UTTERANCE_S
        self._free_calls: list[tuple[float, asyncio.Queue[str]]] = []
        self._assigning: asyncio.Task[None] | None = None

    async def talk(self, call: Call) -> None:
        """Speak each utterance that is assigned to this call, until the phone hangs up."""
        if self._assigning is None:
            self._assigning = asyncio.create_task(self._assign_utterances())
        inbox: asyncio.Queue[str] = asyncio.Queue()
        number = 0
        while True:
            self._free_calls.append((time.monotonic(), inbox))
            await self.speak_until_played(call, number, await inbox.get())
            number += 1

    async def aclose(self) -> None:
        """Stop assigning utterances."""
        if self._assigning is not None:
            await cancel_and_wait(self._assigning)

    async def _assign_utterances(self) -> None:
        due = time.monotonic() + self.START_S
        while True:
            due += self.random.expovariate(self._rate_hz)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self._assign(self.random.choice(self.texts))

    def _assign(self, text: str) -> None:
        if self._free_calls and time.monotonic() - self._free_calls[0][0] >= PAUSE_S[0]:
            _, inbox = self._free_calls.pop(0)
            inbox.put_nowait(text)
        else:
            self.record.unassigned += 1


class ContinuousAgent(LoadAgent):
    """Speaks without a pause until the phone hangs up."""

    async def talk(self, call: Call) -> None:
        """Speak one utterance after another; the next is pushed while the last one plays."""
        number = self.random.randrange(len(self.texts))
        while True:
            utterance = self.record.start_utterance(call, number, self._paragraph(number))
            match await self.speak(call, utterance):
                case UtteranceOutcome.CUT_SHORT:
                    return  # the call is ending
                case UtteranceOutcome.FAILED | UtteranceOutcome.UNREADABLE:
                    await asyncio.sleep(RETRY_S)
            number += 1

    def _paragraph(self, number: int) -> str:
        return " ".join(self.texts[(number + step) % len(self.texts)] for step in range(3))


class BargeInAgent(LoadAgent):
    """Speaks two whole utterances, then ``barge_ins`` that are discarded while they play, then hangs up."""

    TEXTS = (0, 9)  # in turn; different, so that leftovers of one are recognised in the other

    def __init__(self, record: LoadRecord, *, barge_ins: int) -> None:
        super().__init__(record)
        self._barge_ins = barge_ins

    async def talk(self, call: Call) -> None:
        """Speak two whole utterances, then interrupt one after another."""
        for number in range(2):
            await asyncio.sleep(SILENCE_AFTER_BARGE_IN_S)
            await self.speak_until_played(call, number, self._text(number))
        for number in range(2, 2 + self._barge_ins):
            await asyncio.sleep(SILENCE_AFTER_BARGE_IN_S)
            await self._interrupt(call, number)
        await asyncio.sleep(SILENCE_AFTER_BARGE_IN_S)

    async def _interrupt(self, call: Call, number: int) -> None:
        utterance = self.record.start_utterance(call, number, self._text(number))
        speaking = asyncio.create_task(self.speak(call, utterance))
        await asyncio.sleep(self.random.uniform(*BARGE_IN_S))
        utterance.discarded = time.monotonic()
        call.speech.discard()
        await speaking

    def _text(self, number: int) -> str:
        return self.texts[self.TEXTS[number % 2]]


def make_load_agent(part: SpeechPattern, record: LoadRecord, count: int) -> LoadAgent:
    """The agent of a pattern; ``count`` is utterances, calls speaking, or barge-ins a call."""
    match part:
        case SpeechPattern.ALONE:
            return SequentialAgent(record, utterances=count)
        case SpeechPattern.RANDOM:
            return PoissonAgent(record, speaking=count)
        case SpeechPattern.AT_ONCE:
            return ContinuousAgent(record)
        case SpeechPattern.BARGE_IN:
            return BargeInAgent(record, barge_ins=count)


async def serve_load(part: SpeechPattern, count: int, calls: int, out: Path) -> None:
    """Answer calls until standard input closes, then write the records to ``out``."""
    settings = load_settings(
        flags={
            "audiosocket_port": 0,
            "http_port": 0,
            "calls_max_calls": calls,
            "engine_max_streams": calls + 8,
            "server_log_level": "WARNING",
            "server_drain_s": 0,
        }
    )
    record = LoadRecord()
    agent = make_load_agent(part, record, count)
    gateway = await Gateway.open(settings, agent=agent)
    try:
        tune_process()
        addresses = gateway.addresses
        print(
            json.dumps({"port": addresses.ways_in["audiosocket"][1], "http_port": addresses.http[1]}),
            flush=True,
        )
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    finally:
        await agent.aclose()
        await gateway.aclose()
    record.write(out)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments and serve."""
    parser = argparse.ArgumentParser(
        prog="vivavoce.gateway.cli.bench.call_server", description="server of a bench"
    )
    parser.add_argument("part", type=SpeechPattern, choices=list(SpeechPattern))
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--calls", type=int, default=1, help="max_calls of the gateway")
    parser.add_argument("--out", type=Path, required=True)
    asyncio.run(serve_load(**vars(parser.parse_args(arguments))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
