"""``bench device``: without a card it measures nothing; the measurement itself runs on the CPU."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from shared.voices.cosyvoice_bundles import write_random_bundle  # noqa: E402
from vivavoce.gateway.cli.bench import device  # noqa: E402
from vivavoce.gateway.cli.bench.bundle_weights import BenchWeights  # noqa: E402
from vivavoce.gateway.cli.bench.device import measure  # noqa: E402
from vivavoce.models.cosyvoice.device_benchmark import DeviceBenchmarkSize  # noqa: E402
from vivavoce.tts_engine.backends.voice_kind import CheckedBundle, CheckedFile, DeviceFigure  # noqa: E402
from vivavoce.tts_engine.cosyvoice import kind as cosyvoice_kind  # noqa: E402
from vivavoce.tts_engine.errors import BundleError  # noqa: E402
from vivavoce.tts_engine.xtts import kind as xtts_kind  # noqa: E402
from vivavoce.tts_engine.xtts.benchmark import XttsBenchmarkSize  # noqa: E402
from vivavoce.tts_engine.xtts.checkpoints import XttsCheckpoints  # noqa: E402


def test_without_a_card_nothing_is_measured_and_the_report_says_so() -> None:
    report = measure("cpu", BenchWeights(size="tiny"), "fp32")
    assert report.figures == ()
    assert report.settings["device"] == "no graphics card: unmeasured"


def test_an_absent_card_is_an_error() -> None:
    absent = f"cuda:{torch.cuda.device_count()}"
    with pytest.raises(BundleError, match=f"device is '{absent}'"):
        measure(absent, BenchWeights(), "fp32")


@pytest.mark.slow
@pytest.mark.parametrize("version", [2, 3])
def test_the_measurement_runs_on_a_cpu(tmp_path: Path, version: int) -> None:
    write_random_bundle(tmp_path / "bundle", version, "tiny", 7)
    size = DeviceBenchmarkSize(tokens=3, rounds=1, chunks=3)
    figures = cosyvoice_kind.measure(tmp_path / "bundle", "cpu", "fp32", size)
    assert [figure.name for figure in figures] == [
        "LM, a token of one session, context 120",
        "flow, 3 chunks of 1 s in one step",
        "flow, 3 one after another",
        "flow, one after another against in one step",
    ]
    assert all(math.isfinite(one.value) and one.value > 0 for one in figures)


def test_targets_apply_to_the_released_size(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = (DeviceFigure("token", 2.0, "ms", at_most=1.5), DeviceFigure("gain", 3.5, "x", at_least=3))
    with_card = SimpleNamespace(card_name=lambda device: "a card")
    monkeypatch.setattr(device, "random_checkpoints", lambda: with_card)
    for size_bytes, reached in ((2 * 10**9, [False, True]), (1000, [None] * 2)):
        checked = CheckedBundle(2, ("en",), (CheckedFile("llm.pt", size_bytes, ""),), "CosyVoice")
        checkpoints = SimpleNamespace(check=lambda folder, checked=checked: checked)
        kind = SimpleNamespace(checkpoints=checkpoints, measure=lambda *_: measured)
        monkeypatch.setattr(device, "find_kind", lambda folder, kind=kind: kind)
        report = measure("cuda", BenchWeights(Path("release")), "fp32")
        assert [figure.reached for figure in report.figures] == reached
        assert report.settings["device"] == "a card"


def test_a_bundle_of_xtts_is_measured_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    XttsCheckpoints().write_random(tmp_path / "bundle", 2, "tiny", 7)
    small = XttsBenchmarkSize(ids=3, sessions=2, latents=30, rounds=1)
    kind = replace(xtts_kind.XTTS, measure=partial(xtts_kind.measure, size=small))
    monkeypatch.setattr(device, "find_kind", lambda folder: kind)
    report = measure("cpu", BenchWeights(tmp_path / "bundle"), "fp32")
    assert [figure.name for figure in report.figures] == [
        "GPT, an id at context 100",
        "GPT, 2 sessions in one step against one after another",
        "first chunk of 20 ids",
        "vocoder, 30 latents at once",
        "vocoder, streamed against at once",
        "memory at its highest",
    ]
    assert all(figure.value > 0 and figure.reached is None for figure in report.figures)
    assert report.settings["device"] == "cpu"
