"""Tests of the eager flow runner's memory on a CPU: the voice's memory is shared or copied."""

import sys

import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from torch import Tensor  # noqa: E402

from vivavoce.models.cosyvoice.config import EncoderConfig, FlowConfig, UnetConfig  # noqa: E402
from vivavoce.models.cosyvoice.flow.attention_memory import release_pages_behind  # noqa: E402
from vivavoce.models.cosyvoice.flow.flow import Flow, state_bytes_per_s  # noqa: E402
from vivavoce.models.cosyvoice.flow.policy import FlowPolicy  # noqa: E402
from vivavoce.models.cosyvoice.flow.state import FlowChunk  # noqa: E402
from vivavoce.models.networks.layers import prepare_modules  # noqa: E402
from vivavoce.tts_engine.cosyvoice.rendering import flow_runner  # noqa: E402
from vivavoce.tts_engine.cosyvoice.rendering.flow_runner import EagerFlowRunner, OwnSequence, PreparedVoice  # noqa: E402

CONFIG = FlowConfig(
    EncoderConfig(width=32, heads=2, inner=64, layers=2, up_layers=1),
    UnetConfig(channels=32, head_width=64, blocks=1, mid_blocks=1, heads=4),
    codebook_size=50,
)
RESERVE = 4 * 50
VOICE_IDS = 50

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="memory is shared only where pages can be released"
)


class FlowSetup:
    """A flow and its runner."""

    def __init__(self, policy: FlowPolicy) -> None:
        self._flow = make_flow(policy)
        self.runner = EagerFlowRunner(self._flow, 0.1)

    def voice(self) -> PreparedVoice:
        ids, mel = torch.arange(VOICE_IDS + 3)[None] % 50, torch.zeros(1, 80, 2 * (VOICE_IDS + 3))
        return self.runner.prepare_voice(
            self._flow.prefill(ids, mel, self._flow.project_speaker(torch.ones(1, 192)))[0]
        )

    def sentence(self, sequence: OwnSequence, seed: int, chunks: int = 2) -> Tensor:
        return torch.cat([self.step(sequence, seed + place) for place in range(chunks)], 2)

    def step(self, sequence: OwnSequence, seed: int) -> Tensor:
        ids = torch.randint(50, (1, 28), generator=torch.Generator().manual_seed(seed))
        return self.runner.step(FlowChunk(ids[:, :25], ids[:, 25:], torch.zeros(1, 80, 50)), [sequence])


@pytest.fixture(scope="module")
def setup() -> FlowSetup:
    return FlowSetup(FlowPolicy(reserve_frames=RESERVE))


def make_flow(policy: FlowPolicy) -> Flow:
    torch.manual_seed(0)
    flow = Flow(CONFIG, policy)
    for parameter in flow.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    flow.requires_grad_(False)
    prepare_modules(flow)
    return flow


def memory_of(state: object) -> int:
    return state.solver[0].cache.data_ptr()  # type: ignore[attr-defined,no-any-return]


def test_consecutive_sentences_reuse_the_memory_of_the_voice(setup: FlowSetup) -> None:
    voice = setup.voice()
    mels = []
    for seed in (1, 5, 1):
        sequence = setup.runner.open_sentence(voice)
        assert memory_of(sequence.state) == memory_of(voice.state)
        mels.append(setup.sentence(sequence, seed))
        del sequence
    assert torch.equal(mels[0], mels[2])
    assert not torch.equal(mels[0], mels[1])


def test_concurrent_sentences_of_a_voice_do_not_affect_each_other(setup: FlowSetup) -> None:
    alone = (
        setup.sentence(setup.runner.open_sentence(setup.voice()), 1),
        setup.sentence(setup.runner.open_sentence(setup.voice()), 7),
    )
    voice = setup.voice()
    first = setup.runner.open_sentence(voice)
    first_mel = setup.step(first, 1)
    second = setup.runner.open_sentence(voice)
    assert memory_of(second.state) != memory_of(voice.state)
    second_mel = setup.sentence(second, 7)
    assert torch.equal(torch.cat([first_mel, setup.step(first, 2)], 2), alone[0])
    assert torch.equal(second_mel, alone[1])


def test_shared_memory_counts_for_the_sentence_and_not_for_the_voice(setup: FlowSetup) -> None:
    voice = setup.voice()
    assert setup.runner.prepared_voice_ids(voice) == setup.runner.copied_voice_ids(VOICE_IDS) == VOICE_IDS
    sequence = setup.runner.open_sentence(voice)
    assert setup.runner.prepared_voice_ids(voice) == 0
    setup.sentence(sequence, 1)
    del sequence
    assert setup.runner.prepared_voice_ids(voice) == VOICE_IDS + 25  # and the pages of a first chunk


def test_a_sentence_that_outgrows_the_shared_memory_returns_it(setup: FlowSetup) -> None:
    voice = setup.voice()
    long, other = setup.runner.open_sentence(voice), setup.runner.open_sentence(setup.voice())
    setup.sentence(long, 1, chunks=RESERVE // 50)
    assert not voice.can_lend_memory
    setup.step(long, 9)
    assert voice.can_lend_memory
    next_one = setup.runner.open_sentence(voice)
    assert torch.equal(setup.sentence(next_one, 3), setup.sentence(other, 3))


def test_a_voice_with_a_bounded_window_is_copied_for_each_sentence() -> None:
    bounded = FlowSetup(FlowPolicy(window_frames=100))
    voice = bounded.voice()
    first, again = (bounded.sentence(bounded.runner.open_sentence(voice), 1) for _ in range(2))
    assert torch.equal(first, again)


def test_a_step_that_needs_more_memory_than_is_free_raises_memory_error(
    setup: FlowSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    voice = setup.voice()
    sequence, chunk_bytes = (
        setup.runner.open_sentence(voice),
        state_bytes_per_s(CONFIG, FlowPolicy()),
    )  # of 1 s
    monkeypatch.setattr(flow_runner, "free_bytes", lambda device: chunk_bytes - 1)
    with pytest.raises(MemoryError, match="bytes needed"):
        setup.step(sequence, 1)
    with pytest.raises(MemoryError, match="bytes needed"):
        setup.runner.open_sentence(voice)  # its memory is shared and would have to be copied
    monkeypatch.setattr(flow_runner, "free_bytes", lambda device: chunk_bytes)
    assert setup.step(sequence, 1).shape[2] == 50


def test_released_pages_are_zero_and_earlier_frames_are_kept() -> None:
    kept = torch.ones(2, 3, 2, 5000, 16)  # 80 pages a buffer, none of which begins with one
    release_pages_behind(kept, 1001)
    assert kept[..., :1001, :].eq(1).all()
    zeros = kept[..., 1001:, :].eq(0).float().mean()
    assert zeros > 0.95
    kept[..., 1001:, :] = 2
    assert kept[..., 1001:, :].eq(2).all()
