"""Random choices of training have upstream's distributions, and batches hold every utterance once."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the [train] extra is not installed")

from vivavoce.models.cosyvoice.training.draws import DrawSeed, draw_flow, draw_interleaved  # noqa: E402
from vivavoce.models.cosyvoice.training.loop.batches import cut_batches, plan_epoch  # noqa: E402

SEED = DrawSeed(7, 1)
FRAMES = [int(count) for count in np.random.default_rng(0).integers(50, 900, 700)]


def test_an_utterance_draws_the_same_in_any_batch() -> None:
    together = draw_flow(SEED, 3, [5, 9], [40, 60])
    alone = draw_flow(SEED, 3, [9], [60])
    assert torch.equal(together.noise[1], alone.noise[0])
    assert together.time[1] == alone.time[0] and together.prompt_frames[1] == alone.prompt_frames[0]
    assert together.streaming == alone.streaming and together.kept[1] == alone.kept[0]
    assert not together.noise[0, 40:].any()


def test_another_epoch_and_another_utterance_draw_otherwise() -> None:
    times = {float(draw_flow(DrawSeed(7, epoch), 0, [5], [40]).time) for epoch in range(20)}
    assert len(times) == 20
    assert len({float(draw_flow(SEED, 0, [number], [40]).time) for number in range(20)}) == 20


def test_shares_are_those_of_upstream() -> None:
    draws = draw_flow(SEED, 0, range(3000), [100] * 3000)
    assert float(draws.kept.float().mean()) == pytest.approx(0.8, abs=0.03)
    prompts = draws.prompt_frames
    assert float((prompts == 0).float().mean()) == pytest.approx(0.5 + 0.5 / 31, abs=0.03)
    assert int(prompts.max()) == 30
    assert float(draws.time.mean()) == pytest.approx(0.5, abs=0.02)
    assert float(draws.noise.std()) == pytest.approx(1, abs=0.01)
    streaming = [draw_flow(SEED, step, [0], [10]).streaming for step in range(1000)]
    assert sum(streaming) / 1000 == pytest.approx(0.5, abs=0.05)
    interleaved = [draw_interleaved(SEED, number) for number in range(1000)]
    assert sum(interleaved) / 1000 == pytest.approx(0.5, abs=0.05)


def test_an_epoch_has_every_utterance_once_in_batches_of_bounded_size() -> None:
    numbers = list(range(0, 700, 2))
    batches = plan_epoch(numbers, FRAMES, SEED, 2000)
    assert sorted(number for batch in batches for number in batch) == numbers
    assert all(len(batch) * max(FRAMES[number] for number in batch) <= 2000 for batch in batches)
    assert len(batches) < len(numbers) / 2
    assert batches == plan_epoch(numbers, FRAMES, SEED, 2000)
    assert batches != plan_epoch(numbers, FRAMES, DrawSeed(7, 2), 2000)


def test_an_utterance_longer_than_a_batch_is_a_batch() -> None:
    assert list(cut_batches([0, 1, 2], [10, 5000, 10], 100)) == [[0], [1], [2]]
