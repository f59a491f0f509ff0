"""The flow in steps equals the flow over all ids at once: any split, batches, pools and windows."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the [cosyvoice] extra is not installed")

from golden.reference.rule_weights import WeightRule, rule_weights  # noqa: E402
from golden.reference.upstream_flow import AttentionMask, compute_whole  # noqa: E402
from shared.engine.session_states import scatter, size_bytes  # noqa: E402
from vivavoce.models.cosyvoice.config import (  # noqa: E402
    CosyVoiceVersion,
    DitConfig,
    EncoderConfig,
    FlowConfig,
    UnetConfig,
    released_config,
)
from vivavoce.models.cosyvoice.flow.flow import (  # noqa: E402
    Flow,
    solver_times,
    state_bytes_per_s,
)
from vivavoce.models.cosyvoice.flow.policy import CacheForm, FlowPolicy  # noqa: E402
from vivavoce.models.cosyvoice.flow.state import FlowChunk, FlowState  # noqa: E402
from vivavoce.models.networks.layers import load_weights  # noqa: E402
from vivavoce.models.networks.state import gather, join_states, map_state  # noqa: E402

DATA = Path(__file__).parents[3] / "golden" / "data"
RELEASED_V2 = released_config(CosyVoiceVersion.V2).flow
RELEASED_V3 = released_config(CosyVoiceVersion.V3).flow
SMALL_V2 = FlowConfig(
    EncoderConfig(32, 2, 48, 1, 1),
    UnetConfig(channels=16, head_width=8, blocks=1, mid_blocks=1, heads=2),
    codebook_size=60,
    solver_steps=3,
)
SMALL_V3 = FlowConfig(None, DitConfig(32, 2, 2, 16, 2), codebook_size=60, lookahead_width=24, solver_steps=3)
BOTH = pytest.mark.parametrize("config", [SMALL_V2, SMALL_V3], ids=["v2", "v3"])
FORMS = pytest.mark.parametrize("cache_form", list(CacheForm), ids=["keys-values", "inputs"])
TOLERANCE = 2e-5


def make_flow(config: FlowConfig, policy: FlowPolicy | None = None) -> Flow:
    flow = Flow(config, policy)
    shapes = {key: tuple(tensor.shape) for key, tensor in flow.state_dict().items()}
    load_weights(
        flow, {key: torch.from_numpy(value) for key, value in rule_weights(shapes, WeightRule()).items()}
    )
    return flow


def speaker(seed: int = 0) -> torch.Tensor:
    return 0.3 * torch.randn(1, 80, generator=torch.Generator().manual_seed(seed))


def random_ids(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 60, (1, count), generator=torch.Generator().manual_seed(seed))


def chunk(ids: torch.Tensor, begin: int, end: int, mel: torch.Tensor | None = None) -> FlowChunk:
    future = ids[:, end : end + 3] if end < ids.shape[1] else ids[:, :0]
    prompt = torch.zeros(len(ids), 80, 2 * (end - begin))
    if mel is not None:
        part = mel[..., 2 * begin : 2 * end]
        prompt[..., : part.shape[2]] = part
    return FlowChunk(ids[:, begin:end], future, prompt)


def step_through(
    flow: Flow, ids: torch.Tensor, edges: tuple[int, ...], state: FlowState, begin: int = 0
) -> tuple[torch.Tensor, FlowState]:
    mels = []
    for end in (*edges, ids.shape[1]):
        mel, state = flow.step(chunk(ids, begin, end), state)
        mels.append(mel)
        begin = end
    return torch.cat(mels, 2), state


def mel_of_whole(flow: Flow, ids: torch.Tensor, voice: torch.Tensor) -> torch.Tensor:
    return compute_whole(flow, chunk(ids, 0, ids.shape[1]), voice, AttentionMask.BLOCKS)


@BOTH
@FORMS
@pytest.mark.parametrize("edges", [(25,), (25, 50, 75, 100), (75,), (50, 100)])
def test_any_split_gives_the_mel_of_all_ids_at_once(
    config: FlowConfig, cache_form: CacheForm, edges: tuple[int, ...]
) -> None:
    flow = make_flow(config, FlowPolicy(cache_form=cache_form, reserve_frames=50))
    ids, voice = random_ids(113), speaker()
    mel, _ = step_through(flow, ids, edges, flow.init_state(voice))
    assert torch.allclose(mel, mel_of_whole(flow, ids, voice), atol=TOLERANCE)


@BOTH
def test_the_mel_of_every_prefix_equals_that_prefix_run_again(config: FlowConfig) -> None:
    flow, ids, voice = make_flow(config), random_ids(103), speaker()
    mel, _ = step_through(flow, ids, (25, 50, 75, 100), flow.init_state(voice))
    for end in (25, 50, 75):
        again = compute_whole(flow, chunk(ids, 0, end), voice, AttentionMask.BLOCKS)
        assert torch.allclose(mel[..., : 2 * end], again, atol=TOLERANCE)


@BOTH
def test_in_one_block_all_frames_attend_to_each_other(config: FlowConfig) -> None:
    ids, voice = random_ids(113), speaker()
    flow = make_flow(config, FlowPolicy(block_frames=400))
    mel, _ = step_through(flow, ids, (), flow.init_state(voice))
    whole = compute_whole(flow, chunk(ids, 0, ids.shape[1]), voice, AttentionMask.NONE)
    assert torch.allclose(mel, whole, atol=TOLERANCE)
    assert not torch.allclose(mel, mel_of_whole(flow, ids, voice), atol=1e-3)


@BOTH
def test_ids_after_the_lookahead_change_nothing(config: FlowConfig) -> None:
    flow, ids, voice = make_flow(config), random_ids(80), speaker()
    other = ids.clone()
    other[:, 53:] = (other[:, 53:] + 7) % 60
    nearer = ids.clone()
    nearer[:, 52:] = (nearer[:, 52:] + 7) % 60
    mels = [
        step_through(flow, x, (25, 50), flow.init_state(voice))[0][..., :100] for x in (ids, other, nearer)
    ]
    assert torch.equal(mels[0], mels[1])
    assert not torch.allclose(mels[0], mels[2], atol=1e-3)


@BOTH
@FORMS
def test_a_row_in_a_batch_equals_the_row_alone(config: FlowConfig, cache_form: CacheForm) -> None:
    flow = make_flow(config, FlowPolicy(cache_form=cache_form, reserve_frames=250))
    texts = [random_ids(103, seed) for seed in range(3)]
    voices = [speaker(seed) for seed in range(3)]
    begins = (0, 25, 75)
    alone, states = [], []
    for ids, voice, begin in zip(texts, voices, begins, strict=True):
        state = flow.init_state(voice)
        if begin:
            _, state = flow.step(chunk(ids, 0, begin), state)
        states.append(gather(state, [0]))
        alone.append(flow.step(chunk(ids, begin, begin + 25), state)[0])
    parts = [chunk(ids, begin, begin + 25) for ids, begin in zip(texts, begins, strict=True)]
    together = FlowChunk(
        *(torch.cat([getattr(part, name) for part in parts]) for name in ("ids", "future", "prompt_mel"))
    )
    mel, state = flow.step(together, join_states(states))
    assert torch.allclose(mel, torch.cat(alone), atol=TOLERANCE)
    assert state.frames.tolist() == [50, 100, 200]


@BOTH
def test_a_state_stored_in_a_pool_continues(config: FlowConfig) -> None:
    flow = make_flow(config, FlowPolicy(reserve_frames=250))
    ids, voice = random_ids(103), speaker()
    pool = flow.init_state(speaker(9).expand(4, -1))
    _, state = flow.step(chunk(ids, 0, 50), flow.init_state(voice))
    scatter(pool, [2], state)
    mel, _ = step_through(flow, ids, (75,), gather(pool, [2]), begin=50)
    assert torch.allclose(mel, mel_of_whole(flow, ids, voice)[..., 100:], atol=TOLERANCE)


@BOTH
def test_prompt_mel_and_speaker_change_the_mel(config: FlowConfig) -> None:
    flow, ids = make_flow(config), random_ids(60)
    mel = torch.randn(1, 80, 50, generator=torch.Generator().manual_seed(3))
    runs = [
        flow.step(chunk(ids, 0, 60, prompt), flow.init_state(voice))[0]
        for prompt, voice in ((None, speaker()), (None, speaker(1)), (mel, speaker()))
    ]
    assert not torch.allclose(runs[0], runs[1], atol=1e-2)
    assert not torch.allclose(runs[0], runs[2], atol=1e-2)


@BOTH
def test_rows_may_end_at_different_ids(config: FlowConfig) -> None:
    flow, voice = make_flow(config), speaker()
    ids = random_ids(50)
    both = FlowChunk(ids.expand(2, -1), ids[:, :0].expand(2, -1), torch.zeros(2, 80, 100), lengths=(50, 31))
    mel, _ = flow.step(both, flow.init_state(voice.expand(2, -1)))
    assert torch.allclose(mel[:1], mel_of_whole(flow, ids, voice), atol=TOLERANCE)
    assert torch.allclose(mel[1:, :, :62], mel_of_whole(flow, ids[:, :31], voice), atol=TOLERANCE)


@BOTH
@pytest.mark.parametrize("prompt", [20, 25, 28, 53, 80])
def test_a_prefilled_voice_is_not_changed_by_its_sessions(config: FlowConfig, prompt: int) -> None:
    flow, voice = make_flow(config), speaker()
    mel = torch.randn(1, 80, 2 * prompt, generator=torch.Generator().manual_seed(3))
    ids = random_ids(prompt + 40)
    prefilled, covered = flow.prefill(ids[:, :prompt], mel, voice)
    assert covered == max(0, (prompt - 3) // 25 * 25)
    expected = compute_whole(flow, chunk(ids, 0, ids.shape[1], mel), voice, AttentionMask.BLOCKS)[
        ..., 2 * covered :
    ]
    for _ in range(2):
        rest, _ = flow.step(chunk(ids, covered, ids.shape[1], mel), flow.copy_for_utterance(prefilled))
        assert torch.allclose(rest, expected, atol=TOLERANCE)


@BOTH
@FORMS
def test_a_bounded_window_is_exact_until_it_is_full_and_keeps_its_size(
    config: FlowConfig, cache_form: CacheForm
) -> None:
    flow = make_flow(config, FlowPolicy(window_frames=100, cache_form=cache_form))
    ids, voice = random_ids(203), speaker()
    state = flow.init_state(voice)
    before = size_bytes(state)
    mel, state = step_through(flow, ids, (25, 75, 125, 150, 200), state)
    expected = mel_of_whole(flow, ids, voice)
    assert torch.allclose(mel[..., :100], expected[..., :100], atol=TOLERANCE)
    assert not torch.allclose(mel[..., 200:], expected[..., 200:], atol=1e-3)
    assert size_bytes(state) == before


@BOTH
@FORMS
def test_a_bounded_window_does_not_depend_on_the_split(config: FlowConfig, cache_form: CacheForm) -> None:
    flow = make_flow(config, FlowPolicy(window_frames=100, cache_form=cache_form))
    ids, voice = random_ids(190), speaker()
    single, _ = step_through(flow, ids, (25, 50, 75, 100, 125, 150, 175), flow.init_state(voice))
    several, _ = step_through(flow, ids, (75, 175), flow.init_state(voice))
    assert torch.allclose(single, several, atol=TOLERANCE)


@BOTH
def test_half_precision_memory_is_nearly_exact(config: FlowConfig) -> None:
    flow = make_flow(config, FlowPolicy(dtype="float16"))
    ids, voice = random_ids(103), speaker()
    mel, _ = step_through(flow, ids, (25, 50, 75), flow.init_state(voice))
    assert torch.allclose(mel, mel_of_whole(flow, ids, voice), atol=1e-3)


@BOTH
@FORMS
def test_the_memory_has_the_size_given_by_state_bytes_per_s(
    config: FlowConfig, cache_form: CacheForm
) -> None:
    policy = FlowPolicy(cache_form=cache_form)
    flow = make_flow(config, policy)
    sizes = [size_bytes(flow.init_state(speaker(), frames=frames)) for frames in (100, 150)]
    assert sizes[1] - sizes[0] == state_bytes_per_s(config, policy)


def test_the_released_networks_need_the_documented_memory() -> None:
    sizes = {
        (name, cache_form.name): round(state_bytes_per_s(config, FlowPolicy(cache_form=cache_form)) / 1e6)
        for name, config in (("v2", RELEASED_V2), ("v3", RELEASED_V3))
        for cache_form in CacheForm
    }
    expected = {
        ("v2", "KEYS_VALUES"): 231,
        ("v2", "INPUTS"): 59,
        ("v3", "KEYS_VALUES"): 180,
        ("v3", "INPUTS"): 90,
    }
    assert sizes == expected


@BOTH
def test_an_invalid_chunk_raises(config: FlowConfig) -> None:
    flow, ids, voice = make_flow(config), random_ids(60), speaker()
    with pytest.raises(ValueError, match="24 ids; allowed: a multiple of 25"):
        flow.step(chunk(ids, 0, 24), flow.init_state(voice))
    with pytest.raises(ValueError, match="future has 2 ids; allowed: 3, or 0"):
        flow.step(replace(chunk(ids, 0, 25), future=ids[:, 25:27]), flow.init_state(voice))
    with pytest.raises(ValueError, match="prompt_mel has 49 frames; allowed: 50"):
        flow.step(replace(chunk(ids, 0, 25), prompt_mel=torch.zeros(1, 80, 49)), flow.init_state(voice))
    _, ended = flow.step(chunk(ids[:, :30], 0, 30), flow.init_state(voice))
    with pytest.raises(ValueError, match="last chunk has been rendered"):
        flow.step(chunk(ids, 25, 50), ended)


@pytest.mark.parametrize("window", [0, 75, -50])
def test_a_window_that_is_not_whole_blocks_raises(window: int) -> None:
    with pytest.raises(ValueError, match="a multiple of 50"):
        FlowPolicy(window_frames=window)


def test_a_flow_without_weights_names_what_is_missing() -> None:
    flow = Flow(SMALL_V3)
    with pytest.raises(RuntimeError, match="prepare"):
        compute_whole(flow, chunk(random_ids(3), 0, 3), speaker(), AttentionMask.NONE)
    with pytest.raises(RuntimeError, match=r"input_embedding\.weight"):
        load_weights(flow, {})


def test_the_solver_times_follow_a_cosine_from_0_to_1() -> None:
    times = solver_times(10)
    assert times[0][0] == 0.0
    assert sum(dt for _, dt in times) == pytest.approx(1.0, abs=1e-6)
    assert times[5][0] == pytest.approx(1 - 2**-0.5, abs=1e-6)


@pytest.mark.parametrize(("version", "config"), [(2, RELEASED_V2), (3, RELEASED_V3)])
def test_the_network_has_the_keys_and_shapes_of_the_released_checkpoint(
    version: int, config: FlowConfig
) -> None:
    manifest = json.loads((DATA / f"manifest_cosyvoice{version}_0.5b.json").read_text("utf-8"))
    with torch.device("meta"):
        flow = Flow(config)
    built = {key: list(tensor.shape) for key, tensor in flow.state_dict().items()}
    assert built == {key: shape for key, (shape, _) in manifest["flow.pt"]["tensors"].items()}


@BOTH
def test_sessions_share_a_step_without_copying_their_memories(config: FlowConfig) -> None:
    flow = make_flow(config, FlowPolicy(reserve_frames=60))
    ids = [random_ids(103, seed) for seed in range(3)]
    alone = [flow.init_state(speaker(seed)) for seed in range(3)]
    # The first session is a chunk ahead of the others.
    _, alone[0] = flow.step(chunk(ids[0], 0, 25), alone[0])
    together = [map_state(torch.clone, state) for state in alone]
    for begins in ((25, 0, 0), (50, 25, 25)):
        chunks = [chunk(ids[row], begin, begin + 25) for row, begin in enumerate(begins)]
        joined = FlowChunk(
            join_states([each.ids for each in chunks]),
            join_states([each.future for each in chunks]),
            join_states([each.prompt_mel for each in chunks]),
        )
        mel, together = flow.step_together(joined, together)
        for row, each in enumerate(chunks):
            expected, alone[row] = flow.step(each, alone[row])
            assert torch.allclose(mel[row : row + 1], expected, atol=TOLERANCE)
