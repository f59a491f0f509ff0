"""The device bench: without a card it reports so; its measurements run on the CPU."""

import math
from pathlib import Path

import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: pip install 'vivavoce[cosyvoice]'"
)

from vivavoce.gateway.cli.bench import device  # noqa: E402
from vivavoce.gateway.cli.bench.bundle_weights import BenchWeights  # noqa: E402
from vivavoce.gateway.cli.bench.device import measure  # noqa: E402
from vivavoce.tts_engine.bundles import CheckedBundle, CheckedFile, write_random_bundle  # noqa: E402
from vivavoce.tts_engine.cosyvoice.device_timings import DeviceTrialSize, Measurement, measure_device  # noqa: E402
from vivavoce.tts_engine.errors import BundleError  # noqa: E402


def test_without_a_card_nothing_is_measured_and_the_report_says_so() -> None:
    report = measure("cpu", BenchWeights(size="tiny"), "fp32")
    assert report.figures == ()
    assert report.settings["device"] == "no graphics card: unmeasured"


def test_a_missing_card_is_reported() -> None:
    absent = f"cuda:{torch.cuda.device_count()}"
    with pytest.raises(BundleError, match=f"device is '{absent}'"):
        measure(absent, BenchWeights(), "fp32")


@pytest.mark.parametrize("version", [2, 3])
def test_the_measurements_run_on_a_cpu(tmp_path: Path, version: int) -> None:
    write_random_bundle(tmp_path / "bundle", version, "tiny", 7)
    measured = list(
        measure_device(tmp_path / "bundle", "cpu", "fp32", DeviceTrialSize(tokens=3, rounds=1, chunks=3))
    )
    assert [one.name for one in measured] == [
        "LM, a token of one session, context 120",
        "flow, 3 chunks of 1 s in one step",
        "flow, 3 one after another",
        "flow, one after another against in one step",
    ]
    assert all(math.isfinite(one.value) and one.value > 0 for one in measured)


def test_targets_apply_to_the_released_size_only(monkeypatch: pytest.MonkeyPatch) -> None:
    token = Measurement("LM, a token of one session, context 120", 2.0, "ms")
    ratio = Measurement("flow, one after another against in one step", 3.5, "x")
    monkeypatch.setattr(device, "card_name_of", lambda name: "a card")
    monkeypatch.setattr(device, "measure_device", lambda *_: [token, ratio])
    for size_bytes, reached in ((2 * 10**9, [False, True]), (1000, [None, None])):
        checked = CheckedBundle(2, ("en",), (CheckedFile("llm.pt", size_bytes, ""),))
        monkeypatch.setattr(device, "check_bundle", lambda folder, checked=checked: checked)
        report = measure("cuda", BenchWeights(Path("release")), "fp32")
        assert [figure.reached for figure in report.figures] == reached
        assert report.settings["device"] == "a card"
