"""Recorded steps of the flow on pages equal ``Flow.step``: any batch, chunk length, window and padding."""

import gc
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch", reason="the [cosyvoice] extra is not installed")

from torch import Tensor  # noqa: E402

from golden.reference.rule_weights import WeightRule, rule_weights  # noqa: E402
from vivavoce.models.cosyvoice.config import DitConfig, EncoderConfig, FlowConfig, UnetConfig  # noqa: E402
from vivavoce.models.cosyvoice.flow.flow import Flow  # noqa: E402
from vivavoce.models.cosyvoice.flow.flow_graphs import FlowGraphs, SequenceHandle  # noqa: E402
from vivavoce.models.cosyvoice.flow.page_allocator import PageAllocator  # noqa: E402
from vivavoce.models.cosyvoice.flow.policy import CacheForm, FlowPolicy  # noqa: E402
from vivavoce.models.cosyvoice.flow.state import FlowChunk, FlowState  # noqa: E402
from vivavoce.models.devices.planned_captures import CaptureQueue  # noqa: E402
from vivavoce.models.networks.layers import load_weights  # noqa: E402

SMALL_V2 = FlowConfig(
    EncoderConfig(32, 2, 48, 1, 1),
    UnetConfig(channels=16, head_width=8, blocks=1, mid_blocks=1, heads=2),
    codebook_size=60,
    solver_steps=3,
)
SMALL_V3 = FlowConfig(None, DitConfig(32, 2, 2, 16, 2), codebook_size=60, lookahead_width=24, solver_steps=3)
TOLERANCE = 2e-5


@pytest.fixture(params=[SMALL_V2, SMALL_V3], ids=["v2", "v3"])
def config(request: pytest.FixtureRequest) -> FlowConfig:
    chosen: FlowConfig = request.param
    return chosen


def make_flow(config: FlowConfig, policy: FlowPolicy | None = None) -> Flow:
    flow = Flow(config, policy)
    shapes = {key: tuple(tensor.shape) for key, tensor in flow.state_dict().items()}
    load_weights(
        flow, {key: torch.from_numpy(value) for key, value in rule_weights(shapes, WeightRule()).items()}
    )
    return flow


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def random_ids(count: int, seed: int) -> Tensor:
    return torch.randint(0, 60, (1, count), generator=torch.Generator().manual_seed(seed))


def voice_of(flow: Flow, blocks: int, seed: int = 0) -> FlowState:
    count = 25 * blocks + 3 if blocks else 0
    return flow.prefill(
        random_ids(count, seed), random(1, 80, 2 * count, seed=seed), 0.3 * random(1, 80, seed=seed)
    )[0]


@dataclass
class ChunkedIds:
    """An utterance cut into chunks: (ids, future, prompt mel)."""

    chunks: list[tuple[Tensor, Tensor, Tensor]]

    @classmethod
    def of(cls, hops: Sequence[int], seed: int) -> "ChunkedIds":
        ids, place, chunks = random_ids(sum(hops), seed), 0, []
        for index, hop in enumerate(hops):
            end = place + hop
            future = ids[:, end : end + 3] if index < len(hops) - 1 else ids[:, :0]
            mel = random(1, 80, 2 * hop, seed=seed) if not index else torch.zeros(1, 80, 2 * hop)
            chunks.append((ids[:, place:end], future, mel))
            place = end
        return cls(chunks)


def step_eagerly(flow: Flow, voice: FlowState, utterance: ChunkedIds) -> list[Tensor]:
    state, mels = flow.copy_for_utterance(voice), []
    for chunk in utterance.chunks:
        mel, state = flow.step(FlowChunk(*chunk), state)
        mels.append(mel)
    return mels


def step_together(
    graphs: FlowGraphs, handles: Sequence[SequenceHandle], chunks: Sequence[tuple[Tensor, Tensor, Tensor]]
) -> Tensor:
    lengths = tuple(ids.shape[1] for ids, _, _ in chunks)
    max_length = max(lengths)
    padded = [
        (
            torch.nn.functional.pad(ids, (0, max_length - ids.shape[1])),
            future,
            torch.nn.functional.pad(mel, (0, 2 * max_length - mel.shape[2])),
        )
        for ids, future, mel in chunks
    ]
    ids, future, mel = (torch.cat(parts) for parts in zip(*padded, strict=True))
    return graphs.step(FlowChunk(ids, future, mel, lengths if len(set(lengths)) > 1 else None), handles)


