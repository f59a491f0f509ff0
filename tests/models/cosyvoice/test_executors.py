"""Choice of the library that executes each network, and graphs that do not belong to the bundle."""

import json
import logging
import os
import re
import shutil
from pathlib import Path

import onnx
import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from vivavoce.models.checkpoint.bundle_files import BundleSize  # noqa: E402
from vivavoce.models.checkpoint.weight_files import convert_to_safetensors  # noqa: E402
from vivavoce.models.cosyvoice import executors  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.bundle import (  # noqa: E402
    CosyVoiceBundle,
    InvalidBundleError,
    open_bundle,
)
from vivavoce.models.cosyvoice.checkpoint.random_bundle import write_random_bundle  # noqa: E402
from vivavoce.models.cosyvoice.config import TIED_KEYS, CosyVoiceVersion  # noqa: E402
from vivavoce.models.cosyvoice.executors import NetworkLoader  # noqa: E402
from vivavoce.models.cosyvoice.flow.flow import Flow  # noqa: E402
from vivavoce.models.cosyvoice.flow.policy import EXACT_POLICY, FlowPolicy  # noqa: E402
from vivavoce.models.cosyvoice.lm.speech_lm import LmNetwork, SpeechLm  # noqa: E402
from vivavoce.models.cosyvoice.networks import load_flow, load_lm, load_networks  # noqa: E402
from vivavoce.models.cosyvoice.onnx_graphs.export import export_bundle  # noqa: E402
from vivavoce.models.cosyvoice.onnx_graphs.graph_files import (  # noqa: E402
    FORMAT_KEY,
    bundle_digest,
    graph_format,
    graph_path,
)
from vivavoce.models.cosyvoice.onnx_networks.onnx_flow import OnnxFlow  # noqa: E402
from vivavoce.models.cosyvoice.onnx_networks.onnx_lm import OnnxSpeechLm  # noqa: E402
from vivavoce.models.cosyvoice.onnx_networks.onnx_vocoder import OnnxVocoder  # noqa: E402
from vivavoce.models.cosyvoice.onnx_runtime.networks import load_array_networks  # noqa: E402
from vivavoce.models.cosyvoice.vocoder.hift_v2 import HiftV2  # noqa: E402
from vivavoce.models.networks.devices import CPU  # noqa: E402
from vivavoce.models.networks.execution import DeviceError, Executor, Precision  # noqa: E402


@pytest.fixture
def bundle(tmp_path: Path) -> CosyVoiceBundle:
    write_random_bundle(tmp_path / "bundle", CosyVoiceVersion.V2, BundleSize.TINY, seed=5)
    return open_bundle(tmp_path / "bundle")


def load(
    bundle: CosyVoiceBundle,
    executor: Executor = Executor.AUTO,
    precision: Precision = Precision.FP32,
    device: "torch.device" = CPU,
) -> LmNetwork:
    loader = NetworkLoader(executor, bundle, precision, device)
    return loader.load_lm(lambda: load_lm(bundle, precision, device))


def test_torch_is_taken_where_nothing_is_exported(bundle: CosyVoiceBundle) -> None:
    assert isinstance(load(bundle), SpeechLm)
    list(export_bundle(bundle, Precision.INT8))
    assert isinstance(load(bundle), SpeechLm)  # in fp32


