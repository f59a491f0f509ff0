"""Flow and vocoder through a stand-in of TensorRT: as in ONNX Runtime; engines kept, refitted and rebuilt."""

import logging
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from shared.runtimes.onnx_flow import OnnxFlow  # noqa: E402
from shared.runtimes.onnx_vocoder import OnnxVocoder  # noqa: E402
from shared.runtimes.simulated_tensorrt import SimulatedTensorrt  # noqa: E402
from vivavoce.models.bundle_files import BundleSize  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.bundle import CosyVoiceBundle, open_bundle  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.random_bundle import write_random_bundle  # noqa: E402
from vivavoce.models.cosyvoice.config import CosyVoiceVersion  # noqa: E402
from vivavoce.models.cosyvoice.flow.policy import EXACT_POLICY  # noqa: E402
from vivavoce.models.cosyvoice.flow.state import FlowChunk  # noqa: E402
from vivavoce.models.cosyvoice.flow.streaming_flow import StreamingFlow  # noqa: E402
from vivavoce.models.cosyvoice.onnx_graphs.export import export_bundle  # noqa: E402
from vivavoce.models.cosyvoice.onnx_runtime.networks import ArrayRenderNetworks, load_array_render_networks  # noqa: E402
from vivavoce.models.cosyvoice.tensorrt_engines.networks import EngineLoader  # noqa: E402
from vivavoce.models.cosyvoice.tensorrt_engines.typed_graph import write_typed_graph  # noqa: E402
from vivavoce.models.devices.execution import DeviceError, Precision  # noqa: E402
from vivavoce.models.devices.torch_devices import CPU  # noqa: E402

EDGES = (0, 75, 100, 150, 157)  # ids: a prompt, then chunks as a listener gets them


@pytest.fixture(scope="module", params=list(CosyVoiceVersion), ids=lambda version: f"v{version.value}")
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CosyVoiceBundle:
    return export(tmp_path_factory.mktemp("engines") / "bundle", request.param)


@pytest.fixture(scope="module")
def without_engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("exported") / "bundle", CosyVoiceVersion.V2).folder


@pytest.fixture
def bundle(without_engines: Path, tmp_path: Path) -> CosyVoiceBundle:
    return open_bundle(Path(shutil.copytree(without_engines, tmp_path / "bundle")))


def export(folder: Path, version: CosyVoiceVersion, seed: int = 5) -> CosyVoiceBundle:
    write_random_bundle(folder, version, BundleSize.TINY, seed)
    bundle = open_bundle(folder)
    list(export_bundle(bundle, Precision.FP32))
    return bundle


def load_flow(
    bundle: CosyVoiceBundle, module: SimulatedTensorrt, precision: Precision = Precision.FP32
) -> OnnxFlow:
    return OnnxFlow(EngineLoader(module, bundle, precision, CPU).load_flow())


@torch.inference_mode()
def speak(flow: StreamingFlow) -> "torch.Tensor":
    generator, total = torch.Generator().manual_seed(1), EDGES[-1]
    ids = torch.randint(100, (1, total), generator=generator)
    mel = torch.randn(1, 80, 2 * total, generator=generator)
    state = flow.init_state(flow.project_speaker(torch.ones(1, 192)), 200)
    mels = []
    for begin, end in pairwise(EDGES):
        future = ids[:, end : end + (0 if end == total else 3)]
        chunk = FlowChunk(ids[:, begin:end], future, mel[..., 2 * begin : 2 * end])
        made, state = flow.step(chunk, state)
        mels.append(made)
    return torch.cat(mels, 2)


@torch.inference_mode()
def vocode(vocoder: OnnxVocoder) -> "torch.Tensor":
    mel = torch.randn(1, 80, 200, generator=torch.Generator().manual_seed(2))
    state, pieces = vocoder.init_state(1), []
    for begin, end in pairwise((0, 44, 144, 200)):
        last = end == 200
        count = vocoder.noise_samples(end - begin, state, last=last)
        noise = torch.rand(1, count, vocoder.config.sine_count, generator=torch.Generator().manual_seed(end))
        if last:
            pieces.append(vocoder.finish(mel[..., begin:end], noise, state))
        else:
            samples, state = vocoder.step(mel[..., begin:end], noise, state)
            pieces.append(samples)
    return torch.cat(pieces, 1)


def test_engines_give_what_onnx_runtime_gives(exported: CosyVoiceBundle) -> None:
    loader = EngineLoader(SimulatedTensorrt(), exported, Precision.FP32, CPU)
    expected = speak(OnnxFlow.load(exported))
    torch.testing.assert_close(speak(OnnxFlow(loader.load_flow())), expected, atol=1e-4, rtol=0)
    # The f0 predictor computes in float32 instead of float64.
    expected = vocode(OnnxVocoder.load(exported))
    torch.testing.assert_close(vocode(OnnxVocoder(loader.load_vocoder())), expected, atol=5e-3, rtol=0)


def test_both_libraries_render_a_sentence_through_the_same_arrays(exported: CosyVoiceBundle) -> None:
    engines = EngineLoader(SimulatedTensorrt(), exported, Precision.FP32, CPU).load()
    assert engines.free_card_bytes is not None and engines.free_card_bytes() > 0
    expected = render(load_array_render_networks(exported, EXACT_POLICY, Precision.FP32))
    np.testing.assert_allclose(render(engines), expected, atol=5e-3)


