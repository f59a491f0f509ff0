"""Recorded steps of a vocoder equal its own steps: any number of streams, recorded chunks and others."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the [cosyvoice] extra is not installed")

from torch import Tensor  # noqa: E402

from golden.reference.rule_weights import WeightRule, rule_weights  # noqa: E402
from vivavoce.models.cosyvoice.config import HiftConfig  # noqa: E402
from vivavoce.models.cosyvoice.vocoder import vocoder_graphs  # noqa: E402
from vivavoce.models.cosyvoice.vocoder.hift_v2 import HiftV2  # noqa: E402
from vivavoce.models.cosyvoice.vocoder.hift_v3 import HiftV3  # noqa: E402
from vivavoce.models.cosyvoice.vocoder.vocoder_graphs import VocoderGraphs  # noqa: E402
from vivavoce.models.devices.planned_captures import CaptureQueue  # noqa: E402
from vivavoce.models.devices.torch_devices import CPU  # noqa: E402
from vivavoce.models.networks.cuda_graphs import StepGraph  # noqa: E402
from vivavoce.models.networks.layers import load_weights  # noqa: E402
from vivavoce.models.networks.state import map_state, tensors  # noqa: E402

CONFIG = HiftConfig(base_channels=16, f0_channels=12)
RULE = WeightRule(
    "", (("f0_predictor.classifier.weight", 150.0), ("conv_post.parametrizations.weight.original0", 0.1))
)
FIRST, NEXT, OTHER = 44, 20, 13  # mel frames of chunks
ROWS = 4
TOLERANCE = 2e-5  # of samples
STATE_TOLERANCE = 5e-4  # rows of a batch round otherwise than a row alone, and states are larger than samples

Vocoder = HiftV2 | HiftV3


@pytest.fixture(params=[HiftV2, HiftV3], ids=["v2", "v3"])
def vocoder(request: pytest.FixtureRequest) -> Vocoder:
    made: Vocoder = request.param(CONFIG)
    shapes = {key: tuple(tensor.shape) for key, tensor in made.state_dict().items()}
    load_weights(made, {key: torch.from_numpy(value) for key, value in rule_weights(shapes, RULE).items()})
    return made


class ReplayedStep(StepGraph[Any]):
    """A replay as on a card: it runs no code of the network that was not recorded, and reuses its output."""

    def __init__(self, run: Any, device: object, pool: object) -> None:
        super().__init__(run, CPU, None)
        self.outputs = run()
        self.replays = 0

    def replay(self) -> Any:
        self.replays += 1
        for output, part in zip(tensors(self.outputs), tensors(self._run()), strict=True):
            output.copy_(part)
        return self.outputs


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> list[ReplayedStep]:
    """All recorded steps, whose outputs each replay overwrites."""
    made: list[ReplayedStep] = []

    def record(*inputs: Any) -> ReplayedStep:
        made.append(ReplayedStep(*inputs))
        return made[-1]

    monkeypatch.setattr(vocoder_graphs, "StepGraph", record)
    return made


class Stream:
    """The chunks of one stream, and what the vocoder makes of them alone."""

    def __init__(self, vocoder: Vocoder, seed: int) -> None:
        self._vocoder = vocoder
        self._generator = torch.Generator().manual_seed(seed)
        self.state: Any = vocoder.init_state(1)
        self._state_alone: Any = vocoder.init_state(1)

    def chunk(self, frames: int) -> tuple[Tensor, Tensor, Tensor]:
        """Mel and noise of the next chunk, and the samples that are expected."""
        mel = torch.randn(1, 80, frames, generator=self._generator)
        count = self._vocoder.noise_samples(frames, self._state_alone, last=False)
        noise = torch.rand(1, count, CONFIG.sine_count, generator=self._generator)
        expected, self._state_alone = self._vocoder.step(mel, noise, self._state_alone)  # type: ignore[arg-type]
        return mel, noise, expected

    def assert_state_as_alone(self) -> None:
        for part, expected in zip(tensors(self.state), tensors(self._state_alone), strict=True):
            torch.testing.assert_close(part, expected, atol=STATE_TOLERANCE, rtol=0)


def step(graphs: VocoderGraphs, streams: list[Stream], frames: int) -> tuple[Tensor, Tensor]:
    """Step the streams together: samples, and those of each stream alone."""
    mels, noises, expected = zip(*(stream.chunk(frames) for stream in streams), strict=True)
    samples, states = graphs.step(torch.cat(mels), torch.cat(noises), [stream.state for stream in streams])
    for stream, state in zip(streams, states, strict=True):
        stream.state = state
    return samples, torch.cat(expected)


def assert_same(samples: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(samples, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("count", [1, 3, 4])
def test_streams_in_recorded_steps_equal_each_stream_alone(
    vocoder: Vocoder, replayed: list[ReplayedStep], count: int
) -> None:
    graphs = VocoderGraphs(vocoder, CPU, ROWS)
    CaptureQueue(graphs.planned_captures([FIRST, NEXT, NEXT])).capture_all()
    streams = [Stream(vocoder, seed) for seed in range(count)]
    for round_number, frames in enumerate((FIRST, NEXT, NEXT), 1):
        assert_same(*step(graphs, streams, frames))
        for stream in streams:
            stream.assert_state_as_alone()
        assert sum(each.replays for each in replayed) == round_number
    assert graphs.recorded_count == len(replayed) == 2 * 2  # first and next; rows 1 and 4, the most


def test_a_later_replay_changes_no_earlier_result(vocoder: Vocoder, replayed: list[ReplayedStep]) -> None:
    graphs = VocoderGraphs(vocoder, CPU, ROWS)
    CaptureQueue(graphs.planned_captures([FIRST, NEXT])).capture_all()
    first, second = ([Stream(vocoder, seed), Stream(vocoder, seed + 1)] for seed in (0, 5))
    earlier = step(graphs, first, FIRST)
    assert_same(*step(graphs, second, FIRST))
    assert_same(*earlier)
    earlier = step(graphs, first, NEXT)
    assert_same(*step(graphs, second, NEXT))
    assert_same(*earlier)
    for stream in (*first, *second):
        stream.assert_state_as_alone()
    assert sum(each.replays for each in replayed) == 4


def test_chunks_that_are_not_recorded_run_without_a_graph(
    vocoder: Vocoder, replayed: list[ReplayedStep]
) -> None:
    graphs = VocoderGraphs(vocoder, CPU, 2)
    CaptureQueue(graphs.planned_captures([FIRST, NEXT])).capture_all()
    streams = [Stream(vocoder, seed) for seed in range(3)]
    assert_same(*step(graphs, streams, FIRST))  # more rows than were recorded
    assert_same(*step(graphs, streams[:2], OTHER))
    assert not any(each.replays for each in replayed)
    assert_same(*step(graphs, streams[:2], NEXT))
    assert sum(each.replays for each in replayed) == 1
    assert graphs.recorded_count == 4


def test_recorded_frames_with_another_state_run_without_a_graph(
    vocoder: Vocoder, replayed: list[ReplayedStep]
) -> None:
    graphs = VocoderGraphs(vocoder, CPU, 1)
    CaptureQueue(graphs.planned_captures([FIRST, NEXT])).capture_all()
    begins_with_next, continues_with_first = Stream(vocoder, 0), Stream(vocoder, 1)
    assert_same(*step(graphs, [begins_with_next], NEXT))
    assert_same(*step(graphs, [continues_with_first], FIRST))
    assert_same(*step(graphs, [continues_with_first], FIRST))
    assert sum(each.replays for each in replayed) == 1  # the beginning with the first


def test_streams_change_company_between_steps(vocoder: Vocoder, replayed: list[ReplayedStep]) -> None:
    graphs = VocoderGraphs(vocoder, CPU, ROWS)
    CaptureQueue(graphs.planned_captures([FIRST, NEXT])).capture_all()
    a, b, c = (Stream(vocoder, seed) for seed in range(3))
    for together, frames in (([a, b], FIRST), ([c], FIRST), ([c, a, b], NEXT), ([b, c], NEXT), ([a], OTHER)):
        assert_same(*step(graphs, together, frames))
    for stream in (a, b, c):
        stream.assert_state_as_alone()


def test_a_step_leaves_the_states_it_was_given_unchanged(
    vocoder: Vocoder, replayed: list[ReplayedStep]
) -> None:
    graphs = VocoderGraphs(vocoder, CPU, ROWS)
    CaptureQueue(graphs.planned_captures([FIRST, NEXT])).capture_all()
    stream = Stream(vocoder, 0)
    step(graphs, [stream], FIRST)
    given, copy = stream.state, map_state(torch.clone, stream.state)
    mel, noise, _ = stream.chunk(NEXT)
    first, again = (graphs.step(mel, noise, [given])[0] for _ in range(2))
    assert torch.equal(first, again)
    assert all(torch.equal(part, before) for part, before in zip(tensors(given), tensors(copy), strict=True))
