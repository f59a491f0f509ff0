"""Tests of CosyVoice on a simulated device other than the CPU: mixed devices and synchronizations."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from torch import Tensor  # noqa: E402

from shared.runtimes.simulated_device import DEVICE, DeviceSimulation  # noqa: E402
from vivavoce.models.bundle_files import BundleSize  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.bundle import CosyVoiceBundle, open_bundle  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.random_bundle import write_random_bundle  # noqa: E402
from vivavoce.models.cosyvoice.config import CosyVoiceVersion  # noqa: E402
from vivavoce.models.cosyvoice.flow.state import FlowChunk  # noqa: E402
from vivavoce.models.cosyvoice.lm import decoding  # noqa: E402
from vivavoce.models.cosyvoice.lm.generation import SpeechLengthRule  # noqa: E402
from vivavoce.models.cosyvoice.networks import load_flow, load_lm, load_networks  # noqa: E402
from vivavoce.models.devices import torch_devices  # noqa: E402
from vivavoce.models.devices.execution import DeviceError, Precision  # noqa: E402
from vivavoce.models.devices.torch_devices import CPU, find_device, to_device, to_host  # noqa: E402
from vivavoce.models.networks.cuda_graphs import buckets  # noqa: E402
from vivavoce.tts_engine.backends.base import SlotRequest, SlotTurn, Stage, StepResult  # noqa: E402
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend  # noqa: E402
from vivavoce.tts_engine.cosyvoice.front_end import CosyVoiceFrontEnd  # noqa: E402
from vivavoce.tts_engine.cosyvoice.policy import CosyVoicePolicy, policy_for  # noqa: E402
from vivavoce.tts_engine.cosyvoice.rendering.flow_runner import EagerFlowRunner, GraphFlowRunner  # noqa: E402
from vivavoce.tts_engine.cosyvoice.rendering.render_runner import RenderRunner  # noqa: E402
from vivavoce.tts_engine.cosyvoice.rendering.render_stage import LocalRenderStage  # noqa: E402
from vivavoce.tts_engine.errors import BundleError  # noqa: E402

BRIEF = CosyVoicePolicy(length=SpeechLengthRule(2, 2), pause_share=0.0, device="cpu")
TEXTS = ("Well, who is it, at night?", "It is me.", "Nobody said so.")


@pytest.fixture
def simulation() -> Iterator[DeviceSimulation]:
    with torch.inference_mode(), DeviceSimulation() as mode:
        yield mode


@pytest.fixture(scope="module", params=CosyVoiceVersion, ids=lambda version: version.name)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundles") / request.param.name
    write_random_bundle(path, request.param, BundleSize.TINY, seed=1)
    return path


@pytest.fixture(scope="module")
def bundle(folder: Path) -> CosyVoiceBundle:
    return open_bundle(folder)


def backend_on(device: torch.device, bundle: CosyVoiceBundle) -> CosyVoiceBackend:
    tokenizer = bundle.text_tokenizer()
    front = CosyVoiceFrontEnd.from_bundle(bundle, tokenizer, BRIEF, None)
    networks = load_networks(bundle, device=device)
    stage = LocalRenderStage(RenderRunner(bundle.version, networks, BRIEF), BRIEF)
    return CosyVoiceBackend(front, bundle.version, networks.lm, stage, tokenizer, BRIEF)


def speak(backend: CosyVoiceBackend) -> tuple[list[np.ndarray], int]:
    """Render every text in one batch; the samples of each, and how often ids or samples were computed."""
    waiting, samples_by_slot, computed = {}, {}, 0
    stage_of_runner: Any = backend._render_stage
    runner = stage_of_runner.runner
    vocode = type(runner).run_vocoder

    def counted(inputs: Any) -> Any:  # sentences at different chunks do not share a batch
        nonlocal computed
        computed += 1
        return vocode(runner, inputs)

    runner.run_vocoder = counted
    for seed, text in enumerate(TEXTS):
        request = SlotRequest("nobody", 1.0, seed)
        slot, segmenter = backend.open_slot(request), backend.segmenter(request)
        waiting[slot] = [*segmenter.push(text), *segmenter.flush()]
        samples_by_slot[slot] = []
    current: set[int] = set()
    while any(waiting.values()) or current:
        for stage in Stage:
            slots = [
                slot
                for slot in waiting
                if backend.stage(slot) is stage and (slot in current or waiting[slot])
            ][: backend.max_batch_size(stage)]
            turns = [SlotTurn(slot, None if slot in current else waiting[slot].pop(0)) for slot in slots]
            if not turns:
                continue
            computed += stage is Stage.DECODE
            for slot, result in zip(slots, backend.step(0, turns), strict=True):
                assert isinstance(result, StepResult), result
                samples_by_slot[slot].append(result.samples)
                (current.discard if result.segment_done else current.add)(slot)
    return [np.concatenate(samples) for samples in samples_by_slot.values()], computed


def test_a_bundle_renders_on_another_device_and_synchronizes_only_for_ids_and_samples(
    bundle: CosyVoiceBundle, simulation: DeviceSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = speak(backend_on(CPU, bundle))
    assert not simulation.waits
    monkeypatch.delattr(decoding, "choose")  # there it is recorded steps that choose
    backend = backend_on(DEVICE, bundle)
    simulation.waits.clear()
    samples, computed = speak(backend)
    assert set(simulation.waits) == {"aten.copy_.default"}
    assert len(simulation.waits) <= computed  # for a few ids at once, or a batch of samples
    for one, other in zip(samples, expected, strict=True):
        assert one.shape == other.shape
        # Products that are not oneDNN's round otherwise, and the phase of a voice adds that up.
        assert np.abs(one - other).max() < 2e-3


def test_the_usual_chunks_of_the_vocoder_are_recorded_on_another_device_only(
    bundle: CosyVoiceBundle, simulation: DeviceSimulation
) -> None:
    on_device, on_host = (
        RenderRunner(bundle.version, load_networks(bundle, device=device), BRIEF) for device in (DEVICE, CPU)
    )
    assert on_host._vocoder_graphs is None
    assert on_device._vocoder_graphs is not None
    assert on_device._vocoder_graphs.recorded_count == 1  # the first chunk of a lone stream
    on_device.captures.capture_all()
    # the first chunk, the second and those of 100 mel frames
    assert on_device._vocoder_graphs.recorded_count == 3 * len(buckets(BRIEF.max_render_rows, growth=8))


@pytest.mark.parametrize(
    "use",
    [
        lambda device_tensor: device_tensor.sum().item(),
        lambda device_tensor: int(device_tensor.max()),
        lambda device_tensor: device_tensor.cpu(),
        lambda device_tensor: to_host(device_tensor),
        lambda device_tensor: device_tensor[device_tensor > 0],
        lambda device_tensor: device_tensor.copy_(torch.ones(3)),
        lambda device_tensor: device_tensor + torch.ones(3),
        lambda device_tensor: device_tensor @ torch.ones(3),
        lambda device_tensor: device_tensor[torch.tensor([1])],
        lambda device_tensor: device_tensor + torch.tensor([1.0], device=DEVICE),
    ],
)
def test_the_simulation_finds_synchronizations_and_mixed_devices(
    simulation: DeviceSimulation, use: Callable[[Tensor], object]
) -> None:
    device_tensor = to_device(torch.arange(3.0), DEVICE)
    try:
        use(device_tensor)
    except AssertionError:
        return
    assert simulation.waits


def test_a_device_is_found_by_its_name() -> None:
    cards = torch.cuda.device_count()
    assert find_device("cpu") == CPU
    assert find_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(DeviceError, match=f"device is 'cuda:{cards}'"):
        find_device(f"cuda:{cards}")
    for name in ("gpu", "cuda:", "cuda:x", "mps", ""):
        with pytest.raises(DeviceError, match="it must be auto, cpu, cuda or cuda:N"):
            find_device(name)


def test_a_missing_device_is_reported_before_loading(folder: Path) -> None:
    absent = f"cuda:{torch.cuda.device_count()}"
    with pytest.raises(BundleError, match=f"device is '{absent}'"):
        CosyVoiceBackend.load(folder, CosyVoicePolicy(device=absent))


def test_int8_is_refused_on_other_devices(bundle: CosyVoiceBundle) -> None:
    with pytest.raises(DeviceError, match="int8 is for a CPU, and the device is meta; take bf16 or fp16"):
        load_lm(bundle, Precision.INT8, DEVICE)


def test_the_policy_of_a_gpu_has_more_slots_and_half_precision_state(monkeypatch: pytest.MonkeyPatch) -> None:
    assert policy_for("int8", "cpu") == CosyVoicePolicy(precision=Precision.INT8, device="cpu")
    monkeypatch.setattr(torch_devices, "find_device", lambda name: torch.device("cuda", 1))
    on_card = policy_for("bf16", "cuda:1")
    assert (on_card.slots, on_card.max_render_rows, on_card.device) == (32, 8, "cuda:1")
    assert on_card.overlap
    assert (on_card.flow.dtype, on_card.precision) == ("float16", Precision.BF16)
    assert on_card.flow.products is Precision.FP32


def test_without_a_named_precision_products_of_the_flow_take_float16_on_a_gpu_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert policy_for("auto", "cpu") == policy_for("fp32", "cpu")
    monkeypatch.setattr(torch_devices, "find_device", lambda name: torch.device("cuda", 0))
    assert policy_for("auto", "cuda") == policy_for("fp32-fp16", "cuda")
    assert policy_for("auto", "cuda").flow.products is Precision.FP16
    assert policy_for("fp32", "cuda").flow.products is Precision.FP32
    assert policy_for("auto", "cuda", "tensorrt").precision is Precision.FP32


def test_float16_products_of_the_flow_are_refused_on_a_cpu(bundle: CosyVoiceBundle) -> None:
    with pytest.raises(DeviceError, match="fp32-fp16 is for a card, and the device is cpu; take fp32"):
        load_lm(bundle, Precision.FP32_FP16)


def test_eager_and_graph_flow_runners_give_the_same_mel(bundle: CosyVoiceBundle) -> None:
    flow = load_flow(bundle)
    ids = torch.arange(53)[None] % 20
    speaker = flow.project_speaker(torch.ones(1, 192))
    voice = flow.prefill(ids, torch.zeros(1, 80, 106), speaker)[0]
    plain = EagerFlowRunner(flow, 0.1)
    recorded = GraphFlowRunner(flow, 0.1, rows=2, sentences=1, max_prompt_ids=50, max_hop=50)
    chunk = FlowChunk(ids[:, :25], ids[:, :3], torch.zeros(1, 80, 50))
    mels = []
    for runner in (plain, recorded):
        kept = runner.prepare_voice(voice)
        assert runner.prepared_voice_ids(kept) == 50
        mels.append(runner.step(chunk, [runner.open_sentence(kept)]))
    torch.testing.assert_close(*mels, atol=1e-4, rtol=0)
    assert (plain.copied_voice_ids(50), recorded.copied_voice_ids(50)) == (50, 0)
    assert recorded.memory_ids == 42 * 25  # 40 s of a sentence, and its voice
    assert recorded.memory_ids < plain.memory_ids
