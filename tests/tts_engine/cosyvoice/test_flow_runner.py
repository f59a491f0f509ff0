"""What sentences of a voice remember of the flow on a CPU: the voice's own memory, lent, or a copy."""

import sys

import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: pip install 'vivavoce[cosyvoice]'"
)

from torch import Tensor  # noqa: E402

from vivavoce.models.cosyvoice.flow.attention_memory import release_pages_behind  # noqa: E402
from vivavoce.models.cosyvoice.flow.encoder import EncoderConfig  # noqa: E402
from vivavoce.models.cosyvoice.flow.flow import Flow, FlowChunk, FlowConfig, FlowPolicy, state_bytes_per_s  # noqa: E402
from vivavoce.models.cosyvoice.flow.unet import UnetConfig  # noqa: E402
from vivavoce.models.cosyvoice.layers import prepare_modules  # noqa: E402
from vivavoce.tts_engine.cosyvoice import flow_runner  # noqa: E402
from vivavoce.tts_engine.cosyvoice.flow_runner import EagerFlowRunner, OwnSequence, PreparedVoice  # noqa: E402

CONFIG = FlowConfig(
    EncoderConfig(width=32, heads=2, inner=64, layers=2, up_layers=1),
    UnetConfig(channels=32, attention_head_dim=64, blocks=1, mid_blocks=1, heads=4),
    speech_ids=50,
)
RESERVE = 4 * 50
VOICE_IDS = 50

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(sys.platform != "linux", reason="memory is lent where pages can be given back"),
]


class House:
    """A flow and its runner."""

    def __init__(self, policy: FlowPolicy) -> None:
        self._flow = make_flow(policy)
        self.runner = EagerFlowRunner(self._flow, 0.1)

    def voice(self) -> PreparedVoice:
        ids, mel = torch.arange(VOICE_IDS + 3)[None] % 50, torch.zeros(1, 80, 2 * (VOICE_IDS + 3))
        return self.runner.prepare_voice(
            self._flow.prefill(ids, mel, self._flow.project_speaker(torch.ones(1, 192)))[0]
        )

    def sentence(self, seat: OwnSequence, seed: int, chunks: int = 2) -> Tensor:
        return torch.cat([self.step(seat, seed + place) for place in range(chunks)], 2)

    def step(self, seat: OwnSequence, seed: int) -> Tensor:
        ids = torch.randint(50, (1, 28), generator=torch.Generator().manual_seed(seed))
        return self.runner.step(FlowChunk(ids[:, :25], ids[:, 25:], torch.zeros(1, 80, 50)), [seat])


@pytest.fixture(scope="module")
def house() -> House:
    return House(FlowPolicy(reserve_frames=RESERVE))


def make_flow(policy: FlowPolicy) -> Flow:
    torch.manual_seed(0)
    flow = Flow(CONFIG, policy)
    for parameter in flow.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    flow.requires_grad_(False)
    prepare_modules(flow)
    return flow


def memory_of(state: object) -> int:
    return state.solver[0].kept.data_ptr()  # type: ignore[attr-defined,no-any-return]


def test_one_sentence_after_another_has_the_voice_s_own_memory(house: House) -> None:
    voice = house.voice()
    mels = []
    for seed in (1, 5, 1):
        seat = house.runner.open_sentence(voice)
        assert memory_of(seat.state) == memory_of(voice.state)
        mels.append(house.sentence(seat, seed))
        del seat
    assert torch.equal(mels[0], mels[2])
    assert not torch.equal(mels[0], mels[1])


def test_sentences_of_a_voice_at_once_do_not_hear_each_other(house: House) -> None:
    alone = (
        house.sentence(house.runner.open_sentence(house.voice()), 1),
        house.sentence(house.runner.open_sentence(house.voice()), 7),
    )
    voice = house.voice()
    first = house.runner.open_sentence(voice)
    begun = house.step(first, 1)
    second = house.runner.open_sentence(voice)
    assert memory_of(second.state) != memory_of(voice.state)
    both = house.sentence(second, 7)
    assert torch.equal(torch.cat([begun, house.step(first, 2)], 2), alone[0])
    assert torch.equal(both, alone[1])


def test_a_voice_s_memory_is_reckoned_with_its_sentence_while_it_is_lent(house: House) -> None:
    voice = house.voice()
    assert house.runner.prepared_voice_ids(voice) == house.runner.copied_voice_ids(VOICE_IDS) == VOICE_IDS
    seat = house.runner.open_sentence(voice)
    assert house.runner.prepared_voice_ids(voice) == 0
    house.sentence(seat, 1)
    del seat
    assert house.runner.prepared_voice_ids(voice) == VOICE_IDS + 25  # and the pages of a first chunk


def test_a_sentence_that_outgrows_the_room_leaves_it_to_the_next(house: House) -> None:
    voice = house.voice()
    long, other = house.runner.open_sentence(voice), house.runner.open_sentence(house.voice())
    house.sentence(long, 1, chunks=RESERVE // 50)
    assert not voice.can_lend_memory
    house.step(long, 9)
    assert voice.can_lend_memory
    next_one = house.runner.open_sentence(voice)
    assert torch.equal(house.sentence(next_one, 3), house.sentence(other, 3))


def test_a_voice_with_a_bounded_window_is_copied_for_each() -> None:
    bounded = House(FlowPolicy(window_frames=100))
    voice = bounded.voice()
    first, again = (bounded.sentence(bounded.runner.open_sentence(voice), 1) for _ in range(2))
    assert torch.equal(first, again)


def test_a_sentence_that_would_fill_the_machine_fails_by_itself(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    voice = house.voice()
    seat, chunk_bytes = house.runner.open_sentence(voice), state_bytes_per_s(CONFIG, FlowPolicy())  # of 1 s
    monkeypatch.setattr(flow_runner, "free_bytes", lambda device: chunk_bytes - 1)
    with pytest.raises(MemoryError, match="bytes wanted"):
        house.step(seat, 1)
    with pytest.raises(MemoryError, match="bytes wanted"):
        house.runner.open_sentence(voice)  # which is lent, and would have to be copied
    monkeypatch.setattr(flow_runner, "free_bytes", lambda device: chunk_bytes)
    assert house.step(seat, 1).shape[2] == 50


def test_pages_behind_are_given_back_and_nothing_before_them() -> None:
    kept = torch.ones(2, 3, 2, 5000, 16)  # 80 pages a buffer, none of which begins with one
    release_pages_behind(kept, 1001)
    assert kept[..., :1001, :].eq(1).all()
    noughts = kept[..., 1001:, :].eq(0).float().mean()
    assert noughts > 0.95
    kept[..., 1001:, :] = 2
    assert kept[..., 1001:, :].eq(2).all()
