"""Choice of the library that executes each network, and graphs that do not belong to the bundle."""

import logging
import os
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import onnx
import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from vivavoce.models.bundle_files import BundleSize  # noqa: E402
from vivavoce.models.checkpoint.weight_files import convert_to_safetensors  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.bundle import (  # noqa: E402
    CosyVoiceBundle,
    InvalidBundleError,
    open_bundle,
)
from vivavoce.models.cosyvoice.checkpoint.random_bundle import write_random_bundle  # noqa: E402
from vivavoce.models.cosyvoice.config import TIED_KEYS, CosyVoiceVersion  # noqa: E402
from vivavoce.models.cosyvoice.executors import choose_executor  # noqa: E402
from vivavoce.models.cosyvoice.flow.policy import EXACT_POLICY, FlowPolicy  # noqa: E402
from vivavoce.models.cosyvoice.networks import load_lm  # noqa: E402
from vivavoce.models.cosyvoice.onnx_graphs.export import export_bundle  # noqa: E402
from vivavoce.models.cosyvoice.onnx_graphs.graph_files import (  # noqa: E402
    FORMAT_KEY,
    bundle_digest,
    graph_format,
    graph_path,
)
from vivavoce.models.cosyvoice.onnx_runtime.networks import (  # noqa: E402
    load_array_lm,
    load_array_render_networks,
)
from vivavoce.models.cosyvoice.tensorrt_engines.networks import load_engines  # noqa: E402
from vivavoce.models.devices.execution import DeviceError, Executor, Precision  # noqa: E402
from vivavoce.models.devices.torch_devices import CPU  # noqa: E402

Exports = Callable[[int, Precision], Path]


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Exports:
    """The folder of a bundle of a seed with its graphs in a precision, which is exported once."""

    @cache
    def export(seed: int, precision: Precision) -> Path:
        folder = tmp_path_factory.mktemp("exports") / "bundle"
        write_random_bundle(folder, CosyVoiceVersion.V2, BundleSize.TINY, seed)
        list(export_bundle(open_bundle(folder), precision))
        return folder

    return export


def copied(folder: Path, target: Path) -> CosyVoiceBundle:
    return open_bundle(Path(shutil.copytree(folder, target)))


@pytest.fixture
def bundle(tmp_path: Path) -> CosyVoiceBundle:
    write_random_bundle(tmp_path / "bundle", CosyVoiceVersion.V2, BundleSize.TINY, seed=5)
    return open_bundle(tmp_path / "bundle")


def choose(
    bundle: CosyVoiceBundle,
    precision: Precision = Precision.FP32,
    policy: FlowPolicy = EXACT_POLICY,
    *,
    executor: Executor = Executor.AUTO,
    is_on_cpu: bool = True,
) -> Executor:
    return choose_executor(executor, bundle, policy, precision, is_on_cpu=is_on_cpu)


