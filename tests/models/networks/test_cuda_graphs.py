"""Staging buffers, buckets, and the recording and replaying of steps."""

from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from torch import Tensor  # noqa: E402

from vivavoce.models.devices.torch_devices import CPU, compute_exactly  # noqa: E402
from vivavoce.models.networks import cuda_graphs  # noqa: E402
from vivavoce.models.networks.cuda_graphs import (  # noqa: E402
    CapturedSteps,
    StagingBuffer,
    StepGraph,
    bucket,
    bucket_ranges,
    buckets,
    new_graph_pool,
)


@dataclass(frozen=True)
class Pair:
    flags: Tensor
    numbers: tuple[Tensor, Tensor]


def test_a_staging_buffer_is_contiguous_and_shaped_like_its_template() -> None:
    template = Pair(torch.tensor([True, False, True]), (torch.arange(5), torch.full((2, 3), 0.5).double()))
    staging = StagingBuffer(template, CPU)
    assert torch.equal(staging.on_device_tensors.flags, template.flags)
    assert torch.equal(staging.on_device_tensors.numbers[0], template.numbers[0])
    assert torch.equal(staging.on_device_tensors.numbers[1], template.numbers[1])
    before = [
        staging.on_device_tensors.flags.data_ptr(),
        *(part.data_ptr() for part in staging.on_device_tensors.numbers),
    ]
    staging.host.numbers[0].numpy()[2] = 7
    staging.host.flags[1] = True
    staging.upload()
    assert staging.on_device_tensors.numbers[0].tolist() == [0, 1, 7, 3, 4]
    assert staging.on_device_tensors.flags.all()
    assert [
        staging.on_device_tensors.flags.data_ptr(),
        *(part.data_ptr() for part in staging.on_device_tensors.numbers),
    ] == before
    assert (
        len(
            {
                part.untyped_storage().data_ptr()
                for part in (staging.on_device_tensors.flags, *staging.on_device_tensors.numbers)
            }
        )
        == 1
    )


def test_counts_are_rounded_up_to_buckets() -> None:
    assert [bucket(count, 8) for count in range(1, 9)] == [1, 2, 4, 4, 8, 8, 8, 8]
    assert [bucket(count, 6) for count in (4, 5, 6)] == [4, 6, 6]
    assert bucket(3, 6144, min_count=256) == 256
    assert buckets(6) == [1, 2, 4, 6]
    assert buckets(1) == [1]
    assert buckets(6144, min_count=256) == [256, 512, 1024, 2048, 4096, 6144]
    assert [bucket(count, 36, growth=4) for count in (1, 2, 5, 16, 17)] == [1, 4, 16, 16, 36]
    assert buckets(36, growth=4) == [1, 4, 16, 36]
    for max_count in (1, 5, 8, 33):
        for growth in (2, 4):
            rounded = {bucket(count, max_count, growth=growth) for count in range(1, max_count + 1)}
            assert rounded == set(buckets(max_count, growth=growth))


def test_a_replay_uses_the_current_contents_of_its_tensors() -> None:
    x = torch.ones(2)
    graph = StepGraph(lambda: 2 * x, CPU, None)
    assert graph.replay().tolist() == [2, 2]
    x.fill_(3)
    assert graph.replay().tolist() == [6, 6]


