"""Two runs of the same input, read back from their logs, of a voice and of one with a faulty sample."""

import asyncio
import json
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from shared.engine.standin_backend import StandInBackend
from vivavoce.gateway.cli import main
from vivavoce.gateway.cli.commands.serve.log_format import JsonLineFormatter, PlainLineFormatter
from vivavoce.tts_engine.backends.base import SlotTurn, StepResult
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.records import stream_log

TEXT = "One two three. Four five six. Seven eight nine."


class FaultyBackend(StandInBackend):
    """One sample of the second piece is off by a little, if it has a fault."""

    def __init__(self, *, has_fault: bool) -> None:
        super().__init__()
        self.has_fault, self.steps = has_fault, 0

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        results = super().step(worker, turns)
        self.steps += 1
        if self.has_fault and self.steps == 3:  # the first one is the warm-up's
            for result in results:
                assert isinstance(result, StepResult)
                result.samples[7] += np.float32(0.001)
        return results


def run_to_log(
    log: Path,
    formatter: logging.Formatter,
    *,
    backend: StandInBackend | None = None,
    seed: int = 7,
    level: int = 10,
) -> Path:
    """Speak a text and write the log; return its path."""
    handler = logging.FileHandler(log)
    handler.setFormatter(formatter)
    logger = logging.getLogger(stream_log.__name__)
    logger.addHandler(handler)
    logger.setLevel(level)

    async def speak() -> None:
        async with (
            await Engine.open(backend=backend or StandInBackend()) as engine,
            engine.stream(seed=seed, trace_id="4bf9") as stream,
        ):
            stream.push_text(TEXT)
            stream.end_input()
            async for _ in stream:
                pass

    try:
        asyncio.run(speak())
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
        handler.close()
    return log


def compare(capsys: pytest.CaptureFixture[str], first: Path, second: Path) -> tuple[object, str]:
    with pytest.raises(SystemExit) as end:
        main.main(["compare-runs", str(first), str(second)])
    captured = capsys.readouterr()
    return end.value.code, captured.out + captured.err


def test_runs_of_the_same_input_are_alike_in_either_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run_to_log(tmp_path / "a.log", PlainLineFormatter())
    second = run_to_log(tmp_path / "b.log", JsonLineFormatter())
    code, printed = compare(capsys, first, second)
    assert code == 0
    assert printed.count("alike") == 2  # the warm-up's, and the text's
    assert "One two" not in first.read_text() + second.read_text()


def test_the_first_chunk_that_differs_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = PlainLineFormatter()
    first = run_to_log(tmp_path / "a.log", plain, backend=FaultyBackend(has_fault=False))
    second = run_to_log(tmp_path / "b.log", plain, backend=FaultyBackend(has_fault=True))
    records = [line.partition("chunk: ")[2] for line in first.read_text().splitlines() if "4bf9" in line]
    start = json.loads([record for record in records if record][1])["samples"][0]
    code, printed = compare(capsys, first, second)
    assert code == 1
    assert f"chunk 1, from {start / 24_000:.2f} s: sha256 " in printed


def test_another_seed_parts_the_runs_at_their_beginning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run_to_log(tmp_path / "a.log", PlainLineFormatter())
    second = run_to_log(tmp_path / "b.log", PlainLineFormatter(), seed=8)
    code, printed = compare(capsys, first, second)
    assert (code, "opened differently: seed 7 and 8" in printed) == (1, True)


def test_a_log_without_records_says_how_to_get_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    info = run_to_log(tmp_path / "a.log", PlainLineFormatter(), level=logging.INFO)
    assert '"seed": 7' in info.read_text()
    code, printed = compare(capsys, info, tmp_path / "none.log")
    assert (code, "server.log_level DEBUG" in printed) == (1, True)
    assert "none.log: No such file" in compare(capsys, tmp_path / "none.log", info)[1]


def test_streams_that_nobody_hears_are_not_logged_at_info(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with await Engine.open(backend=StandInBackend()) as engine:
            assert "opened" not in caplog.text
            async with engine.stream() as stream:
                stream.end_input()

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())
    assert caplog.text.count(" opened: {") == 1
