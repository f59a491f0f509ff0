"""The exported language model: upstream's vectors, dynamic axes, any split, any batch, other runtimes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

torch = pytest.importorskip("torch")

from golden.reference.golden_config import read_network_config, read_rule  # noqa: E402
from golden.reference.language_model import compare_language_model  # noqa: E402
from golden.reference.rule_weights import rule_weights  # noqa: E402
from shared.runtimes.numpy_lm import NumpyLm  # noqa: E402
from shared.runtimes.onnx_lm import OnnxSpeechLm  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.bundle import CosyVoiceBundle  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.tensor_shapes import llm_shapes  # noqa: E402
from vivavoce.models.cosyvoice.config import CosyVoiceVersion  # noqa: E402
from vivavoce.models.cosyvoice.lm.speech_lm import SpeechLm  # noqa: E402
from vivavoce.models.cosyvoice.networks import load_lm  # noqa: E402
from vivavoce.models.cosyvoice.onnx_graphs.lm_graphs import (  # noqa: E402
    write_lm_embedding,
    write_lm_head,
    write_lm_step,
)
from vivavoce.models.cosyvoice.onnx_runtime.language_model import ArraySpeechLm  # noqa: E402
from vivavoce.models.devices.execution import Precision  # noqa: E402
from vivavoce.models.onnx_graphs.matrix_products import MatrixFormat  # noqa: E402

GOLDEN = Path(__file__).parents[3] / "golden" / "data"
DRIVER = Path(__file__).parents[3] / "shared" / "runtimes" / "numpy_lm.py"
# Error of a hidden state, root mean square, as a share of its own.
MAX_ERROR = {Precision.FP32: 1e-5, Precision.INT8: 0.03, Precision.INT4: 0.3}


@pytest.fixture(scope="module")
def lm(exported: CosyVoiceBundle) -> SpeechLm:
    return load_lm(exported)


@pytest.fixture(scope="module")
def onnx_lm(exported: CosyVoiceBundle) -> OnnxSpeechLm:
    return OnnxSpeechLm.load(exported, Precision.FP32)


def noise(*shape: int) -> "torch.Tensor":
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize(
    ("case", "version"), [("e_llm", CosyVoiceVersion.V2), ("e_llm3", CosyVoiceVersion.V3)]
)
def test_the_graphs_give_upstreams_vectors(case: str, version: CosyVoiceVersion, tmp_path: Path) -> None:
    config = read_network_config(GOLDEN, version).lm
    drawn = rule_weights(llm_shapes(config), read_rule(GOLDEN))
    weights = {key: torch.from_numpy(array) for key, array in drawn.items()}
    embed, step, head = (tmp_path / f"{name}.onnx" for name in ("lm_embed", "lm_step", "lm_head"))
    write_lm_embedding(embed, config, weights, {})
    write_lm_step(step, config, weights, MatrixFormat(32), {})
    write_lm_head(head, config, weights, MatrixFormat(32), {})
    sessions = (onnxruntime.InferenceSession(str(path)) for path in (embed, step, head))
    network = OnnxSpeechLm(ArraySpeechLm(config, *sessions))
    comparisons = list(compare_language_model(GOLDEN, case, network))
    assert len(comparisons) >= 8
    assert [found for found in comparisons if not found.passed] == []


def test_the_graphs_are_valid_and_name_their_bundle(exported: CosyVoiceBundle) -> None:
    graphs = sorted((exported.folder / "onnx").glob("*.onnx"))
    assert len(graphs) == 15
    for path in graphs:
        onnx.checker.check_model(str(path), full_check=True)
        metadata = {
            entry.key: entry.value for entry in onnx.load(path, load_external_data=False).metadata_props
        }
        assert {"bundle_digest", "opset", "precision"} <= metadata.keys()
        assert metadata["precision"] in (path.suffixes[0][1:], "fp32")


@pytest.mark.parametrize("precision", MAX_ERROR)
def test_a_precision_is_near_torch(exported: CosyVoiceBundle, lm: SpeechLm, precision: Precision) -> None:
    network = OnnxSpeechLm.load(exported, precision)
    x = network.embed_speech(torch.arange(12)[None])
    hidden, _ = network.step(x, network.init_state(1, 12))
    with torch.inference_mode():
        exact, _ = lm.step(x, lm.init_state(1, 12))
    error = (hidden - exact).square().mean().sqrt() / exact.square().mean().sqrt()
    assert error < MAX_ERROR[precision]
    if precision is not Precision.FP32:
        assert error > 1e-4  # the matrices are those of the precision


def test_int4_keeps_8_bits_where_errors_pass_through_all_layers(exported: CosyVoiceBundle) -> None:
    def bits_of(graph: str) -> list[int]:
        model = onnx.load(exported.folder / "onnx" / f"{graph}.int4.onnx", load_external_data=False)
        products = [node for node in model.graph.node if node.op_type == "MatMulNBits"]
        return [next(entry.i for entry in node.attribute if entry.name == "bits") for node in products]

    # In a layer: queries, keys and values; output; gate, up, down.
    assert bits_of("lm_step") == [8, 8, 8, 8, 8] + [8, 8, 4, 4, 4] * (len(bits_of("lm_step")) // 5 - 1)
    assert bits_of("lm_head") == [8]


@pytest.mark.parametrize("cuts", [[1] * 12, [5, 1, 6], [12], [3, 9]])
def test_any_split_gives_the_same(onnx_lm: OnnxSpeechLm, cuts: list[int]) -> None:
    x = noise(1, 12, onnx_lm.config.hidden)
    whole, _ = onnx_lm.step(x, onnx_lm.init_state(1, 12))
    state = onnx_lm.init_state(1, 12)
    parts = []
    for part in x.split(cuts, 1):
        hidden, state = onnx_lm.step(part, state)
        parts.append(hidden)
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-5, rtol=1e-5)
    assert state.lengths.tolist() == [12]


@pytest.mark.parametrize("precision", MAX_ERROR)
def test_a_row_alone_equals_the_row_among_others(exported: CosyVoiceBundle, precision: Precision) -> None:
    network = OnnxSpeechLm.load(exported, precision)
    lengths = [[4, 1, 1, 3, 1], [1, 0, 6, 1, 0], [7, 2, 0, 1, 1]]
    x = [noise(3, max(columns), network.config.hidden) for columns in zip(*lengths, strict=True)]
    together = network.init_state(3, 20)
    outputs = []
    for step, columns in enumerate(x):
        valid = torch.tensor([row[step] for row in lengths])
        hidden, together = network.step(columns, together, valid)
        outputs.append(hidden)
    for row, valid_steps in enumerate(lengths):
        alone = network.init_state(1, 20)
        for step, valid_now in enumerate(valid_steps):
            if valid_now:
                hidden, alone = network.step(x[step][row : row + 1, :valid_now], alone)
                torch.testing.assert_close(outputs[step][row, :valid_now], hidden[0], atol=1e-5, rtol=1e-5)
        assert together.lengths[row] == alone.lengths[0] == sum(valid_steps)


def test_a_full_row_keeps_its_memory_while_others_step(onnx_lm: OnnxSpeechLm) -> None:
    state = onnx_lm.init_state(3, 5)
    _, state = onnx_lm.step(noise(3, 5, onnx_lm.config.hidden), state, torch.tensor([1, 5, 1]))
    before = state.kv[1, ..., :5, :].clone()
    _, state = onnx_lm.step(noise(3, 1, onnx_lm.config.hidden), state, torch.tensor([1, 0, 1]))
    assert torch.equal(state.kv[1, ..., :5, :], before)
    assert state.lengths.tolist() == [2, 5, 2]
    with pytest.raises(ValueError, match="would hold 6 ids; its memory was made for 5"):
        onnx_lm.step(noise(3, 1, onnx_lm.config.hidden), state)


def test_a_state_that_would_be_copied_is_refused(onnx_lm: OnnxSpeechLm, lm: SpeechLm) -> None:
    with pytest.raises(ValueError, match="was not made by init_state"):
        onnx_lm.step(noise(2, 1, onnx_lm.config.hidden), lm.init_state(2, 5))


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("inputs", [1, 4, 9])
@pytest.mark.parametrize("capacity", [16, 33, 64])
def test_every_dynamic_axis_has_any_size(
    exported: CosyVoiceBundle, lm: SpeechLm, rows: int, inputs: int, capacity: int
) -> None:
    """Prefill of several rows, then a step of each row; the buffers are copied, as a simple runtime does."""
    network = NumpyLm(exported.folder / "onnx", "fp32")
    x = noise(rows, inputs + 1, lm.config.hidden)
    hidden, state = network.step(
        x[:, :inputs].numpy(), np.zeros(rows, np.int64), network.init_state(rows, capacity)
    )
    following, _ = network.step(x[:, inputs:].numpy(), np.full(rows, inputs), state)
    with torch.inference_mode():
        expected, _ = lm.step(x, lm.init_state(rows, inputs + 1))
    found = np.concatenate([hidden, following], 1)
    np.testing.assert_allclose(found, expected.numpy(), atol=2e-5, rtol=1e-5)
    np.testing.assert_allclose(
        network.logits(found), lm.logits(expected).detach().numpy(), atol=1e-4, rtol=1e-4
    )


@torch.inference_mode()
def test_a_driver_without_torch_decodes_the_same_ids(exported: CosyVoiceBundle, lm: SpeechLm) -> None:
    text_rows = lm.config.text_vocab_size
    indices = [3, 5, 7, text_rows + 4]
    command = [sys.executable, str(DRIVER), str(exported.folder / "onnx"), "fp32", "12"]
    spoken = json.loads(subprocess.check_output([*command, *map(str, indices)], text=True))
    assert spoken["torch"] is False
    state, fed, ids = lm.init_state(1, 20), torch.tensor([indices]), list[int]()
    while len(ids) < 12:
        hidden, state = lm.step(lm.embed(fed), state)
        ids.append(int(lm.logits(hidden[:, -1]).argmax()))
        fed = torch.tensor([[text_rows + ids[-1]]])
    assert spoken["ids"] == ids
