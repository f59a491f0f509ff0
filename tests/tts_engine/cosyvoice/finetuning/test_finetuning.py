"""A bundle is trained on recordings, evaluated, exported, and speaks with the voice by its name."""

import asyncio
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the [train] extra is not installed")
pytest.importorskip("tensorboardX", reason="the [train] extra is not installed")

from shared.training.made_up_dataset import WIDTHS  # noqa: E402
from shared.training.recorded_voice import write_recordings  # noqa: E402
from shared.voices.cosyvoice_bundles import export_bundle  # noqa: E402
from vivavoce import Engine  # noqa: E402
from vivavoce.models.bundle_files import BundleSize  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.random_bundle import write_random_bundle  # noqa: E402
from vivavoce.models.cosyvoice.config import CosyVoiceVersion  # noqa: E402
from vivavoce.models.cosyvoice.training import bundle_parts  # noqa: E402
from vivavoce.models.cosyvoice.training.loop.metrics import read_metrics  # noqa: E402
from vivavoce.tts_engine.cosyvoice.finetuning.evaluation import (  # noqa: E402
    AT_ONCE,
    PROMPTED,
    SOURCES,
    STREAMED,
    SourceFigures,
    choose_checkpoint,
    count_wrong_words,
    words_of,
)
from vivavoce.tts_engine.cosyvoice.finetuning.evaluation_run import evaluate_run  # noqa: E402
from vivavoce.tts_engine.cosyvoice.finetuning.exporting import export_runs, open_run  # noqa: E402
from vivavoce.tts_engine.cosyvoice.finetuning.preparation import prepare  # noqa: E402
from vivavoce.tts_engine.cosyvoice.finetuning.training import TrainingChoices, train  # noqa: E402
from vivavoce.tts_engine.errors import BadRequest  # noqa: E402

pytestmark = pytest.mark.usefixtures("decoded_in_this_process")

CHOICES = {"max_frames": 700, "accumulate": 1, "epochs": 2}


@pytest.fixture
def data(v2_folder: Path, tmp_path: Path) -> Path:
    write_recordings(tmp_path / "recordings", 6)
    prepare(tmp_path / "recordings", v2_folder, tmp_path / "data")
    return tmp_path / "data"


class WordlessRecogniser:
    """Hears the first word only."""

    def transcribe(self, samples: np.ndarray) -> str:
        return "The"


async def speak(bundle: Path, voice: str) -> bytes:
    engine = await Engine.open(str(bundle), warm_up=False)
    try:
        async with engine.stream(voice=voice, seed=3) as stream:
            stream.push_text("Hello.")
            stream.end_input()
            return b"".join([chunk.pcm async for chunk in stream])
    finally:
        await engine.aclose()


PARTS = ("lm", "flow", "vocoder")


