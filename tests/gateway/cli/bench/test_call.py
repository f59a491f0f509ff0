"""The call bench: records of its gateway, traces of its phones, and the figures computed from both."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import cast
from uuid import UUID

import numpy as np
import pytest

from vivavoce.gateway.calls.agents.agent import llm_tokens
from vivavoce.gateway.calls.call import Call
from vivavoce.gateway.calls.call_options import CallSpeechOptions
from vivavoce.gateway.calls.utterance_tracker import UtteranceOutcome
from vivavoce.gateway.cli.bench import call, load_generator
from vivavoce.gateway.cli.bench.call import (
    LoadResult,
    LoadSetup,
    SimultaneousCalls,
    count_mixed_utterances,
    measure,
    measure_onsets,
    run_load,
    summarize_simultaneous_calls,
)
from vivavoce.gateway.cli.bench.call_server import (
    CallCounters,
    LoadRecord,
    PoissonAgent,
    SpeechPattern,
    UtteranceRecord,
    first_clause_tokens,
    read_load_record,
    timed_tokens,
    utterance_texts,
)
from vivavoce.gateway.cli.bench.processes import resident_mb
from vivavoce.gateway.cli.bench.report import BenchFailed
from vivavoce.gateway.cli.bench.trace import PacketTrace, UtteranceTimes, mean_calls_speaking
from vivavoce.gateway.cli.phones.received_audio import ReceivedCall, ReceivedPacket

CALL = UUID(int=5)


# The gateway process


@pytest.mark.parametrize("text", utterance_texts())
def test_first_clauses_are_short_and_plain(text: str) -> None:
    tokens = llm_tokens(text)
    mark, _ = first_clause_tokens(tokens)
    clause = "".join(tokens[:mark])
    assert 3 <= len(clause.split()) <= 10
    assert clause.replace(" ", "").isalpha()


def test_a_comma_completes_a_clause_and_a_full_stop_needs_the_next_token() -> None:
    assert first_clause_tokens(["Well", ",", " then", "."]) == (1, 1)
    assert first_clause_tokens(["Done", ".", " Next"]) == (1, 2)


def test_the_pushes_of_punctuation_and_clause_are_recorded_and_the_text_is_unchanged() -> None:
    note = UtteranceRecord(str(CALL), 0, "It is done. What is next?", 0.0)
    seen: list[tuple[str, bool, bool]] = []

    async def push() -> None:
        async for token in timed_tokens(note):
            seen.append((token, note.punctuation_pushed is not None, note.clause_pushed is not None))

    asyncio.run(push())
    assert "".join(token for token, _, _ in seen) == note.text
    assert seen[2] == (" done", False, False)
    assert seen[3] == (".", True, False)
    assert seen[4] == (" What", True, True)


def test_the_end_of_the_text_completes_a_clause() -> None:
    note = UtteranceRecord(str(CALL), 0, "It is done.", 0.0)

    async def push() -> None:
        async for _ in timed_tokens(note):
            pass

    asyncio.run(push())
    assert note.clause_pushed is not None and note.punctuation_pushed is not None
    assert note.clause_pushed >= note.punctuation_pushed


class NoCall:
    """A call on which speaking takes until ``release`` is set."""

    def __init__(self) -> None:
        self.call_id = str(CALL)
        self.spoken = 0
        self.release = asyncio.Event()
        self.speech = self

    async def speak(self, tokens: object, *, speech: CallSpeechOptions) -> UtteranceOutcome:
        assert not speech.keeps_speech  # the texts come again, and are to be rendered anew
        self.spoken += 1
        await self.release.wait()
        return UtteranceOutcome.SPOKEN

    async def wait_played(self) -> None:
        pass


def test_random_utterances_are_assigned_to_free_calls_and_counted_when_none_is_free() -> None:
    async def deal() -> tuple[int, int]:
        agent = PoissonAgent(LoadRecord(), speaking=1000)
        agent.START_S = 0.35  # type: ignore[misc]  # calls must have been silent for 0.3 s
        call = NoCall()
        speaking = asyncio.create_task(agent.talk(cast(Call, call)))
        while agent.record.unassigned < 3:
            await asyncio.sleep(0.01)
        speaking.cancel()
        await agent.aclose()
        return call.spoken, agent.record.unassigned

    spoken, refused = asyncio.run(deal())
    assert spoken == 1
    assert refused >= 3


def test_a_load_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    note = UtteranceRecord(str(CALL), 3, "Well, then.", 1.0, 1.5, 1.6, None, 4.0)
    book = LoadRecord([note], [CallCounters(str(CALL), 100, 2, 1, 4)], unassigned=2, failed=1)
    book.write(tmp_path / "notes.json")
    read, utterances = read_load_record(tmp_path / "notes.json")
    assert (read.calls, read.unassigned, read.failed) == (book.calls, 2, 1)
    assert utterances == [UtteranceTimes(CALL, 3, "Well, then.", 1.0, 1.5, 1.6, None, 4.0)]


# The phones


def test_traces_are_read_as_they_were_written(tmp_path: Path) -> None:
    pcm = np.arange(160, dtype="<i2").tobytes()
    heard = ReceivedCall(
        CALL, 0.0, (ReceivedPacket(0.5, 8000, pcm), ReceivedPacket(0.52, 8000, bytes(320))), 1.0, ""
    )
    load_generator.save_traces(tmp_path / "heard.npz", [heard, ReceivedCall(UUID(int=6), 0.0, (), 1.0, "")])
    (trace,) = load_generator.load_traces(tmp_path / "heard.npz")
    assert (trace.call, trace.sample_rate, trace.arrived.tolist()) == (CALL, 8000, [0.5, 0.52])
    assert trace.pcm[0].tolist() == list(range(160))
    assert trace.audible.tolist() == [True, False]


def test_phones_without_a_server_print_an_error_and_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert load_generator.main(["127.0.0.1", "9", "--out", str(tmp_path / "heard.npz")]) == 1
    assert capsys.readouterr().err.startswith("cannot connect to 127.0.0.1:9 ")


# The figures


def run_of(
    *traces: PacketTrace,
    utterances: tuple[UtteranceTimes, ...] = (),
    underruns: int = 0,
    calls: int | None = None,
) -> LoadResult:
    book = LoadRecord(calls=[CallCounters(str(trace.call), 1, 0, 0, underruns) for trace in traces][:calls])
    return LoadResult(
        traces, utterances, book, load_generator.PhoneLoadResult(-2.0, 100.0, 0.1), 300.0, 0.0, 0.0
    )


def steady(call: int, *, packets: int = 200, level: int = 3000) -> PacketTrace:
    arrived = np.arange(packets) * 0.020
    return PacketTrace.from_arrays(UUID(int=call), 8000, arrived, np.full((packets, 160), level, np.int16))


def test_calls_with_packets_in_time_meet_the_targets() -> None:
    at_once = summarize_simultaneous_calls(run_of(steady(1), steady(2)))
    assert at_once.meets_targets
    assert (at_once.underruns, at_once.arrival_gaps, at_once.audible_calls) == (0, 0, 2)


def test_the_cost_is_the_processor_time_for_a_second_of_audible_speech() -> None:
    run = run_of(steady(1), steady(2), steady(3, level=0))  # 8 s are audible in 102 s
    assert replace(run, cpu_share=0.5).cost_ms == pytest.approx(1000 * 0.5 * 102 / 8)
    assert run_of(steady(1)).cost_ms == 0


def test_one_underrun_misses_the_targets() -> None:
    assert not summarize_simultaneous_calls(run_of(steady(1), underruns=1)).meets_targets


def test_one_failed_utterance_misses_the_targets() -> None:
    run = run_of(steady(1))
    run.record.failed = 1
    assert not summarize_simultaneous_calls(run).meets_targets


def test_one_gap_at_a_phone_misses_the_targets_without_a_counted_underrun() -> None:
    late = steady(1)
    late = replace(late, arrived=np.where(np.arange(200) >= 100, late.arrived + 0.1, late.arrived))
    at_once = summarize_simultaneous_calls(run_of(late))
    assert at_once.arrival_gaps == 1
    assert at_once.late_share == pytest.approx(5 / 205)  # five slots without a packet
    assert not at_once.meets_targets


def test_late_packets_count_over_all_calls_together() -> None:
    late = steady(1)
    late.arrived[50] += 0.030
    at_once = summarize_simultaneous_calls(run_of(late, steady(2)))
    assert at_once.late_share == pytest.approx(1 / 400)
    assert at_once.max_lateness_s == pytest.approx(0.030)


def test_a_silent_call_does_not_count_as_speaking() -> None:
    at_once = summarize_simultaneous_calls(run_of(steady(1), steady(2, level=0)))
    assert (at_once.audible_calls, at_once.min_speech_share) == (1, 0.0)
    assert not at_once.meets_targets


def test_only_the_time_in_which_all_calls_were_up_counts() -> None:
    run = run_of(steady(1))
    run.traces[0].arrived[10] += 0.05
    assert summarize_simultaneous_calls(run).late_share > 0
    assert (
        summarize_simultaneous_calls(
            replace(run, phones=load_generator.PhoneLoadResult(-1.0, 100.0, 0.1))
        ).late_share
        == 0
    )  # from 1 s on


def test_calls_without_packets_miss_the_targets() -> None:
    assert not SimultaneousCalls(0.0, 0.0, 0, 0, 0.0, failed=0, calls=1, audible_calls=0).meets_targets
    assert summarize_simultaneous_calls(run_of()).late_share == 1.0


def spoken(
    number: int, clause: float, *, ended: float | None, discarded: float | None = None
) -> UtteranceTimes:
    return UtteranceTimes(CALL, number, "Well, then.", clause - 0.1, clause, clause, discarded, ended)


def burst(*starts_and_stops: tuple[float, float]) -> PacketTrace:
    """20 s of one call with noise (always the same) in the given spans, silence elsewhere."""
    pcm = np.zeros(20 * 8000, np.int16)
    noise = np.random.default_rng(3).normal(0, 3000, 8 * 8000).astype(np.int16)
    noise[0] = 3000
    for start, stop in starts_and_stops:
        pcm[round(start * 8000) : round(stop * 8000)] = noise[: round(stop * 8000) - round(start * 8000)]
    return PacketTrace.from_arrays(CALL, 8000, np.arange(1000) * 0.020, pcm.reshape(-1, 160))


def test_onsets_exclude_the_warm_up_and_unfinished_utterances() -> None:
    trace = burst((1.05, 2.0), (4.05, 5.0), (7.05, 8.0))
    notes = (spoken(-1, 1.0, ended=2.0), spoken(0, 4.0, ended=5.0), spoken(1, 7.0, ended=None))
    (onset,) = measure_onsets(run_of(trace, utterances=notes))
    assert onset.from_clause_s == pytest.approx(0.050)


def test_mean_calls_speaking_is_speech_time_over_time() -> None:
    notes = (
        spoken(0, 10.0, ended=20.0),  # ended before the count begins
        spoken(1, 15.0, ended=60.0),
        spoken(2, 60.0, ended=None),  # cut by the end of the run
        spoken(3, 20.0, ended=40.0),
    )
    assert mean_calls_speaking(notes, 100.0) == pytest.approx((40 + 40 + 20) / 80)
    assert mean_calls_speaking((), 100.0) == 0.0


def test_an_utterance_after_a_barge_in_is_compared_with_its_whole_reading() -> None:
    notes = (spoken(0, 1.0, ended=3.0), spoken(1, 5.0, ended=None, discarded=6.5))
    clean = burst((1.05, 3.0), (5.05, 6.5))
    assert count_mixed_utterances(run_of(clean, utterances=notes)) == 0
    dirty = burst((1.05, 3.0), (5.05, 6.5))
    dirty.pcm[255:300] += np.random.default_rng(4).normal(0, 3000, (45, 160)).astype(np.int16)
    assert count_mixed_utterances(run_of(dirty, utterances=notes)) == 1


# The processes


@pytest.mark.slow
def test_the_bench_runs_and_reports() -> None:
    report = measure(parts=[call.CallBenchPart.CALLS], calls=2, seconds=2.0)
    figures = {figure.name: figure.value for figure in report.figures}
    assert figures["calls speaking at once without an underrun"] in (0, 2)
    assert figures["resident memory, 2 calls"] > 50
    assert figures["packets with speech, 2 calls, quietest call"] > 5
    assert figures["processor of the phones, 2 calls"] > 0


@pytest.mark.slow
def test_a_barge_in_is_measured() -> None:
    run = run_load(LoadSetup(SpeechPattern.BARGE_IN, 2, 1, 0.0, 60.0))
    discarded = [utterance for utterance in run.utterances if utterance.discarded is not None]
    assert len(discarded) == 2
    assert count_mixed_utterances(run) == 0


@pytest.mark.slow
def test_a_gateway_that_does_not_start_ends_the_bench_with_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VIVAVOCE_NO_SUCH_KEY", "1")
    monkeypatch.setenv("VIVAVOCE_CALLS_SPEED", "7")
    monkeypatch.setattr(call, "READY_TIMEOUT_S", 900.0)
    start = time.monotonic()
    with pytest.raises(BenchFailed, match="call_server"):
        measure(parts=[call.CallBenchPart.CALLS], calls=1, seconds=1.0)
    assert time.monotonic() - start < 300  # it does not wait for READY_TIMEOUT_S


def test_resident_memory_of_this_process_is_known() -> None:
    assert resident_mb(0) == 0.0
    import os

    assert 10 < resident_mb(os.getpid()) < 10_000