def render(networks: ArrayRenderNetworks) -> "np.ndarray":
    """Samples of a sentence behind a voice of two blocks, whose memory grows after each chunk."""
    generator, flow = np.random.default_rng(1), networks.flow
    ids = generator.integers(100, size=53 + 107)
    voice = flow.prefill(np.ones(192, np.float32), ids[:53], generator.random((80, 106), np.float32))
    assert voice.frames == 100
    state, stream = flow.copy_for_utterance(voice, voice.frames), networks.vocoder.open_stream(generator)
    samples = []
    for begin, end in pairwise((50, 75, 125, 160)):
        last = end == 160
        mel, state = flow.step(
            ids[begin:end],
            ids[end : end + 3 * (not last)],
            np.zeros((80, 2 * (end - begin)), np.float32),
            state,
        )
        samples.append(stream.render(mel, stream.draw_noise(mel.shape[1], last=last), last=last))
    return np.concatenate(samples)


def test_products_in_fp16_stay_near(exported: CosyVoiceBundle) -> None:
    exact = speak(OnnxFlow.load(exported))
    error = (speak(load_flow(exported, SimulatedTensorrt(), Precision.FP16)) - exact).square().mean().sqrt()
    assert 1e-6 < error / exact.square().mean().sqrt() < 0.01


def test_products_take_16_bits_and_everything_between_them_32(
    bundle: CosyVoiceBundle, tmp_path: Path
) -> None:

    write_typed_graph(bundle.folder / "onnx" / "flow_step.onnx", tmp_path / "typed.onnx", Precision.BF16)
    onnx.checker.check_model(str(tmp_path / "typed.onnx"), full_check=True)
    graph = onnx.load(tmp_path / "typed.onnx").graph
    narrow = {tensor.name for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.BFLOAT16}
    narrow |= {node.output[0] for node in graph.node if node.op_type == "Cast" and node.attribute[0].i == 16}
    for node in graph.node:
        is_product = node.op_type in ("MatMul", "Attention")
        assert all((name in narrow) == is_product for name in node.input if name) or node.op_type == "Cast"
    with pytest.raises(DeviceError, match="has fp32, bf16, fp16, and the precision is int8"):
        write_typed_graph(bundle.folder / "onnx" / "flow_step.onnx", tmp_path / "x.onnx", Precision.INT8)


def test_an_engine_is_built_once_for_a_card_and_a_version(
    bundle: CosyVoiceBundle, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for module, builds in (
        (SimulatedTensorrt(), 3),
        (SimulatedTensorrt(), 0),
        (SimulatedTensorrt("12.0"), 3),
    ):
        caplog.clear()
        load_flow(bundle, module)
        assert sum(line.startswith("built") for line in module.log) == builds
        assert len(caplog.messages) == builds
    assert "built by another version of TensorRT (11.4.0.106, expected 12.0)" in caplog.messages[0]
    # The second engine of a loader is built with what was measured for the first.
    assert [line for line in module.log if line.startswith("timings")] == ["timings of 8 bytes"] * 3


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("truncated", "truncated: "),
        ("damaged", "damaged: its digest differs"),
        ("no header", "not readable"),
        ("unreadable", "not readable ('bytes')"),
    ],
)
def test_an_engine_that_is_damaged_is_built_again_with_one_line(
    bundle: CosyVoiceBundle, fault: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    load_flow(bundle, SimulatedTensorrt())
    path = bundle.folder / "onnx" / "tensorrt" / "flow_step.fp32.engine"
    whole = path.read_bytes()
    header = whole[: whole.index(b"\n") + 1]
    damaged = {
        "truncated": whole[:-5],
        "damaged": whole[:-5] + b"\0\0\0\0\0",
        "no header": b"\xff\xfe",
        "unreadable": header.replace(b'"bytes"', b'"size"') + whole[len(header) :],
    }
    path.write_bytes(damaged[fault])
    caplog.set_level(logging.INFO)
    module = SimulatedTensorrt()
    load_flow(bundle, module)
    assert [line for line in module.log if line.startswith("built")] == ["built flow_step.fp32.onnx"]
    (line,) = caplog.messages
    assert reason in line and line.endswith("it is built, which takes minutes")
    assert path.read_bytes() == whole


def test_a_fine_tune_refits_the_engine(bundle: CosyVoiceBundle, tmp_path: Path) -> None:
    load_flow(bundle, SimulatedTensorrt())
    tuned = export(tmp_path / "tuned", CosyVoiceVersion.V2, seed=6)
    shutil.copytree(bundle.folder / "onnx" / "tensorrt", tuned.folder / "onnx" / "tensorrt")
    module = SimulatedTensorrt()
    flow = load_flow(tuned, module)
    assert [line for line in module.log if line.startswith("built")] == []
    assert sum(line.startswith("refitted") for line in module.log) == 3
    torch.testing.assert_close(speak(flow), speak(OnnxFlow.load(tuned)), atol=1e-4, rtol=0)


def test_what_no_engine_was_built_for_is_refused_with_its_sizes(bundle: CosyVoiceBundle) -> None:
    flow = load_flow(bundle, SimulatedTensorrt())
    state = flow.init_state(torch.ones(5, 80), 100)
    chunk = FlowChunk(
        torch.zeros(5, 25, dtype=torch.int64), torch.zeros(5, 0, dtype=torch.int64), torch.zeros(5, 80, 50)
    )
    with pytest.raises(ValueError, match="no engine was built for batch 5"):
        flow.step(chunk, state)


def test_a_build_that_fails_says_which_graph(bundle: CosyVoiceBundle) -> None:
    module = SimulatedTensorrt()
    module.fails = True
    with pytest.raises(DeviceError, match=r"flow_speaker\.fp32\.onnx: the builder gave no engine"):
        load_flow(bundle, module)
