"""The exported flow: upstream's vectors, torch's states, dynamic axes, any split, rows alone and together."""

from itertools import pairwise
from pathlib import Path

import onnxruntime
import pytest

torch = pytest.importorskip("torch")

from golden.reference.flow import read_flow_inputs  # noqa: E402
from golden.reference.golden_config import read_network_config, read_rule  # noqa: E402
from golden.reference.rule_weights import rule_weights  # noqa: E402
from shared.runtimes.onnx_flow import OnnxFlow  # noqa: E402
from shared.runtimes.tensor_graph import TensorOrtGraph  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.bundle import CosyVoiceBundle  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.tensor_shapes import flow_shapes  # noqa: E402
from vivavoce.models.cosyvoice.config import BLOCK_FRAMES, BLOCK_IDS, CosyVoiceVersion  # noqa: E402
from vivavoce.models.cosyvoice.flow.flow import Flow  # noqa: E402
from vivavoce.models.cosyvoice.flow.state import FlowChunk, FlowState  # noqa: E402
from vivavoce.models.cosyvoice.flow.streaming_flow import StreamingFlow  # noqa: E402
from vivavoce.models.cosyvoice.networks import load_flow  # noqa: E402
from vivavoce.models.cosyvoice.onnx_graphs.flow_encoder_graphs import (  # noqa: E402
    write_flow_encoder,
    write_flow_speaker,
)
from vivavoce.models.cosyvoice.onnx_graphs.flow_step_graphs import write_flow_step  # noqa: E402
from vivavoce.models.cosyvoice.onnx_runtime.flow import ArrayFlow  # noqa: E402
from vivavoce.models.networks.state import gather, tensors  # noqa: E402

GOLDEN = Path(__file__).parents[3] / "golden" / "data"
MEL_TOLERANCE = 5e-4  # of the vectors
EDGES = (25, 50, 100)  # ids at which the vectors' utterance is cut


@pytest.fixture(scope="module")
def flow(exported: CosyVoiceBundle) -> Flow:
    return load_flow(exported)


@pytest.fixture(scope="module")
def onnx_flow(exported: CosyVoiceBundle) -> OnnxFlow:
    return OnnxFlow.load(exported)


def random_chunk(rows: int, ids: int, *, last: bool = False, seed: int = 0) -> FlowChunk:
    generator = torch.Generator().manual_seed(seed)
    return FlowChunk(
        torch.randint(100, (rows, ids), generator=generator),
        torch.randint(100, (rows, 0 if last else 3), generator=generator),
        torch.randn(rows, 80, 2 * ids, generator=generator),
    )


def random_speaker(rows: int) -> "torch.Tensor":
    return torch.randn(rows, 80, generator=torch.Generator().manual_seed(rows))


def in_steps(flow: StreamingFlow, chunks: list[FlowChunk], state: FlowState) -> "torch.Tensor":
    mels = []
    for chunk in chunks:
        mel, state = flow.step(chunk, state)
        mels.append(mel)
    return torch.cat(mels, 2)


@pytest.mark.parametrize("version", list(CosyVoiceVersion))
def test_the_graphs_give_upstreams_vectors(version: CosyVoiceVersion, tmp_path: Path) -> None:
    config = read_network_config(GOLDEN, version).flow
    drawn = rule_weights(flow_shapes(config), read_rule(GOLDEN))
    weights = {key: torch.from_numpy(array) for key, array in drawn.items()}
    writers = (write_flow_speaker, write_flow_encoder, write_flow_step)
    paths = [tmp_path / f"{index}.onnx" for index in range(3)]
    for write, path in zip(writers, paths, strict=True):
        write(path, config, weights, {})
    graphs = (TensorOrtGraph(onnxruntime.InferenceSession(str(path))) for path in paths)
    network = OnnxFlow(ArrayFlow(config, *graphs))

    inputs, arrays = read_flow_inputs(GOLDEN, version)
    speaker = network.project_speaker(arrays["embedding"])
    total, first_frame = inputs.ids.shape[1], 2 * inputs.prompt_ids
    for name, block in (("offline", 2 * total), ("stream_final", BLOCK_FRAMES)):
        state = network.init_state(speaker, 2 * total)
        mel, _ = network.compute(inputs.chunk(0, total, last=True), state, block)
        torch.testing.assert_close(mel[..., first_frame:], arrays[name], atol=MEL_TOLERANCE, rtol=0)
    spans = pairwise([0, *EDGES, total])
    chunks = [inputs.chunk(begin, end, last=end == total) for begin, end in spans]
    mel = in_steps(network, chunks, network.init_state(speaker))
    torch.testing.assert_close(mel[..., first_frame:], arrays["stream_final"], atol=MEL_TOLERANCE, rtol=0)


