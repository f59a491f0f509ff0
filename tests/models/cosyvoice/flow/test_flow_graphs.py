"""Recorded steps of the flow on pages against ``Flow.step``: any company, length, window and padding."""

import gc
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch", reason="the [cosyvoice] extra is not installed")

from torch import Tensor  # noqa: E402

from golden.reference.rule_weights import WeightRule, rule_weights  # noqa: E402
from vivavoce.models.cosyvoice.flow.attention_memory import CacheForm  # noqa: E402
from vivavoce.models.cosyvoice.flow.dit import DitConfig  # noqa: E402
from vivavoce.models.cosyvoice.flow.encoder import EncoderConfig  # noqa: E402
from vivavoce.models.cosyvoice.flow.flow import Flow, FlowConfig  # noqa: E402
from vivavoce.models.cosyvoice.flow.flow_graphs import FlowGraphs, SequenceHandle  # noqa: E402
from vivavoce.models.cosyvoice.flow.page_allocator import PageAllocator  # noqa: E402
from vivavoce.models.cosyvoice.flow.state import FlowChunk, FlowPolicy, FlowState  # noqa: E402
from vivavoce.models.cosyvoice.flow.unet import UnetConfig  # noqa: E402
from vivavoce.models.cosyvoice.layers import load_weights  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL_V2 = FlowConfig(
    EncoderConfig(32, 2, 48, 1, 1),
    UnetConfig(channels=16, attention_head_dim=8, blocks=1, mid_blocks=1, heads=2),
    speech_ids=60,
    solver_steps=3,
)
SMALL_V3 = FlowConfig(None, DitConfig(32, 2, 2, 16, 2), speech_ids=60, lookahead_width=24, solver_steps=3)
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
class Speech:
    """An utterance cut into chunks: (ids, future, prompt mel)."""

    chunks: list[tuple[Tensor, Tensor, Tensor]]

    @classmethod
    def of(cls, hops: Sequence[int], seed: int) -> "Speech":
        ids, place, chunks = random_ids(sum(hops), seed), 0, []
        for index, hop in enumerate(hops):
            end = place + hop
            future = ids[:, end : end + 3] if index < len(hops) - 1 else ids[:, :0]
            mel = random(1, 80, 2 * hop, seed=seed) if not index else torch.zeros(1, 80, 2 * hop)
            chunks.append((ids[:, place:end], future, mel))
            place = end
        return cls(chunks)


def plainly(flow: Flow, voice: FlowState, speech: Speech) -> list[Tensor]:
    state, mels = flow.copy_for_utterance(voice), []
    for chunk in speech.chunks:
        mel, state = flow.step(FlowChunk(*chunk), state)
        mels.append(mel)
    return mels


def together(
    graphs: FlowGraphs, seats: Sequence[SequenceHandle], chunks: Sequence[tuple[Tensor, Tensor, Tensor]]
) -> Tensor:
    lengths = tuple(ids.shape[1] for ids, _, _ in chunks)
    longest = max(lengths)
    padded = [
        (
            torch.nn.functional.pad(ids, (0, longest - ids.shape[1])),
            future,
            torch.nn.functional.pad(mel, (0, 2 * longest - mel.shape[2])),
        )
        for ids, future, mel in chunks
    ]
    ids, future, mel = (torch.cat(parts) for parts in zip(*padded, strict=True))
    return graphs.step(FlowChunk(ids, future, mel, lengths if len(set(lengths)) > 1 else None), seats)