def test_torch_is_taken_where_nothing_is_exported_with_a_line_that_says_how(
    bundle: CosyVoiceBundle, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    list(export_bundle(bundle, Precision.INT8))
    assert choose(bundle) is Executor.TORCH
    (line,) = caplog.messages
    assert line.endswith(f"vivavoce bundle export {bundle.folder} --to onnx --precision fp32")


def test_exported_graphs_are_taken_on_a_processor(bundle: CosyVoiceBundle) -> None:
    list(export_bundle(bundle, Precision.INT8))
    assert choose(bundle, Precision.INT8) is Executor.ONNXRUNTIME
    assert choose(bundle, Precision.INT8, is_on_cpu=False) is Executor.TORCH
    assert choose(bundle, Precision.INT8, executor=Executor.TORCH) is Executor.TORCH
    assert choose(bundle, Precision.BF16) is Executor.TORCH  # no graphs have it
    assert choose(bundle, Precision.INT4_INT8) is Executor.ONNXRUNTIME  # only graphs have it


def test_a_memory_that_the_graphs_cannot_keep_is_left_to_torch(bundle: CosyVoiceBundle) -> None:
    list(export_bundle(bundle, Precision.FP32))
    window = FlowPolicy(window_frames=100)
    assert choose(bundle, policy=window) is Executor.TORCH
    with pytest.raises(DeviceError, match="the exported graphs keep all keys and values in float32"):
        choose(bundle, policy=window, executor=Executor.ONNXRUNTIME)


def test_the_digest_is_of_the_weights_not_of_their_file(bundle: CosyVoiceBundle, tmp_path: Path) -> None:
    digest = bundle_digest(bundle)
    for name in ("llm.pt", "flow.pt", "hift.pt"):
        convert_to_safetensors(bundle.folder / name, TIED_KEYS)
        (bundle.folder / name).unlink()
    assert bundle_digest(open_bundle(bundle.folder)) == digest
    write_random_bundle(tmp_path / "other", CosyVoiceVersion.V2, BundleSize.TINY, seed=6)
    assert bundle_digest(open_bundle(tmp_path / "other")) != digest


def test_graphs_of_other_weights_are_refused(exports: Exports, tmp_path: Path) -> None:
    write_random_bundle(tmp_path / "other", CosyVoiceVersion.V2, BundleSize.TINY, seed=6)
    shutil.copytree(exports(5, Precision.INT4) / "onnx", tmp_path / "other" / "onnx")
    with pytest.raises(InvalidBundleError, match=r"made from other weights.*run vivavoce bundle export"):
        load_array_lm(open_bundle(tmp_path / "other"), Precision.INT4)


@pytest.mark.parametrize("version", ["1", None])  # graphs of the first format have no number
def test_a_graph_of_another_format_is_refused(exports: Exports, version: str | None, tmp_path: Path) -> None:
    bundle = copied(exports(5, Precision.INT4_INT8), tmp_path / "bundle")
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
        load_array_render_networks(bundle, EXACT_POLICY, Precision.INT4_INT8)


@pytest.mark.parametrize("name", ["lm_step.int4.onnx", "lm_step.int4.onnx.data"])
def test_a_damaged_graph_is_refused_with_its_remedy(exports: Exports, name: str, tmp_path: Path) -> None:
    bundle = copied(exports(5, Precision.INT4), tmp_path / "bundle")
    damaged = bundle.folder / "onnx" / name
    os.truncate(damaged, damaged.stat().st_size // 2)
    with pytest.raises(InvalidBundleError, match=r"lm_step\.int4\.onnx: .*run vivavoce bundle export"):
        load_array_lm(bundle, Precision.INT4)
    damaged.unlink()
    with pytest.raises(InvalidBundleError, match=r"lm_step\.int4\.onnx: .*run vivavoce bundle export"):
        load_array_lm(bundle, Precision.INT4)


@pytest.mark.parametrize("name", ["flow_encoder.onnx.data", "flow_step.onnx", "vocoder.onnx"])
def test_damaged_and_foreign_graphs_of_flow_and_vocoder_are_refused(
    exports: Exports, name: str, tmp_path: Path
) -> None:
    bundle, other = (copied(exports(seed, Precision.FP32), tmp_path / str(seed)) for seed in (5, 6))
    damaged, graph = bundle.folder / "onnx" / name, name.removesuffix(".data")
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidBundleError, match=rf"{graph}: .*run vivavoce bundle export"):
        load_array_render_networks(bundle, EXACT_POLICY, Precision.FP32)
    damaged.write_bytes(whole)
    for file in (bundle.folder / "onnx").glob(f"{graph}*"):
        shutil.copy(file, other.folder / "onnx")
    with pytest.raises(InvalidBundleError, match=rf"{graph}: made from other weights"):
        load_array_render_networks(other, EXACT_POLICY, Precision.FP32)


def test_what_an_executor_lacks_is_refused_in_a_sentence(bundle: CosyVoiceBundle) -> None:
    with pytest.raises(InvalidBundleError, match="missing; run vivavoce bundle export"):
        load_array_lm(bundle, Precision.FP32)
    with pytest.raises(DeviceError, match="has fp32, int8, int4, int4-int8, and the precision is bf16"):
        load_array_lm(bundle, Precision.BF16)
    with pytest.raises(DeviceError, match="tensorrt is for a graphics card, and the device is cpu"):
        load_engines(bundle, Precision.FP32, CPU)
    with pytest.raises(DeviceError, match="the executor tensorrt needs NVIDIA's package"):
        load_engines(bundle, Precision.FP32, torch.device("cuda"))
    for precision in (Precision.INT4, Precision.INT4_INT8):
        with pytest.raises(DeviceError, match=f"{precision} needs the executor onnxruntime"):
            load_lm(bundle, precision)
