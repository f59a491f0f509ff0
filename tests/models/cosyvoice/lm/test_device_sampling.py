"""Sampling on tensors: the ids of the numpy rule for the same random numbers."""

import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from vivavoce.models.cosyvoice.lm.device_sampling import (  # noqa: E402
    NO_ID,
    SamplingInputs,
    after_choice,
    choose_ids,
    default_sampling_inputs,
    write_sampling_inputs,
)
from vivavoce.models.cosyvoice.lm.sampling import (  # noqa: E402
    SamplingContext,
    SamplingParameters,
    sample_ids,
)
from vivavoce.models.decoding.uniforms import PeekableUniforms, seeded_uniforms  # noqa: E402

IDS = 300


class FixedUniforms:
    """Uniform numbers from a list."""

    def __init__(self, *numbers: float) -> None:
        self._numbers = list(numbers)

    def random(self) -> float:
        return self._numbers.pop(0)


def inputs_of(contexts: list[SamplingContext], uniforms: np.ndarray) -> SamplingInputs:
    inputs = default_sampling_inputs(len(contexts), uniforms.shape[1] // 2, 16, 40)
    for row, context in enumerate(contexts):
        write_sampling_inputs(inputs, row, context, uniforms[row].tolist())
    return inputs


def test_the_same_random_numbers_choose_the_same_ids() -> None:
    generator = np.random.default_rng(5)
    rows, redrawn = 64, 0
    for round in range(30):
        logits = (generator.standard_normal((rows, IDS)) * generator.uniform(0.2, 6, (rows, 1))).astype("f4")
        uniforms = generator.random((rows, 2))
        contexts = []
        for row in range(rows):
            parameters = SamplingParameters(
                temperature=float(generator.uniform(0.3, 1.5)),
                top_p=float(generator.uniform(0.1, 1.0)),
                top_k=int(generator.integers(1, 2 * IDS)),
                repetition_window=int(generator.integers(0, 12)),
                repetition_threshold=float(generator.uniform(0.05, 0.3)),
            )
            likely = np.argsort(-logits[row])[:6]
            decoded = generator.choice(likely, int(generator.integers(0, 15))).tolist()
            forbidden = tuple(generator.choice(IDS, int(generator.integers(0, 40)), replace=False).tolist())
            contexts.append(SamplingContext(decoded, FixedUniforms(*uniforms[row]), forbidden, parameters))
        expected = sample_ids(logits, contexts)
        chosen = choose_ids(torch.from_numpy(logits), inputs_of(contexts, uniforms)).tolist()
        assert chosen == [[draw.id, draw.redrawn] for draw in expected], round
        redrawn += sum(draw.redrawn for draw in expected)
    assert redrawn > 100


def test_updated_inputs_are_those_that_the_host_would_write() -> None:
    generator = np.random.default_rng(6)
    rows, choices, redrawn = 40, 6, 0
    numbers = generator.random((rows, 2 * choices))
    sources = [PeekableUniforms(FixedUniforms(*numbers[row])) for row in range(rows)]
    decoded = [generator.choice(IDS, int(generator.integers(0, 15))).tolist() for _ in range(rows)]
    parameters = [
        SamplingParameters(
            top_k=int(generator.integers(1, 5)),
            repetition_window=int(generator.integers(0, 12)),
            repetition_threshold=float(generator.uniform(0.05, 0.3)),
        )
        for _ in range(rows)
    ]
    contexts = [SamplingContext(decoded[row], sources[row], (row,), parameters[row]) for row in range(rows)]
    inputs = inputs_of(contexts, numbers)
    logits = (3 * generator.standard_normal((rows, IDS))).astype(
        "f4"
    )  # the same in every step, so that ids repeat
    for _ in range(choices):
        chosen = choose_ids(torch.from_numpy(logits), inputs)
        expected = sample_ids(logits, contexts)
        assert chosen.tolist() == [[draw.id, draw.redrawn] for draw in expected]
        inputs = after_choice(inputs, chosen)
        for row, draw in enumerate(expected):
            decoded[row].append(draw.id)
        redrawn += sum(draw.redrawn for draw in expected)
    assert redrawn > 50


def test_draws_have_the_probabilities_of_the_rule() -> None:
    scores = np.log(np.array([0.05, 0.4, 0.2, 0.3, 0.05], np.float32))
    evenly = (np.arange(10_000) + 0.5) / 10_000
    uniforms = np.stack([np.repeat(evenly[::100], 100)[: len(evenly)], np.tile(evenly[::100], 100)], 1)
    context = SamplingContext([1, 1], FixedUniforms(), (0,), SamplingParameters(top_p=0.7))
    inputs = inputs_of([context] * len(evenly), uniforms)
    chosen = choose_ids(torch.from_numpy(np.tile(scores, (len(evenly), 1))), inputs)
    # Of the allowed 0.95, ids 1 and 3 are the nucleus; id 1 is a repetition, redrawn among 2, 3 and 4.
    first, again = 4 / 7, np.array([0, 0, 0.2, 0.3, 0.05]) / 0.55
    expected = first * again + np.array([0, 0, 0, 3 / 7, 0])
    assert np.bincount(chosen[:, 0], minlength=5) / len(evenly) == pytest.approx(expected, abs=0.011)
    assert chosen[:, 1].float().mean() == pytest.approx(first, abs=0.011)


def test_equal_scores_are_ordered_by_id() -> None:
    context = SamplingContext([], FixedUniforms(), parameters=SamplingParameters(top_k=3))
    for uniform, id in ((0.1, 0), (0.5, 1), (0.9, 2)):
        inputs = inputs_of([context], np.array([[uniform, 0]]))
        assert choose_ids(torch.zeros(1, IDS), inputs).tolist() == [[id, 0]]


def test_a_row_without_an_allowed_id_gets_no_id() -> None:
    logits = torch.zeros(3, 30)
    logits[2] = float("nan")
    contexts = [
        SamplingContext([], FixedUniforms(), range(29)),
        SamplingContext([], FixedUniforms(), range(30)),
        SamplingContext([], FixedUniforms()),
    ]
    chosen = choose_ids(logits, inputs_of(contexts, np.full((3, 2), 0.5)))
    assert chosen[:, 0].tolist() == [29, NO_ID, NO_ID]


def test_the_only_allowed_id_is_kept_even_if_repeated() -> None:
    context = SamplingContext([3, 3], FixedUniforms(), (0, 1, 2))
    assert choose_ids(torch.zeros(1, 4), inputs_of([context], np.full((1, 2), 0.5))).tolist() == [[3, 1]]


def test_a_list_longer_than_its_tensor_is_refused() -> None:
    inputs = default_sampling_inputs(1, 1, 16, 2)
    with pytest.raises(ValueError, match="3 ids are listed; there is room for 2"):
        write_sampling_inputs(inputs, 0, SamplingContext([], FixedUniforms(), (1, 2, 3)), [0.0, 0.0])


def test_peeked_random_numbers_are_consumed_in_order() -> None:
    plain, peeked = seeded_uniforms(3), seeded_uniforms(3)
    expected = [plain.random() for _ in range(6)]
    assert peeked.peek(2) == expected[:2]
    assert peeked.random() == expected[0]
    assert peeked.peek(3) == expected[1:4]
    assert peeked.peek(1) == expected[1:2]
    assert [peeked.random() for _ in range(5)] == expected[1:]
    assert PeekableUniforms(FixedUniforms(0.5)).peek(1) == [0.5]
