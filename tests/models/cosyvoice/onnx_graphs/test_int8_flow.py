"""The exported flow in int8: rounding of rows, error, any split, rows together, a voice that is shared."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from benches.cosyvoice.flow_precision import relative_error
from vivavoce.models.cosyvoice.checkpoint.bundle import CosyVoiceBundle
from vivavoce.models.cosyvoice.config import BLOCK_FRAMES
from vivavoce.models.cosyvoice.onnx_graphs.graph_values import GraphValue
from vivavoce.models.cosyvoice.onnx_graphs.products import int8_product
from vivavoce.models.cosyvoice.onnx_runtime.flow import ArrayFlow, ArrayFlowState
from vivavoce.models.cosyvoice.onnx_runtime.shared_voice_flow import SharedVoiceFlow
from vivavoce.models.devices.onnx_sessions import CPU_SESSIONS
from vivavoce.models.onnx_graphs.exact_products import exact_integer_options
from vivavoce.models.onnx_graphs.graph_builder import OnnxGraphFile

VOICE_IDS, TOTAL_IDS = 78, 160
MAX_MEL_ERROR = 0.1  # as a share of its deviation; 10 steps of a network of random weights


@pytest.fixture(scope="module")
def flow(exported: CosyVoiceBundle) -> SharedVoiceFlow:
    return SharedVoiceFlow.load(exported)


@pytest.fixture(scope="module")
def ids() -> np.ndarray:
    return np.random.default_rng(3).integers(0, 100, TOTAL_IDS)


@pytest.fixture(scope="module")
def mel() -> np.ndarray:
    return np.random.default_rng(4).standard_normal((80, 2 * TOTAL_IDS)).astype(np.float32)


@pytest.fixture(scope="module")
def embedding() -> np.ndarray:
    return np.random.default_rng(5).standard_normal(192).astype(np.float32)


def in_chunks(
    flow: ArrayFlow, state: ArrayFlowState, ids: np.ndarray, mel: np.ndarray, edges: list[int]
) -> np.ndarray:
    mels = []
    for begin, end in pairwise(edges):
        future = ids[end : end + 3] if end < len(ids) else ids[:0]
        rendered, state = flow.step(ids[begin:end], future, mel[:, 2 * begin : 2 * end], state)
        mels.append(rendered)
    return np.concatenate(mels, 1)


def test_a_product_is_that_of_numbers_rounded_to_8_bits(tmp_path: Path) -> None:
    drawn = np.random.default_rng(1)
    shapes = ((2, 5, 48), (24, 48), (24,))
    x, weight, bias = (drawn.standard_normal(shape).astype(np.float32) for shape in shapes)
    weight *= np.geomspace(1e-3, 1e3, 24, dtype=np.float32)[:, None]
    weight[3] = 0
    with OnnxGraphFile(tmp_path / "product.onnx") as builder:
        given = GraphValue(builder, builder.input("x", np.float32, ("batch", "frames", 48)), np.float32)
        int8_product(given, weight, bias).named("y")
        builder.output("y", np.float32, ("batch", "frames", 24))
        builder.save({})
    session = CPU_SESSIONS.open(tmp_path / "product.onnx", exact_integer_options())
    scales = np.abs(weight).max(1, keepdims=True) / 127
    scales[3] = 1
    step = (x.max() - x.min()) / 255
    expected = np.rint(x / step) * step @ (np.rint(weight / scales) * scales).T + bias
    (found,) = session.run(None, {"x": x})
    assert np.array_equal(found[..., 3], np.broadcast_to(bias[3], (2, 5)))
    deviation = np.abs(weight @ x.reshape(-1, 48).T).mean(1)  # of each output
    assert (np.abs(found - expected) <= 2e-3 * deviation + 1e-6).mean() > 0.9
    assert (np.abs(found - expected) <= 0.05 * deviation + 1e-6).all()


def test_the_mel_is_near_that_of_float32(
    exported: CosyVoiceBundle,
    flow: SharedVoiceFlow,
    ids: np.ndarray,
    mel: np.ndarray,
    embedding: np.ndarray,
) -> None:
    mels = []
    for network in (flow, ArrayFlow.load(exported)):
        state = network.init_state(network.project_speaker(embedding[None]), BLOCK_FRAMES)
        mels.append(in_chunks(network, state, ids, mel, [0, 100, TOTAL_IDS]))
    assert 0 < relative_error(*mels) < MAX_MEL_ERROR


@pytest.mark.parametrize("edges", [[75, 100, 125, 150, 160], [75, 150, 160], [75, 160]])
def test_any_split_behind_a_voice_gives_nearly_the_mel_of_one_pass(
    flow: SharedVoiceFlow, ids: np.ndarray, mel: np.ndarray, embedding: np.ndarray, edges: list[int]
) -> None:
    whole = flow.init_state(flow.project_speaker(embedding[None]), BLOCK_FRAMES)
    expected = in_chunks(flow, whole, ids, mel, [0, TOTAL_IDS])[:, 150:]
    voice = flow.prefill(embedding, ids[:VOICE_IDS], mel[:, : 2 * VOICE_IDS])
    assert voice.frames == 150
    found = in_chunks(flow, flow.copy_for_utterance(voice, 0), ids, mel, edges)
    assert relative_error(found, expected) < MAX_MEL_ERROR  # scales are those of a chunk


def test_sentences_share_the_memory_of_their_voice_and_leave_it_as_it_is(
    flow: SharedVoiceFlow, ids: np.ndarray, mel: np.ndarray, embedding: np.ndarray
) -> None:
    voice = flow.prefill(embedding, ids[:VOICE_IDS], mel[:, : 2 * VOICE_IDS])
    before = [memory.copy() for memory in voice.memories]
    sentences = [flow.copy_for_utterance(voice, 400) for _ in range(2)]
    for sentence in sentences:
        assert all(a is b for a, b in zip(sentence.voice_memories, voice.voice_memories, strict=True))
    first, second = (in_chunks(flow, sentence, ids, mel, [75, 100, 150]) for sentence in sentences)
    assert np.array_equal(first, second)
    for memory, kept in zip(voice.memories, before, strict=True):
        assert np.array_equal(memory, kept)


def test_a_voice_on_file_is_the_voice(
    flow: SharedVoiceFlow, ids: np.ndarray, mel: np.ndarray, embedding: np.ndarray
) -> None:
    voice = flow.prefill(embedding, ids[:VOICE_IDS], mel[:, : 2 * VOICE_IDS])
    stored = voice.packed()
    empty = flow.empty_voice(flow.project_speaker(embedding[None]), voice.frames)
    form = {name: (array.shape, array.dtype) for name, array in empty.packed_form().items()}
    assert form == {name: (array.shape, array.dtype) for name, array in stored.items()}
    read = empty.unpacked(stored, voice.frames)
    mels = [in_chunks(flow, flow.copy_for_utterance(one, 0), ids, mel, [75, 150]) for one in (voice, read)]
    # The encoder's memory is rounded to float16.
    assert relative_error(mels[1], mels[0]) < MAX_MEL_ERROR / 2


def test_a_row_alone_is_nearly_the_row_among_others(flow: SharedVoiceFlow, mel: np.ndarray) -> None:
    drawn = np.random.default_rng(6)
    ids, speaker = drawn.integers(0, 100, (2, 53)), drawn.standard_normal((2, 80)).astype(np.float32)
    x = drawn.standard_normal((2, 100, 80)).astype(np.float32)
    silence = np.zeros((2, 80, 100), np.float32)

    def compute(rows: slice) -> np.ndarray:
        state = flow.init_state(speaker[rows], 100)
        given = (ids[rows, :50], ids[rows, 50:], silence[rows], x[rows])
        found: np.ndarray = flow.compute(*given, state, BLOCK_FRAMES)[0]
        return found

    together = compute(slice(0, 2))
    for row in range(2):
        assert relative_error(compute(slice(row, row + 1))[0], together[row]) < MAX_MEL_ERROR