def assert_same(mel: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(mel[..., : expected.shape[2]], expected, atol=TOLERANCE, rtol=0)


def test_a_session_alone_equals_flow_step(config: FlowConfig) -> None:
    flow = make_flow(config)
    voice, utterance = voice_of(flow, 2), ChunkedIds.of([25, 50, 50, 17], seed=1)
    graphs = FlowGraphs(flow, rows=4, slots=4, pages=24)
    handle = graphs.open_sequence(graphs.store_voice(voice))
    for chunk, expected in zip(utterance.chunks, step_eagerly(flow, voice, utterance), strict=True):
        assert_same(graphs.step(FlowChunk(*chunk), [handle]), expected)


def test_a_session_joins_others_at_their_next_euler_step(config: FlowConfig) -> None:
    flow = make_flow(config)
    graphs = FlowGraphs(flow, rows=4, slots=4, pages=24)
    voices = [voice_of(flow, blocks, seed=blocks) for blocks in (2, 1, 0)]
    spoken = [ChunkedIds.of(hops, seed) for seed, hops in enumerate([(25, 25, 9), (25, 25, 25), (25, 14)])]
    expected = [step_eagerly(flow, *each) for each in zip(voices, spoken, strict=True)]
    handles = [graphs.open_sequence(graphs.store_voice(voice)) for voice in voices]
    mels: list[list[Tensor]] = [[], [], []]
    for round_number in range(20):
        joined = [row for row in range(3) if round_number >= row and len(mels[row]) < len(spoken[row].chunks)]
        for row in joined:
            if handles[row].chunk is None:
                graphs.begin(FlowChunk(*spoken[row].chunks[len(mels[row])]), [handles[row]])
        for row, mel in zip(
            joined, graphs.advance([handles[row] for row in joined]) if joined else (), strict=True
        ):
            if mel is not None:
                mels[row].append(mel[None])
    for found, wanted in zip(mels, expected, strict=True):
        assert len(found) == len(wanted)
        for mel, mel_alone in zip(found, wanted, strict=True):
            assert_same(mel, mel_alone)


def test_sessions_at_different_frames_share_padded_steps(config: FlowConfig) -> None:
    flow = make_flow(config)
    voices = [voice_of(flow, 2), voice_of(flow, 0, seed=5), voice_of(flow, 1, seed=6)]
    utterances = [
        ChunkedIds.of([25, 50, 31], 1),
        ChunkedIds.of([25, 25, 50, 44], 2),
        ChunkedIds.of([50, 50, 50, 50, 26], 3),
    ]
    expected = [
        step_eagerly(flow, voice, utterance) for voice, utterance in zip(voices, utterances, strict=True)
    ]
    graphs = FlowGraphs(flow, rows=4, slots=3, pages=40)
    handles = [graphs.open_sequence(graphs.store_voice(voice)) for voice in voices]

    def step(*which: tuple[int, int]) -> None:
        mel = step_together(
            graphs,
            [handles[session] for session, _ in which],
            [utterances[session].chunks[n] for session, n in which],
        )
        for row, (session, n) in enumerate(which):
            assert_same(mel[row : row + 1], expected[session][n])

    step((0, 0), (1, 0))
    step((2, 0))
    step((1, 1))
    step((2, 1), (0, 1), (1, 2))
    step((2, 2))
    step((2, 3))
    step((0, 2), (2, 4), (1, 3))  # the last, of different lengths


def test_sessions_share_the_pages_of_a_voice_without_writing_them(config: FlowConfig) -> None:
    flow = make_flow(config)
    voice, utterance = voice_of(flow, 3), ChunkedIds.of([25, 25], seed=2)
    expected = step_eagerly(flow, voice, utterance)
    graphs = FlowGraphs(flow, rows=2, slots=2, pages=3 + 2 * 2)
    paged = graphs.store_voice(voice)
    for _ in range(5):
        handles = [graphs.open_sequence(paged), graphs.open_sequence(paged)]
        for chunk, mel in zip(utterance.chunks, expected, strict=True):
            assert_same(step_together(graphs, handles, [chunk, chunk])[1:], mel)
        assert graphs._pages.free == 0
        del handles
        assert graphs._pages.free == 4
    del paged
    assert graphs._pages.free == 7


@pytest.mark.parametrize("blocks", [0, 1, 4])
def test_a_bounded_window_equals_flow_step_and_releases_pages(config: FlowConfig, blocks: int) -> None:
    flow = make_flow(config, FlowPolicy(window_frames=100))
    voice, utterance = voice_of(flow, blocks), ChunkedIds.of([25, 50, 25, 50, 25, 20], seed=4)
    graphs = FlowGraphs(flow, rows=2, slots=1, pages=6)
    handle = graphs.open_sequence(graphs.store_voice(voice))
    for chunk, expected in zip(utterance.chunks, step_eagerly(flow, voice, utterance), strict=True):
        assert_same(graphs.step(FlowChunk(*chunk), [handle]), expected)
        assert len(handle.pages) <= 4


def test_memory_may_be_float16(config: FlowConfig) -> None:
    flow, exact = make_flow(config, FlowPolicy(dtype="float16")), make_flow(config)
    utterance = ChunkedIds.of([25, 50, 50], seed=1)
    graphs = FlowGraphs(flow, rows=1, slots=1, pages=10)
    handle = graphs.open_sequence(graphs.store_voice(voice_of(flow, 2)))
    expected = step_eagerly(exact, voice_of(exact, 2), utterance)
    differences = [
        float((graphs.step(FlowChunk(*chunk), [handle]) - mel).abs().max())
        for chunk, mel in zip(utterance.chunks, expected, strict=True)
    ]
    assert 0 < max(differences) < 2e-3


def test_recording_steps_beforehand_changes_no_session(config: FlowConfig) -> None:
    flow = make_flow(config)
    graphs = FlowGraphs(flow, rows=3, slots=2, pages=20)
    voice, utterance = voice_of(flow, 2), ChunkedIds.of([25, 50, 30], seed=1)
    handle = graphs.open_sequence(graphs.store_voice(voice))
    expected = step_eagerly(flow, voice, utterance)
    assert_same(graphs.step(FlowChunk(*utterance.chunks[0]), [handle]), expected[0])
    CaptureQueue(graphs.defer_captures(max_blocks=2)).capture_all()
    recorded = graphs.recorded_count
    assert recorded == 2 * 2 * 2 * 2  # both parts; rows 1, 3; blocks 1, 2; pages 16, 20
    for chunk, mel in zip(utterance.chunks[1:], expected[1:], strict=True):
        assert_same(graphs.step(FlowChunk(*chunk), [handle]), mel)
    assert graphs.recorded_count == recorded


def test_with_kernels_a_step_is_recorded_for_rows_and_blocks_only(
    config: FlowConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Flow, "has_fused_kernels", True)
    graphs = FlowGraphs(make_flow(config), rows=8, slots=1, pages=150)
    CaptureQueue(graphs.defer_captures(max_blocks=2)).capture_all()
    # Encoder: 1 and 8 rows; solver: 1, 4 and 8 rows; of 1 and 2 blocks.
    assert graphs.recorded_count == 10


def test_a_step_without_pages_left_can_be_tried_again(config: FlowConfig) -> None:
    flow = make_flow(config)
    voice, utterance = voice_of(flow, 1), ChunkedIds.of([50, 50, 25], seed=1)
    graphs = FlowGraphs(flow, rows=2, slots=2, pages=6)
    paged = graphs.store_voice(voice)
    handles = [graphs.open_sequence(paged) for _ in range(2)]
    first, second, _ = utterance.chunks
    step_together(graphs, handles, [first, first])
    with pytest.raises(MemoryError, match="out of memory: 2 of 6 pages wanted, 1 free"):
        step_together(graphs, handles, [second, second])
    del handles[1]
    gc.collect()
    expected = step_eagerly(flow, voice, utterance)
    assert_same(graphs.step(FlowChunk(*second), handles), expected[1])


def test_opening_more_sessions_than_rows_of_contexts_raises(config: FlowConfig) -> None:
    flow = make_flow(config)
    graphs = FlowGraphs(flow, rows=1, slots=1, pages=8)
    paged = graphs.store_voice(voice_of(flow, 0))
    handle = graphs.open_sequence(paged)
    with pytest.raises(MemoryError, match="1 of 1 rows of contexts wanted, 0 free"):
        graphs.open_sequence(paged)
    del handle
    graphs.open_sequence(paged)


def test_chunks_that_flow_step_rejects_raise(config: FlowConfig) -> None:
    flow = make_flow(config)
    graphs = FlowGraphs(flow, rows=1, slots=1, pages=8)
    handle = graphs.open_sequence(graphs.store_voice(voice_of(flow, 1)))
    ids = random_ids(24, 0)
    with pytest.raises(ValueError, match="a chunk has 24 ids; allowed: a multiple of 25"):
        graphs.step(FlowChunk(ids, ids[:, :3], torch.zeros(1, 80, 48)), [handle])
    with pytest.raises(ValueError, match=r"cache_form is CacheForm\.INPUTS; pages hold keys and values only"):
        FlowGraphs(make_flow(config, FlowPolicy(cache_form=CacheForm.INPUTS)), rows=1, slots=1, pages=8)


def test_a_place_is_free_when_its_last_user_releases_it() -> None:
    allocator = PageAllocator(4, "places")
    first = allocator.allocate(2)
    assert first == [1, 2]
    shared = allocator.share(list(first))
    allocator.release(first)
    assert allocator.free == 1
    allocator.release(shared)
    assert allocator.free == 3
    with pytest.raises(MemoryError, match="4 of 3 places wanted, 3 free"):
        allocator.allocate(4)
    assert sorted(allocator.allocate(3)) == [1, 2, 3]
