"""The token encoder in steps, and its relative positions compared with a loop over frames."""

import pytest

torch = pytest.importorskip("torch", reason="the [cosyvoice] extra is not installed")

from golden.reference.rule_weights import WeightRule, rule_weights  # noqa: E402
from vivavoce.models.cosyvoice.config import EncoderConfig  # noqa: E402
from vivavoce.models.cosyvoice.flow.attention_plan import make_plan  # noqa: E402
from vivavoce.models.cosyvoice.flow.encoder import FlowEncoder, LookaheadLayer, sine_table  # noqa: E402
from vivavoce.models.networks.layers import load_weights  # noqa: E402

WIDTH, LENGTH = 24, 60


def load_rule_weights(network: torch.nn.Module) -> None:
    shapes = {key: tuple(tensor.shape) for key, tensor in network.state_dict().items()}
    load_weights(
        network, {key: torch.from_numpy(value) for key, value in rule_weights(shapes, WeightRule()).items()}
    )


def encode(encoder: FlowEncoder, x: torch.Tensor, edges: tuple[int, ...], window_ids: int) -> torch.Tensor:
    state, pieces, begin = encoder.init_state(len(x), 2 * window_ids), [], 0
    with torch.inference_mode():
        for end in (*edges, x.shape[1]):
            ids = make_plan([begin] * len(x), end - begin, block=25, capacity=window_ids)
            frames = make_plan([2 * begin] * len(x), 2 * (end - begin), block=50, capacity=2 * window_ids)
            y, state = encoder.step(
                x[:, begin:end], x[:, end : end + 3][:, : 3 * (end < x.shape[1])], state, ids, frames
            )
            pieces.append(y)
            begin = end
    return torch.cat(pieces, 1)


@pytest.fixture(scope="module")
def encoder() -> FlowEncoder:
    encoder = FlowEncoder(EncoderConfig(WIDTH, 2, 32, 2, 1))
    load_rule_weights(encoder)
    return encoder


def random_embeddings(length: int = LENGTH) -> torch.Tensor:
    return torch.randn(2, length, WIDTH, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("edges", [(25,), (50,), (25, 50)])
def test_any_split_gives_the_conditioning_of_all_ids_at_once(
    encoder: FlowEncoder, edges: tuple[int, ...]
) -> None:
    x = random_embeddings()
    assert torch.allclose(encode(encoder, x, edges, LENGTH), encode(encoder, x, (), LENGTH), atol=1e-5)


def test_a_bounded_window_does_not_depend_on_the_split(encoder: FlowEncoder) -> None:
    x = random_embeddings(160)
    single, several = encode(encoder, x, (25, 50, 75, 100, 125), 50), encode(encoder, x, (75, 150), 50)
    assert torch.allclose(single, several, atol=1e-5)
    assert torch.allclose(single[:, :100], encode(encoder, x, (), 160)[:, :100], atol=1e-5)


def test_the_lookahead_reaches_three_ids(encoder: FlowEncoder) -> None:
    x = random_embeddings()
    changed = x.clone()
    changed[:, 28] += 1
    before, after = encode(encoder, x, (25, 50), LENGTH), encode(encoder, changed, (25, 50), LENGTH)
    assert torch.equal(before[:, :50], after[:, :50])
    changed[:, 27] += 1
    assert not torch.allclose(before[:, :50], encode(encoder, changed, (25, 50), LENGTH)[:, :50], atol=1e-4)


def test_scores_by_distance_equal_a_loop_over_frames(encoder: FlowEncoder) -> None:
    attention = encoder.encoders[0].get_submodule("self_attn")
    x, heads, size = random_embeddings(), 2, WIDTH // 2
    cache = torch.zeros(2, 2, LENGTH, WIDTH)
    from vivavoce.models.cosyvoice.flow.encoder import _DistanceTable

    plan = make_plan([0, 0], LENGTH, block=25, capacity=LENGTH)
    attended = attention(x, cache, plan, _DistanceTable(plan, x))
    q = attention.project_queries(x).unflatten(-1, (heads, size))
    k, v = attention.project_keys_values(x).unflatten(-1, (2, heads, size)).unbind(2)
    rows = []
    for query in range(LENGTH):
        end = min((query // 25 + 1) * 25, LENGTH)
        distances = sine_table(query - end + 1, query, WIDTH, x.device).flip(0)
        place = attention.linear_pos(distances).unflatten(-1, (heads, size))
        score = torch.einsum("bhd,bkhd->bhk", q[:, query] + attention.pos_bias_u, k[:, :end])
        score = score + torch.einsum("bhd,khd->bhk", q[:, query] + attention.pos_bias_v, place)
        rows.append(torch.einsum("bhk,bkhd->bhd", (score / size**0.5).softmax(-1), v[:, :end]).flatten(1))
    assert torch.allclose(attended, attention.linear_out(torch.stack(rows, 1)), atol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_a_chunk_shorter_than_the_lookahead_works(length: int) -> None:
    layer = LookaheadLayer(6, 8)
    load_rule_weights(layer)
    x = torch.randn(1, 10, 6, generator=torch.Generator().manual_seed(0))
    begin = layer.conv2.initial_context(1)
    whole, _ = layer(x, x[:, :0], begin)
    first, _ = layer(x[:, :length], x[:, length : length + 3], begin)
    assert torch.allclose(first, whole[:, :length], atol=1e-6)