@pytest.mark.parametrize("cuts", [[25, 25, 25, 7], [75, 7], [50, 32], [25, 50, 7]])
def test_any_split_gives_torchs_mel_and_contexts(flow: Flow, onnx_flow: OnnxFlow, cuts: list[int]) -> None:
    whole = random_chunk(1, sum(cuts), last=True)
    speaker, begin = random_speaker(1), 0
    expected, _ = flow.step(whole, flow.init_state(speaker))
    # A small memory grows on the way.
    state, mels = onnx_flow.init_state(speaker, 50), []
    for count in cuts:
        end = begin + count
        chunk = FlowChunk(
            whole.ids[:, begin:end], whole.ids[:, end : end + 3], whole.prompt_mel[..., 2 * begin : 2 * end]
        )
        mel, state = onnx_flow.step(chunk, state)
        mels.append(mel)
        begin = end
    torch.testing.assert_close(torch.cat(mels, 2), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("rows", "ids", "capacity"), [(1, 50, 233), (2, 100, 400), (3, 25, 76)])
def test_every_dynamic_axis_has_any_size(
    flow: Flow, onnx_flow: OnnxFlow, rows: int, ids: int, capacity: int
) -> None:
    speaker = random_speaker(rows)
    chunks = [random_chunk(rows, ids), random_chunk(rows, ids // 2 + 3, last=True, seed=1)]
    expected = in_steps(flow, chunks, flow.init_state(speaker, 400))
    mel = in_steps(onnx_flow, chunks, onnx_flow.init_state(speaker, capacity))
    torch.testing.assert_close(mel, expected, atol=1e-4, rtol=1e-4)


def test_a_row_alone_equals_the_row_among_others(onnx_flow: OnnxFlow) -> None:
    speaker, chunks = random_speaker(3), [random_chunk(3, 50, seed=seed) for seed in range(2)]
    together = in_steps(onnx_flow, chunks, onnx_flow.init_state(speaker))
    for row in range(3):
        own = slice(row, row + 1)
        alone = [FlowChunk(chunk.ids[own], chunk.future[own], chunk.prompt_mel[own]) for chunk in chunks]
        mel = in_steps(onnx_flow, alone, onnx_flow.init_state(speaker[own]))
        torch.testing.assert_close(together[own], mel, atol=1e-5, rtol=1e-5)


def test_states_are_those_of_torch(flow: Flow, onnx_flow: OnnxFlow) -> None:
    """A state that torch has made is continued by the graphs, and is made alike by them."""
    speaker, chunks = random_speaker(2), [random_chunk(2, BLOCK_IDS, seed=seed) for seed in range(2)]
    _, begun = flow.step(chunks[0], flow.init_state(speaker, 100))
    _, same = onnx_flow.step(chunks[0], onnx_flow.init_state(speaker, 100))
    for ours, theirs in zip(tensors(same), tensors(begun), strict=True):
        assert ours.shape == theirs.shape
    kept = gather(begun, [0, 1])
    expected, _ = flow.step(chunks[1], begun)
    mel, _ = onnx_flow.step(chunks[1], kept)
    torch.testing.assert_close(mel, expected, atol=1e-4, rtol=1e-4)


def test_a_voice_is_prefilled_and_continued(flow: Flow, onnx_flow: OnnxFlow) -> None:
    speaker, prompt = random_speaker(1), random_chunk(1, 28)
    chunk = random_chunk(1, 32, last=True, seed=1)
    for copied in (False, True):
        mels = []
        for network in (flow, onnx_flow):
            state, covered = network.prefill(prompt.ids, prompt.prompt_mel, speaker)
            assert covered == BLOCK_IDS
            mels.append(network.step(chunk, network.copy_for_utterance(state) if copied else state)[0])
        torch.testing.assert_close(mels[1], mels[0], atol=1e-4, rtol=1e-4)


def test_rows_that_differ_in_length_are_refused(onnx_flow: OnnxFlow) -> None:
    chunk = random_chunk(2, BLOCK_IDS, last=True)
    state = onnx_flow.init_state(random_speaker(2))
    with pytest.raises(ValueError, match="a step of the exported graphs is for equal rows"):
        onnx_flow.step(FlowChunk(chunk.ids, chunk.future, chunk.prompt_mel, (25, 20)), state)
    with pytest.raises(ValueError, match="allowed: a multiple of 25"):
        onnx_flow.step(random_chunk(2, 20), state)
