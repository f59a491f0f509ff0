"""``vivavoce finetune``: each command says what it did and names the next one; faults are one sentence."""

import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the [train] extra is not installed")
pytest.importorskip("tensorboardX", reason="the [train] extra is not installed")

from shared.training.recorded_voice import write_recordings
from shared.voices.cosyvoice_bundles import write_random_bundle
from shared.voices.tiny_cosyvoice import BRIEF
from vivavoce.gateway.cli.finetune.commands import _progress
from vivavoce.gateway.cli.main import main
from vivavoce.models.cosyvoice.training.dataset import DatasetWriter, PreparedUtterance
from vivavoce.models.cosyvoice.training.loop.metrics import TrainingMetrics
from vivavoce.models.cosyvoice.training.loop.trainer import TrainingStep
from vivavoce.tts_engine.cosyvoice import policy
from vivavoce.tts_engine.cosyvoice.finetuning import evaluation
from vivavoce.tts_engine.cosyvoice.finetuning.evaluation import SOURCES
from vivavoce.tts_engine.engine import Engine

pytestmark = pytest.mark.usefixtures("decoded_in_this_process")


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([*map(str, arguments)])
    return int(ended.value.code or 0)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    write_random_bundle(tmp_path / "bundle", 2, "tiny", 1)
    return tmp_path / "bundle"