def test_runs_of_all_parts_become_a_bundle_that_speaks(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_recordings(tmp_path / "recordings", 6)
    data = prepare(tmp_path / "recordings", folder, tmp_path / "data").dataset
    small = partial(bundle_parts.VocoderPart, widths=WIDTHS, crop_frames=12)
    monkeypatch.setattr(bundle_parts, "VocoderPart", small)
    choices = CHOICES | {"epochs": 1}
    finished = {part: train(data, None, tmp_path / part, TrainingChoices(part, **choices)) for part in PARTS}
    for part, one in finished.items():
        assert one.is_complete and one.curves is not None and one.curves.stat().st_size > 1000
        rows = read_metrics(tmp_path / part)
        assert [int(row["step"]) for row in rows] == list(range(1, one.place.step + 1))
        assert rows[-1]["validation_loss"]
    runs = [open_run(tmp_path / part) for part in PARTS]
    assert export_runs(runs, tmp_path / "out", "anna") == ("anna",)
    before, after = (open_bundle(one) for one in (folder, tmp_path / "out"))
    changed = {
        name: _changed(before.load(name), after.load(name)) for name in ("llm.pt", "flow.pt", "hift.pt")
    }
    assert all("proj" in key for key in changed["llm.pt"]) and changed["llm.pt"]
    last_layer = "final_proj" if after.version is CosyVoiceVersion.V2 else "proj_out"
    assert f"decoder.estimator.{last_layer}.weight" in changed["flow.pt"]
    assert "conv_post.bias" in changed["hift.pt"]
    assert set(after.speakers()) == {"anna", "nobody"}
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "6 recordings" in card and "adapters of rank 16" in card
    in_torch = asyncio.run(speak(tmp_path / "out", "anna"))
    list(export_bundle(tmp_path / "out", "fp32"))
    in_graphs = asyncio.run(speak(tmp_path / "out", "anna"))
    assert len(in_torch) == len(in_graphs) > 1000
    difference = np.subtract(*(np.frombuffer(pcm, "<i2").astype(float) for pcm in (in_torch, in_graphs)))
    assert 0 < np.abs(difference).max() < 500


def _changed(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    return {key for key, tensor in after.items() if not torch.equal(tensor, before[key])}


def test_untrained_parts_are_exported_as_they_were(v2_folder: Path, data: Path, tmp_path: Path) -> None:
    """A rate that is lost in rounding trains nothing, so that the exported weights are the base's."""
    choices = TrainingChoices("lm", whole=True, learning_rate=1e-30, max_steps=1, **CHOICES)
    train(data, None, tmp_path / "run", choices)
    export_runs([open_run(tmp_path / "run")], tmp_path / "out")
    before, after = (open_bundle(folder).load("llm.pt") for folder in (v2_folder, tmp_path / "out"))
    assert _changed(before, after) == set()
    assert before.keys() - after.keys() == {"llm.model.lm_head.weight"}


def test_the_checkpoint_is_chosen_by_what_it_says(v2_folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_recordings(tmp_path / "recordings", 6, text="The red fox.")  # random weights speak long
    prepare(tmp_path / "recordings", v2_folder, data)
    train(data, None, tmp_path / "run", TrainingChoices("lm", **CHOICES))
    done: list[tuple[int, int]] = []
    found = evaluate_run(
        tmp_path / "run",
        WordlessRecogniser(),
        sentences=1,
        choose=True,
        on_progress=lambda count, total: done.append((count, total)),
    )
    assert found is not None
    assert set(found.by_checkpoint) == {path.name for path in (tmp_path / "run/checkpoints").iterdir()}
    assert [one.source for one in found.figures] == list(SOURCES)
    assert all(one.wrong_percent == pytest.approx(100 * 2 / 3) for one in found.figures)
    assert found.figures[0].similarity > 0.99  # the recording is the speaker's own
    assert done[-1][0] == done[-1][1]
    speech = {one.source: one.samples for one in found.spoken}
    assert len(speech[STREAMED]) == len(speech[AT_ONCE])  # the same speech ids
    assert not np.array_equal(speech[STREAMED], speech[AT_ONCE])
    assert not np.array_equal(speech[STREAMED], speech[PROMPTED])
    assert open_run(tmp_path / "run").checkpoint.name == found.checkpoint


def test_words_wrong_outweigh_similarity() -> None:
    figures = {
        "first": SourceFigures("", 9.0, 0.9, 1.0),
        "second": SourceFigures("", 4.0, 0.6, 1.0),
        "third": SourceFigures("", 4.8, 0.7, 1.0),
    }
    assert choose_checkpoint(figures) == "third"


@pytest.mark.parametrize(
    ("expected", "heard", "wrong"),
    [("a b c", "a b c", 0), ("a b c", "a c", 1), ("a b", "a x b y", 2), ("a b", "", 2), ("a b c", "x y", 3)],
)
def test_wrong_words_are_the_edit_distance(expected: str, heard: str, wrong: int) -> None:
    assert count_wrong_words(expected.split(), heard.split()) == wrong


def test_ideographs_are_words() -> None:
    assert words_of("It's 你好, OK!") == ["its", "你", "好", "ok"]


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("It costs $1,234.50.", "it costs one thousand two hundred thirty four dollars and fifty cents"),
        ("There are 105 men.", "there are one hundred and five men"),
        ("2,021 of 1100", "two thousand and twenty-one of one thousand and one hundred"),
        ("On May 3rd, at 5 o'clock", "On May third at five o'clock."),
        ("二〇二四年3月", "二零二四年三月"),
    ],
)
def test_numbers_are_the_words_that_are_said(written: str, spoken: str) -> None:
    assert words_of(written) == words_of(spoken)


def test_and_between_a_number_and_a_noun_is_a_word() -> None:
    assert words_of("A hundred and the rest") == ["a", "hundred", "and", "the", "rest"]


def test_a_data_set_of_another_tokenizer_is_refused(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_random_bundle(other, CosyVoiceVersion.V2, BundleSize.TINY, seed=2)
    with pytest.raises(BadRequest, match="another bundle"):
        train(data, other, tmp_path / "run", TrainingChoices("lm"))


def test_a_learning_rate_that_destroys_networks_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="learning rate"):
        train(data, None, tmp_path / "run", TrainingChoices("flow", learning_rate=1e-3))


def test_the_vocoder_is_not_trained_in_bfloat16() -> None:
    assert TrainingChoices("lm", bf16=True).settings().bf16
    with pytest.raises(BadRequest, match="float32"):
        TrainingChoices("vocoder", bf16=True).settings()


def test_a_killed_export_leaves_no_folder_that_is_refused(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(data, None, tmp_path / "run", TrainingChoices("lm", max_steps=1, **CHOICES))
    run, out = open_run(tmp_path / "run"), tmp_path / "out"

    def fail(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:  # a killed process does not tidy up
        killed.setattr(bundle_parts, "write_weights", fail)
        killed.setattr(shutil, "rmtree", lambda *arguments, **options: None)
        with pytest.raises(KeyboardInterrupt):
            export_runs([run], out)
    assert not out.exists() and (half := [*tmp_path.glob("out*")])
    out.mkdir()
    export_runs([run], out)
    assert open_bundle(out).speakers() and not half[0].exists()


def test_the_licence_and_the_card_of_the_base_are_carried_over(
    v2_folder: Path, data: Path, tmp_path: Path
) -> None:
    base, out = tmp_path / "base", tmp_path / "out"
    shutil.copytree(v2_folder, base)
    texts = {"LICENSE": "Permission is granted.", "NOTICE.txt": "By its makers.", "README.md": "# Base"}
    for name, text in texts.items():
        (base / name).write_text(text, "utf-8")
    train(data, base, tmp_path / "run", TrainingChoices("lm", max_steps=1, **CHOICES))
    export_runs([open_run(tmp_path / "run")], out)
    found = {name: (out / name).read_text("utf-8") for name in ("LICENSE", "NOTICE.txt", "BASE_README.md")}
    assert [*found.values()] == [*texts.values()]
    card = (out / "README.md").read_text("utf-8")
    assert "Licence: that of base (LICENSE, NOTICE.txt; BASE_README.md is its own card)." in card


def test_what_a_processor_emulates_is_said_once(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False})
    notices: list[str] = []
    choices = TrainingChoices("lm", bf16=True, max_steps=2, **CHOICES)
    finished = train(data, None, tmp_path / "run", choices, device="cpu", on_notice=notices.append)
    assert finished.place.step == 2
    assert len(notices) == 1 and "emulates bfloat16" in notices[0]


def test_runs_that_do_not_belong_together_are_refused(data: Path, tmp_path: Path) -> None:
    train(data, None, tmp_path / "run", TrainingChoices("lm", max_steps=1, **CHOICES))
    run = open_run(tmp_path / "run")
    with pytest.raises(BadRequest, match="same part"):
        export_runs([run, run], tmp_path / "out")
    assert not list(tmp_path.glob("out*"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(BadRequest, match="not empty"):
        export_runs([run], tmp_path / "full")
    with pytest.raises(BadRequest, match="no checkpoint step-9"):
        open_run(tmp_path / "run", "step-9")
