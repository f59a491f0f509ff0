"""The choice as a function of tensors: the numpy rule's ids for the same random numbers."""

import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: pip install 'vivavoce[cosyvoice]'"
)

from vivavoce.models.cosyvoice.lm.device_sampling import (
    NO_ID,
    SamplingInputs,
    after_choice,
    choose_ids,
    default_sampling_inputs,
    write_sampling_inputs,
)
from vivavoce.models.cosyvoice.lm.sampling import (
    PeekableUniforms,
    SamplingContext,
    SamplingParameters,
    sample_ids,
    seeded_uniforms,
)

IDS = 300


class Fixed:
    """Numbers that were drawn before."""

    def __init__(self, *numbers: float) -> None:
        self._numbers = list(numbers)

    def random(self) -> float:
        return self._numbers.pop(0)


def wishes_of(choosers: list[SamplingContext], uniforms: np.ndarray) -> SamplingInputs:
    wishes = default_sampling_inputs(len(choosers), uniforms.shape[1] // 2, 16, 40)
    for row, chooser in enumerate(choosers):
        write_sampling_inputs(wishes, row, chooser, uniforms[row].tolist())
    return wishes


def test_the_same_random_numbers_choose_the_same_ids() -> None:
    generator = np.random.default_rng(5)
    rows, redrawn = 64, 0
    for round in range(30):
        logits = (generator.standard_normal((rows, IDS)) * generator.uniform(0.2, 6, (rows, 1))).astype("f4")
        uniforms = generator.random((rows, 2))
        choosers = []
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
            choosers.append(SamplingContext(decoded, Fixed(*uniforms[row]), forbidden, parameters))
        expected = sample_ids(logits, choosers)
        chosen = choose_ids(torch.from_numpy(logits), wishes_of(choosers, uniforms)).tolist()
        assert chosen == [[one.id, one.redrawn] for one in expected], round
        redrawn += sum(one.redrawn for one in expected)
    assert redrawn > 100


def test_a_device_goes_on_by_itself_as_it_would_be_told_to() -> None:
    generator = np.random.default_rng(6)
    rows, choices, redrawn = 40, 6, 0
    numbers = generator.random((rows, 2 * choices))
    sources = [PeekableUniforms(Fixed(*numbers[row])) for row in range(rows)]
    decoded = [generator.choice(IDS, int(generator.integers(0, 15))).tolist() for _ in range(rows)]
    parameters = [
        SamplingParameters(
            top_k=int(generator.integers(1, 5)),
            repetition_window=int(generator.integers(0, 12)),
            repetition_threshold=float(generator.uniform(0.05, 0.3)),
        )
        for _ in range(rows)
    ]
    told = [SamplingContext(decoded[row], sources[row], (row,), parameters[row]) for row in range(rows)]
    alone = wishes_of(told, numbers)
    logits = (3 * generator.standard_normal((rows, IDS))).astype("f4")  # the same again: much is repeated
    for _ in range(choices):
        chosen = choose_ids(torch.from_numpy(logits), alone)
        expected = sample_ids(logits, told)
        assert chosen.tolist() == [[one.id, one.redrawn] for one in expected]
        alone = after_choice(alone, chosen)
        for row, one in enumerate(expected):
            decoded[row].append(one.id)
        redrawn += sum(one.redrawn for one in expected)
    assert redrawn > 50


def test_draws_have_the_probabilities_of_the_rule() -> None:
    scores = np.log(np.array([0.05, 0.4, 0.2, 0.3, 0.05], np.float32))
    evenly = (np.arange(10_000) + 0.5) / 10_000
    uniforms = np.stack([np.repeat(evenly[::100], 100)[: len(evenly)], np.tile(evenly[::100], 100)], 1)
    chooser = SamplingContext([1, 1], Fixed(), (0,), SamplingParameters(top_p=0.7))
    wishes = wishes_of([chooser] * len(evenly), uniforms)
    chosen = choose_ids(torch.from_numpy(np.tile(scores, (len(evenly), 1))), wishes)
    # Of 0.95 that are allowed 1, 3 are the nucleus; 1 was heard, and gives way to 2, 3 and 4.
    first, again = 4 / 7, np.array([0, 0, 0.2, 0.3, 0.05]) / 0.55
    expected = first * again + np.array([0, 0, 0, 3 / 7, 0])
    assert np.bincount(chosen[:, 0], minlength=5) / len(evenly) == pytest.approx(expected, abs=0.011)
    assert chosen[:, 1].float().mean() == pytest.approx(first, abs=0.011)


def test_equal_scores_are_taken_in_the_order_of_ids() -> None:
    chooser = SamplingContext([], Fixed(), parameters=SamplingParameters(top_k=3))
    for uniform, id in ((0.1, 0), (0.5, 1), (0.9, 2)):
        wishes = wishes_of([chooser], np.array([[uniform, 0]]))
        assert choose_ids(torch.zeros(1, IDS), wishes).tolist() == [[id, 0]]


def test_where_nothing_may_be_chosen_that_is_said() -> None:
    logits = torch.zeros(3, 30)
    logits[2] = float("nan")
    choosers = [
        SamplingContext([], Fixed(), range(29)),
        SamplingContext([], Fixed(), range(30)),
        SamplingContext([], Fixed()),
    ]
    chosen = choose_ids(logits, wishes_of(choosers, np.full((3, 2), 0.5)))
    assert chosen[:, 0].tolist() == [29, NO_ID, NO_ID]


def test_the_only_id_is_kept_however_often_it_was_heard() -> None:
    chooser = SamplingContext([3, 3], Fixed(), (0, 1, 2))
    assert choose_ids(torch.zeros(1, 4), wishes_of([chooser], np.full((1, 2), 0.5))).tolist() == [[3, 1]]


def test_more_ids_than_there_is_room_for_are_refused() -> None:
    wishes = default_sampling_inputs(1, 1, 16, 2)
    with pytest.raises(ValueError, match="3 ids are listed; there is room for 2"):
        write_sampling_inputs(wishes, 0, SamplingContext([], Fixed(), (1, 2, 3)), [0.0, 0.0])


def test_random_numbers_that_were_looked_at_are_used_in_order() -> None:
    expected = [seeded_uniforms(3).random()]
    plain, looked_at = seeded_uniforms(3), seeded_uniforms(3)
    expected = [plain.random() for _ in range(6)]
    assert looked_at.peek(2) == expected[:2]
    assert looked_at.random() == expected[0]
    assert looked_at.peek(3) == expected[1:4]
    assert looked_at.peek(1) == expected[1:2]
    assert [looked_at.random() for _ in range(5)] == expected[1:]
    assert PeekableUniforms(Fixed(0.5)).peek(1) == [0.5]