def test_recordings_become_a_bundle_command_by_command(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recordings, data, lm, voice = (tmp_path / name for name in ("recordings", "data", "data-lm", "voice"))
    write_recordings(recordings, 4)
    (recordings / "alone.wav").write_bytes(b"")
    assert run("finetune", "prepare", recordings, "--bundle", bundle, "--out", data) == 0
    said = capsys.readouterr()
    assert "left out: alone.wav: no transcript\n4 recordings kept, 0.2 minutes, 4 of them new" in said.out
    assert f"Next: vivavoce finetune train {data} --part lm --out {lm}\n" in said.out
    assert "Less than 30 minutes" in said.err
    page = (data / "report.html").read_text("utf-8")
    assert "alone.wav" in page and page.count("<svg") == 2
    assert run("finetune", "prepare", recordings, "--bundle", bundle, "--out", data) == 0
    assert "0 of them new" in capsys.readouterr().out
    assert (data / "report.html").read_text("utf-8") == page  # lengths and levels of all

    assert run("finetune", "train", data, "--part", "lm", "--out", lm, "--epochs", 1) == 0
    said = capsys.readouterr()
    assert "steps, validation loss" in said.out and f"Next: vivavoce finetune evaluate {lm}" in said.out

    assert run("finetune", "export", lm, "--out", voice, "--voice", "anna") == 0
    said = capsys.readouterr()
    assert f"{voice}: a bundle with the voice anna\n" in said.out
    assert "anna" in said.out.splitlines()[-1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_command_with_what_is_done_on_file(
    number: signal.Signals,
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    recordings, data, lm = (tmp_path / name for name in ("recordings", "data", "data-lm"))
    write_recordings(recordings, 4, seconds=1.0, text="The fox.")
    handler = signal.getsignal(number)
    add, write_metrics = DatasetWriter.add, TrainingMetrics.add

    def add_and_signal(writer: DatasetWriter, utterance: PreparedUtterance) -> None:
        add(writer, utterance)
        signal.raise_signal(number)

    def write_and_signal(metrics: TrainingMetrics, step: TrainingStep) -> None:
        write_metrics(metrics, step)
        signal.raise_signal(number)

    with monkeypatch.context() as during:
        during.setattr(DatasetWriter, "add", add_and_signal)
        assert run("finetune", "prepare", recordings, "--bundle", bundle, "--out", data) == 0
    said = capsys.readouterr().out
    assert "1 recordings kept" in said and said.endswith("Interrupted; the same command continues.\n")
    assert run("finetune", "prepare", recordings, "--bundle", bundle, "--out", data) == 0
    assert "4 recordings kept" in (said := capsys.readouterr().out) and "3 of them new" in said

    monkeypatch.setattr(TrainingMetrics, "add", write_and_signal)
    assert run("finetune", "train", data, "--part", "lm", "--out", lm, "--max-steps", 3) == 0
    assert capsys.readouterr().out.endswith("Interrupted; the same command continues.\n")
    assert [path.name for path in (lm / "checkpoints").iterdir()] == ["step-00000001"]
    assert signal.getsignal(number) == handler


@pytest.mark.parametrize(("rank", "is_drawn"), [("0", True), ("1", False), (None, True)])
def test_a_bar_is_drawn_by_the_first_process(
    rank: str | None, is_drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if rank:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "run")
        monkeypatch.setenv("RANK", rank)
    with _progress("training") as progress:
        assert progress.disable is not is_drawn


class FirstWordRecogniser:
    """Hears the first word only, and calls ``on_transcribe`` before."""

    on_transcribe: Callable[[int], None] = staticmethod(lambda count: None)

    def __init__(self, whisper: Path | None, language: str | None) -> None:
        self.count = 0

    def transcribe(self, samples: np.ndarray) -> str:
        self.count += 1
        self.on_transcribe(self.count)
        return "The"


@pytest.fixture
def trained(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of one step; a made-up recogniser judges it, and its sentences are brief."""
    monkeypatch.setattr(policy, "policy_for", lambda *arguments: BRIEF)
    monkeypatch.setattr("vivavoce.gateway.transcription.WhisperRecogniser", FirstWordRecogniser)
    recordings, data, lm = (tmp_path / name for name in ("recordings", "data", "data-lm"))
    write_recordings(recordings, 3, text="The red fox.")
    assert run("finetune", "prepare", recordings, "--bundle", bundle, "--out", data) == 0
    assert run("finetune", "train", data, "--part", "lm", "--out", lm, "--max-steps", 1) == 0
    return lm


def test_an_evaluation_is_a_page_a_table_and_a_part_of_the_card(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run("finetune", "evaluate", trained, "--sentences", 1, "--choose") == 0
    *figures, closing, following = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"step-00000001: 66\.7 % of the words wrong, similarity -?\d\.\d{3} \*", figures[0])
    assert [line[:22].strip() for line in figures[1:]] == list(SOURCES)
    assert all(re.search(r" 66\.7 % wrong   similarity -?\d\.\d{3}$", line) for line in figures[1:])
    assert closing == f"step-00000001; every sentence to hear in {trained / 'evaluation.html'}"
    assert following == f"Next: vivavoce finetune export {trained} --out my-voice --voice NAME"

    page = (trained / "evaluation.html").read_text("utf-8")
    assert page.count("<audio controls src='data:audio/wav;base64,UklGR") == len(SOURCES)
    assert all(f"<td>{source}</td><td class=number>66.7</td>" in page for source in SOURCES)
    assert "<td>The red fox.</td>" in page and page.count("<small>The</small>") == len(SOURCES)

    table = (trained / "evaluation.md").read_text("utf-8")
    assert table.startswith("1 held-out sentences:\n") and table.count("| 66.7 |") == len(SOURCES)
    assert run("finetune", "export", trained, "--out", tmp_path / "voice") == 0
    assert table.strip() in (tmp_path / "voice/README.md").read_text("utf-8")


def test_an_interrupted_evaluation_speaks_what_is_left(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    handler, speak = signal.getsignal(signal.SIGINT), evaluation._speak
    spoken: list[str] = []

    async def count(engine: Engine, text: str, *options: Any, **more: Any) -> Any:
        spoken.append(text)
        return await speak(engine, text, *options, **more)

    def interrupt(count: int) -> None:
        if count == 3:  # the recording, the streamed sentence, and the one that is rendered at once
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(evaluation, "_speak", count)
    with monkeypatch.context() as during:
        during.setattr(FirstWordRecogniser, "on_transcribe", staticmethod(interrupt))
        assert run("finetune", "evaluate", trained, "--sentences", 1, "--without-base") == 0
    assert capsys.readouterr().out.endswith("Interrupted; the same command continues.\n")
    assert len(spoken) == 2 and not (trained / "evaluation.html").exists()
    assert run("finetune", "evaluate", trained, "--sentences", 1, "--without-base") == 0
    assert len(spoken) == 3 and (trained / "evaluation.html").exists()
    assert signal.getsignal(signal.SIGINT) == handler


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("prepare EMPTY --bundle BUNDLE --out DATA", "no recording with a transcript"),
        ("prepare EMPTY --bundle EMPTY --out DATA", "no recording with a transcript"),
        ("train EMPTY --part lm --out RUN", "no data set; run vivavoce finetune prepare first"),
        ("export EMPTY --out RUN", "no training run"),
    ],
)
def test_faults_are_one_sentence(
    bundle: Path, tmp_path: Path, command: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "EMPTY").mkdir()
    places = {name: str(tmp_path / name) for name in ("EMPTY", "DATA", "RUN")} | {"BUNDLE": str(bundle)}
    assert run("finetune", *(places.get(word, word) for word in command.split())) == 1
    said = capsys.readouterr().err
    assert said.strip().splitlines()[-1].startswith("vivavoce: ") and sentence in said


def test_a_bundle_without_its_tokenizer_is_named(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_recordings(tmp_path / "recordings", 2)
    (bundle / "speech_tokenizer_v2.onnx").unlink()
    assert (
        run("finetune", "prepare", tmp_path / "recordings", "--bundle", bundle, "--out", tmp_path / "d") == 1
    )
    assert "speech_tokenizer_v2.onnx" in capsys.readouterr().err


def test_without_the_extra_the_command_that_adds_it_is_printed(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_recordings(tmp_path / "recordings", 2)
    data = tmp_path / "data"
    assert run("finetune", "prepare", tmp_path / "recordings", "--bundle", bundle, "--out", data) == 0
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    assert run("finetune", "train", data, "--part", "lm", "--out", tmp_path / "run") == 1
    assert "needs the extra 'train'" in capsys.readouterr().err