class Cuda:
    """Stands in for the recording functions of ``torch.cuda`` and logs the order of their calls."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def stream(self, name: str) -> Any:
        cuda = self

        class Stream:
            def wait_stream(self, other: Any) -> None:
                cuda.log.append(f"{name} waits")

            def __enter__(self) -> None:
                cuda.log.append(f"on {name}")

            def __exit__(self, *_: object) -> None:
                cuda.log.append(f"off {name}")

        return Stream()


def test_graphs_of_a_pool_are_warmed_up_and_recorded_on_its_stream_then_replayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = Cuda()

    class Graph:
        def replay(self) -> None:
            cuda.log.append("replay")

    def recording(graph: Graph, handle: object, stream: object, capture_error_mode: str) -> Any:
        assert (handle, stream, capture_error_mode) == ((0, 1), streams[0], "thread_local")
        return cuda.stream("recording")

    streams: list[Any] = []

    def new_stream(device: torch.device, priority: int) -> Any:
        streams.append(cuda.stream("side"))
        return streams[-1]

    monkeypatch.setattr(torch.cuda, "Stream", new_stream)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: cuda.stream("main"))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", recording)

    def run() -> Tensor:
        cuda.log.append("run")
        return torch.ones(1)

    pool = new_graph_pool(torch.device("cuda"))
    graph = StepGraph(run, torch.device("cuda"), pool)
    recorded = ["side waits", "on side", "run", "off side", "main waits"]
    recorded += ["on recording", "run", "off recording"]
    assert cuda.log == recorded
    assert graph.replay() is graph.replay()
    assert cuda.log == [*recorded, "replay", "replay"]
    StepGraph(run, torch.device("cuda"), pool)
    assert len(streams) == 1
    new_graph_pool(torch.device("cuda"))
    assert len(streams) == 2  # so that graphs which are replayed at once share no workspace


def test_a_staging_buffer_is_not_rewritten_before_its_upload_was_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []

    class Event:
        def record(self, stream: object) -> None:
            log.append("upload begun")

        def synchronize(self) -> None:
            log.append("upload read")

    class CudaTensor:
        device = torch.device("cuda")

        def copy_(self, host: Tensor, non_blocking: bool) -> None:
            assert non_blocking

    staging = StagingBuffer(torch.zeros(3), CPU)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(staging, "_device_memory", CudaTensor())
    staging.upload()
    staging.host.fill_(1)
    assert log == ["upload begun", "upload read"]


def test_tf32_is_off_on_a_card() -> None:
    libraries = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [library.allow_tf32 for library in libraries]
    try:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        compute_exactly(CPU)
        assert all(library.allow_tf32 for library in libraries)
        compute_exactly(torch.device("cuda"))
        assert not any(library.allow_tf32 for library in libraries)
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def test_each_bucket_has_a_range_of_counts() -> None:
    assert bucket_ranges(36, growth=4) == [(1, 1), (2, 4), (5, 16), (17, 36)]
    assert bucket_ranges(8, growth=8) == [(1, 1), (2, 8)]
    assert bucket_ranges(1) == [(1, 1)]


def test_a_deferred_step_runs_without_a_graph_until_it_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graphs, "new_graph_pool", lambda device, priority: "pool")
    made: list[tuple[int, object]] = []

    def make(key: int, pool: object) -> tuple[int, object]:
        if (key, pool) == (3, "pool"):
            raise RuntimeError("no room")
        made.append((key, pool))
        return made[-1]

    steps: CapturedSteps[int, tuple[int, object]] = CapturedSteps(CPU, make)
    for key in (1, 2, 3):
        steps.defer(key)
    assert not made
    assert steps.get(1) is steps.get(1)
    assert made == [(1, None)]
    assert steps.get(4) == (4, "pool")  # a size that is not deferred
    for key in (1, 2):
        steps.capture(key)
        assert steps.get(key) == (key, "pool")
    with pytest.raises(RuntimeError, match="no room"):
        steps.capture(3)
    assert steps.get(3) == (3, None)
    assert steps.keys == (4, 1, 2)
    planned: list[int] = []
    steps.defer_new(planned.append)
    assert steps.get(5) is steps.get(5)
    assert steps.get(4) == (4, "pool")
    assert planned == [5]
    assert made.pop() == (5, None)
    steps.defer(1)  # it is captured
    steps.capture(1)
    assert made == [(1, None), (4, "pool"), (1, "pool"), (2, "pool"), (3, None)]


def test_the_kernels_of_a_pool_have_its_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = []
    monkeypatch.setattr(torch.cuda, "Stream", lambda device, priority: streams.append((device, priority)))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    card = torch.device("cuda", 0)
    steps: CapturedSteps[int, object] = CapturedSteps(card, lambda key, pool: pool, priority=-1)
    CapturedSteps(card, lambda key, pool: pool)
    assert steps.get(1) is steps.get(2)  # one pool
    assert streams == [(card, -1), (card, 0)]