def assert_same(mel: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(mel[..., : expected.shape[2]], expected, atol=TOLERANCE, rtol=0)


def test_a_session_alone_is_as_plainly_stepped(config: FlowConfig) -> None:
    flow = make_flow(config)
    voice, speech = voice_of(flow, 2), Speech.of([25, 50, 50, 17], seed=1)
    graphs = FlowGraphs(flow, rows=4, slots=4, pages=24)
    seat = graphs.open_sequence(graphs.store_voice(voice))
    for chunk, expected in zip(speech.chunks, plainly(flow, voice, speech), strict=True):
        assert_same(graphs.step(FlowChunk(*chunk), [seat]), expected)


def test_sessions_at_different_places_share_steps_and_pad_none_the_worse(config: FlowConfig) -> None:
    flow = make_flow(config)
    voices = [voice_of(flow, 2), voice_of(flow, 0, seed=5), voice_of(flow, 1, seed=6)]
    speeches = [
        Speech.of([25, 50, 31], 1),
        Speech.of([25, 25, 50, 44], 2),
        Speech.of([50, 50, 50, 50, 26], 3),
    ]
    expected = [plainly(flow, voice, speech) for voice, speech in zip(voices, speeches, strict=True)]
    graphs = FlowGraphs(flow, rows=4, slots=3, pages=40)
    seats = [graphs.open_sequence(graphs.store_voice(voice)) for voice in voices]

    def step(*which: tuple[int, int]) -> None:
        mel = together(
            graphs, [seats[who] for who, _ in which], [speeches[who].chunks[n] for who, n in which]
        )
        for row, (who, n) in enumerate(which):
            assert_same(mel[row : row + 1], expected[who][n])

    step((0, 0), (1, 0))
    step((2, 0))
    step((1, 1))
    step((2, 1), (0, 1), (1, 2))
    step((2, 2))
    step((2, 3))
    step((0, 2), (2, 4), (1, 3))  # the last, of different lengths


def test_a_voice_is_read_by_many_and_written_by_none(config: FlowConfig) -> None:
    flow = make_flow(config)
    voice, speech = voice_of(flow, 3), Speech.of([25, 25], seed=2)
    expected = plainly(flow, voice, speech)
    graphs = FlowGraphs(flow, rows=2, slots=2, pages=3 + 2 * 2)
    kept = graphs.store_voice(voice)
    for _ in range(5):
        seats = [graphs.open_sequence(kept), graphs.open_sequence(kept)]
        for chunk, mel in zip(speech.chunks, expected, strict=True):
            assert_same(together(graphs, seats, [chunk, chunk])[1:], mel)
        assert graphs._pages.free == 0
        del seats
        assert graphs._pages.free == 4
    del kept
    assert graphs._pages.free == 7


@pytest.mark.parametrize("blocks", [0, 1, 4])
def test_a_window_is_the_plain_one_and_gives_pages_back(config: FlowConfig, blocks: int) -> None:
    flow = make_flow(config, FlowPolicy(window_frames=100))
    voice, speech = voice_of(flow, blocks), Speech.of([25, 50, 25, 50, 25, 20], seed=4)
    graphs = FlowGraphs(flow, rows=2, slots=1, pages=6)
    seat = graphs.open_sequence(graphs.store_voice(voice))
    for chunk, expected in zip(speech.chunks, plainly(flow, voice, speech), strict=True):
        assert_same(graphs.step(FlowChunk(*chunk), [seat]), expected)
        assert len(seat.pages) <= 4


def test_memory_may_be_halves(config: FlowConfig) -> None:
    flow, exact = make_flow(config, FlowPolicy(dtype=torch.float16)), make_flow(config)
    speech = Speech.of([25, 50, 50], seed=1)
    graphs = FlowGraphs(flow, rows=1, slots=1, pages=10)
    seat = graphs.open_sequence(graphs.store_voice(voice_of(flow, 2)))
    expected = plainly(exact, voice_of(exact, 2), speech)
    differences = [
        float((graphs.step(FlowChunk(*chunk), [seat]) - mel).abs().max())
        for chunk, mel in zip(speech.chunks, expected, strict=True)
    ]
    assert 0 < max(differences) < 2e-3


def test_steps_are_recorded_beforehand_and_harm_nobody(config: FlowConfig) -> None:
    flow = make_flow(config)
    graphs = FlowGraphs(flow, rows=3, slots=2, pages=10)
    voice, speech = voice_of(flow, 2), Speech.of([25, 50, 30], seed=1)
    seat = graphs.open_sequence(graphs.store_voice(voice))
    expected = plainly(flow, voice, speech)
    assert_same(graphs.step(FlowChunk(*speech.chunks[0]), [seat]), expected[0])
    graphs.record(max_blocks=2)
    recorded = len(graphs._steps)
    assert recorded == 3 * 2 * 2 * 2  # rows 1, 2, 3; blocks 1, 2; pages 8, 10; last or not
    for chunk, mel in zip(speech.chunks[1:], expected[1:], strict=True):
        assert_same(graphs.step(FlowChunk(*chunk), [seat]), mel)
    assert len(graphs._steps) == recorded


def test_a_step_without_pages_left_can_be_tried_again(config: FlowConfig) -> None:
    flow = make_flow(config)
    voice, speech = voice_of(flow, 1), Speech.of([50, 50, 25], seed=1)
    graphs = FlowGraphs(flow, rows=2, slots=2, pages=6)
    kept = graphs.store_voice(voice)
    seats = [graphs.open_sequence(kept) for _ in range(2)]
    first, second, _ = speech.chunks
    together(graphs, seats, [first, first])
    with pytest.raises(MemoryError, match="out of memory: 2 of 6 pages wanted, 1 free"):
        together(graphs, seats, [second, second])
    del seats[1]
    gc.collect()
    expected = plainly(flow, voice, speech)
    assert_same(graphs.step(FlowChunk(*second), seats), expected[1])


def test_no_more_sessions_than_rows_of_contexts(config: FlowConfig) -> None:
    flow = make_flow(config)
    graphs = FlowGraphs(flow, rows=1, slots=1, pages=8)
    kept = graphs.store_voice(voice_of(flow, 0))
    seat = graphs.open_sequence(kept)
    with pytest.raises(MemoryError, match="1 of 1 rows of contexts wanted, 0 free"):
        graphs.open_sequence(kept)
    del seat
    graphs.open_sequence(kept)


def test_what_a_plain_step_refuses_is_refused(config: FlowConfig) -> None:
    flow = make_flow(config)
    graphs = FlowGraphs(flow, rows=1, slots=1, pages=8)
    seat = graphs.open_sequence(graphs.store_voice(voice_of(flow, 1)))
    ids = random_ids(24, 0)
    with pytest.raises(ValueError, match="a chunk has 24 ids; allowed: a multiple of 25"):
        graphs.step(FlowChunk(ids, ids[:, :3], torch.zeros(1, 80, 48)), [seat])
    with pytest.raises(ValueError, match=r"cache_form is CacheForm\.INPUTS; pages hold keys and values only"):
        FlowGraphs(make_flow(config, FlowPolicy(cache_form=CacheForm.INPUTS)), rows=1, slots=1, pages=8)


def test_a_place_is_free_when_its_last_user_has_left() -> None:
    ledger = PageAllocator(4, "places")
    first = ledger.allocate(2)
    assert first == [1, 2]
    shared = ledger.share(list(first))
    ledger.release(first)
    assert ledger.free == 1
    ledger.release(shared)
    assert ledger.free == 3
    with pytest.raises(MemoryError, match="4 of 3 places wanted, 3 free"):
        ledger.allocate(4)
    assert sorted(ledger.allocate(3)) == [1, 2, 3]