@pytest.mark.parametrize(("torch_ms", "kind"), [(50.0, OnnxSpeechLm), (5.0, SpeechLm)])
def test_the_faster_one_is_taken_and_remembered(
    bundle: CosyVoiceBundle,
    torch_ms: float,
    kind: type,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    list(export_bundle(bundle, Precision.INT8))
    measured: list[dict[str, LmNetwork]] = []

    def measure(lms: dict[str, LmNetwork]) -> dict[str, float]:
        measured.append(lms)
        return {"torch": torch_ms, "onnxruntime": 20.0}

    monkeypatch.setattr(executors, "measure_token_ms", measure)
    caplog.set_level(logging.INFO)
    for _ in range(2):
        assert isinstance(load(bundle, precision=Precision.INT8), kind)
    assert len(measured) == 1
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("language model in int8 on ")
    assert f"a token takes torch {torch_ms} ms, onnxruntime 20.0 ms (measured now)" in first
    assert "measured before" in second
    # Another number of threads is measured again.
    monkeypatch.setattr(torch, "get_num_threads", lambda: 61)
    load(bundle, precision=Precision.INT8)
    assert len(measured) == 2
    assert len(json.loads((bundle.folder / "onnx" / "executors.json").read_text())) == 2


@pytest.mark.parametrize(("torch_ms", "kinds"), [(50.0, (OnnxFlow, OnnxVocoder)), (5.0, (Flow, HiftV2))])
def test_flow_and_vocoder_are_chosen_as_the_language_model_is(
    bundle: CosyVoiceBundle, torch_ms: float, kinds: tuple[type, type], monkeypatch: pytest.MonkeyPatch
) -> None:
    list(export_bundle(bundle, Precision.INT8))
    for measure in ("measure_flow_ms", "measure_vocoder_ms"):
        monkeypatch.setattr(executors, measure, lambda _: {"torch": torch_ms, "onnxruntime": 20.0})
    for _ in range(2):
        networks = load_networks(bundle, executor=Executor.AUTO)
        assert isinstance(networks.lm, SpeechLm)  # exported in another precision only
        assert (type(networks.flow), type(networks.vocoder)) == kinds
    with_torch = load_networks(bundle, executor=Executor.TORCH)
    assert (type(with_torch.flow), type(with_torch.vocoder)) == (Flow, HiftV2)
    with_onnx = load_networks(bundle, precision=Precision.INT8, executor=Executor.ONNXRUNTIME)
    assert (type(with_onnx.flow), type(with_onnx.vocoder)) == (OnnxFlow, OnnxVocoder)


def test_a_memory_that_the_graphs_cannot_keep_is_left_to_torch(bundle: CosyVoiceBundle) -> None:
    list(export_bundle(bundle, Precision.FP32))
    window = FlowPolicy(window_frames=100)
    assert isinstance(load_networks(bundle, window, executor=Executor.ONNXRUNTIME).flow, Flow)
    with pytest.raises(ValueError, match="the exported graphs keep all keys and values in float32"):
        OnnxFlow.load(bundle, window)


def test_both_are_measured(bundle: CosyVoiceBundle) -> None:
    list(export_bundle(bundle, Precision.FP32))
    (bundle.folder / "onnx" / "executors.json").write_text("[1]")  # damaged
    load_networks(bundle, executor=Executor.AUTO)
    measured = json.loads((bundle.folder / "onnx" / "executors.json").read_text())
    assert [key.partition(",")[0] for key in measured] == ["language model", "flow", "vocoder"]
    for times in measured.values():
        assert set(times) == {"torch", "onnxruntime"}
        assert all(0 < ms < 60_000 for ms in times.values())


def test_the_digest_is_of_the_weights_not_of_their_file(bundle: CosyVoiceBundle, tmp_path: Path) -> None:
    digest = bundle_digest(bundle)
    for name in ("llm.pt", "flow.pt", "hift.pt"):
        convert_to_safetensors(bundle.folder / name, TIED_KEYS)
        (bundle.folder / name).unlink()
    assert bundle_digest(open_bundle(bundle.folder)) == digest
    write_random_bundle(tmp_path / "other", CosyVoiceVersion.V2, BundleSize.TINY, seed=6)
    assert bundle_digest(open_bundle(tmp_path / "other")) != digest


def test_graphs_of_other_weights_are_refused(bundle: CosyVoiceBundle, tmp_path: Path) -> None:
    list(export_bundle(bundle, Precision.INT4))
    write_random_bundle(tmp_path / "other", CosyVoiceVersion.V2, BundleSize.TINY, seed=6)
    shutil.copytree(bundle.folder / "onnx", tmp_path / "other" / "onnx")
    with pytest.raises(InvalidBundleError, match=r"made from other weights.*run vivavoce bundle export"):
        load(open_bundle(tmp_path / "other"), precision=Precision.INT4)


@pytest.mark.parametrize("version", ["1", None])  # graphs of the first format have no number
def test_a_graph_of_another_format_is_refused(
    bundle: CosyVoiceBundle, version: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    list(export_bundle(bundle, Precision.INT4_INT8))
    path = graph_path(bundle, "flow_step", "int8")
    model = onnx.load(path, load_external_data=False)
    (number,) = (prop for prop in model.metadata_props if prop.key == FORMAT_KEY)
    assert number.value == graph_format(path) == "2"
    number.value = version or number.value
    if version is None:
        model.metadata_props.remove(number)
    onnx.save(model, path)
    sentence = (
        "flow_step.int8.onnx: exported in the format 1, expected 2; "
        f"run vivavoce bundle export {bundle.folder} --to onnx --precision int4-int8"
    )
    with pytest.raises(InvalidBundleError, match=f"{re.escape(sentence)}$"):
        load_array_networks(bundle, EXACT_POLICY, Precision.INT4_INT8)


@pytest.mark.parametrize("name", ["lm_step.int4.onnx", "lm_step.int4.onnx.data"])
def test_a_damaged_graph_is_refused_with_its_remedy(bundle: CosyVoiceBundle, name: str) -> None:
    list(export_bundle(bundle, Precision.INT4))
    damaged = bundle.folder / "onnx" / name
    os.truncate(damaged, damaged.stat().st_size // 2)
    with pytest.raises(InvalidBundleError, match=r"lm_step\.int4\.onnx: .*run vivavoce bundle export"):
        load(bundle, precision=Precision.INT4)
    damaged.unlink()
    with pytest.raises(InvalidBundleError, match=r"lm_step\.int4\.onnx: .*run vivavoce bundle export"):
        load(bundle, precision=Precision.INT4)


@pytest.mark.parametrize("name", ["flow_encoder.onnx.data", "flow_step.onnx", "vocoder.onnx"])
def test_damaged_and_foreign_graphs_of_flow_and_vocoder_are_refused(
    bundle: CosyVoiceBundle, name: str, tmp_path: Path
) -> None:
    list(export_bundle(bundle, Precision.FP32))
    damaged, graph = bundle.folder / "onnx" / name, name.removesuffix(".data")
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidBundleError, match=rf"{graph}: .*run vivavoce bundle export"):
        load_networks(bundle, executor=Executor.ONNXRUNTIME)
    damaged.write_bytes(whole)
    write_random_bundle(tmp_path / "other", CosyVoiceVersion.V2, BundleSize.TINY, seed=6)
    other = open_bundle(tmp_path / "other")
    list(export_bundle(other, Precision.FP32))
    for file in (bundle.folder / "onnx").glob(f"{graph}*"):
        shutil.copy(file, other.folder / "onnx")
    with pytest.raises(InvalidBundleError, match=rf"{graph}: made from other weights"):
        load_networks(other, executor=Executor.ONNXRUNTIME)


def test_what_an_executor_lacks_is_refused_in_a_sentence(bundle: CosyVoiceBundle) -> None:
    with pytest.raises(InvalidBundleError, match="missing; run vivavoce bundle export"):
        load(bundle, Executor.ONNXRUNTIME)
    with pytest.raises(DeviceError, match="has fp32, int8, int4, int4-int8, and the precision is bf16"):
        load(bundle, Executor.ONNXRUNTIME, Precision.BF16)
    with pytest.raises(DeviceError, match="for a CPU, and the device is cuda"):
        load(bundle, Executor.ONNXRUNTIME, device=torch.device("cuda"))
    with pytest.raises(DeviceError, match="tensorrt is for a graphics card, and the device is cpu"):
        load(bundle, Executor.TENSORRT)
    with pytest.raises(DeviceError, match="the executor tensorrt needs NVIDIA's package"):
        NetworkLoader(Executor.TENSORRT, bundle, Precision.FP32, torch.device("cuda")).load_flow(
            None, lambda: load_flow(bundle)
        )
    with pytest.raises(DeviceError, match="int4 needs the executor onnxruntime"):
        load(bundle, Executor.TORCH, Precision.INT4)
    with pytest.raises(DeviceError, match="int4-int8 needs the executor onnxruntime on a CPU"):
        load(bundle, Executor.TORCH, Precision.INT4_INT8)
