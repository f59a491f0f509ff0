"""The exported vocoders: upstream's vectors, dynamic axes, any split, rows alone and together."""

from itertools import pairwise
from pathlib import Path

import onnxruntime
import pytest

torch = pytest.importorskip("torch")

from golden.reference.comparison import read_arrays  # noqa: E402
from golden.reference.golden_config import read_network_config, read_rule  # noqa: E402
from golden.reference.rule_weights import rule_weights  # noqa: E402
from golden.reference.vocoder import WAVE_TOLERANCE  # noqa: E402
from shared.runtimes.onnx_vocoder import OnnxVocoder  # noqa: E402
from shared.runtimes.tensor_graph import TensorOrtGraph  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.bundle import CosyVoiceBundle  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.tensor_shapes import hift_shapes  # noqa: E402
from vivavoce.models.cosyvoice.config import CosyVoiceVersion, HiftConfig  # noqa: E402
from vivavoce.models.cosyvoice.networks import load_vocoder  # noqa: E402
from vivavoce.models.cosyvoice.onnx_graphs.hift_v2_graph import frames_around_stages, write_hift_v2  # noqa: E402
from vivavoce.models.cosyvoice.onnx_graphs.hift_v3_graph import write_hift_v3  # noqa: E402
from vivavoce.models.cosyvoice.onnx_runtime.vocoder import ArrayVocoder  # noqa: E402
from vivavoce.models.cosyvoice.vocoder.hift_v2 import HiftV2  # noqa: E402
from vivavoce.models.cosyvoice.vocoder.hift_v3 import HiftV3  # noqa: E402
from vivavoce.models.networks.layers import load_weights  # noqa: E402
from vivavoce.models.networks.state import gather, join_states  # noqa: E402

GOLDEN = Path(__file__).parents[3] / "golden" / "data"


@pytest.fixture(scope="module")
def vocoder(exported: CosyVoiceBundle) -> HiftV2 | HiftV3:
    return load_vocoder(exported)


@pytest.fixture(scope="module")
def onnx_vocoder(exported: CosyVoiceBundle) -> OnnxVocoder:
    return OnnxVocoder.load(exported)


def random_mel(rows: int, frames: int) -> "torch.Tensor":
    return torch.randn(rows, 80, frames, generator=torch.Generator().manual_seed(frames))


def golden_vocoder(version: CosyVoiceVersion) -> tuple[HiftConfig, dict[str, "torch.Tensor"]]:
    config = read_network_config(GOLDEN, version).hift
    drawn = rule_weights(hift_shapes(config, version), read_rule(GOLDEN))
    return config, {key: torch.from_numpy(values) for key, values in drawn.items()}


@torch.inference_mode()
def in_steps(
    vocoder: HiftV2 | HiftV3 | OnnxVocoder, mel: "torch.Tensor", noise: "torch.Tensor", edges: list[int]
) -> "torch.Tensor":
    """Samples of the mel cut at edges, the last piece finished."""
    state, place, pieces = vocoder.init_state(len(mel)), 0, []
    for begin, end in pairwise([0, *edges]):
        is_last = end == edges[-1]
        count = vocoder.noise_samples(end - begin, state, last=is_last)
        drawn, place = noise[:, place : place + count], place + count
        if is_last:
            pieces.append(vocoder.finish(mel[..., begin:end], drawn, state))
        else:
            samples, state = vocoder.step(mel[..., begin:end], drawn, state)
            pieces.append(samples)
    return torch.cat(pieces, 1)


@pytest.mark.parametrize(
    ("version", "case", "array"),
    [(CosyVoiceVersion.V2, "d_hift", "wav_zero"), (CosyVoiceVersion.V3, "v3_hift", "wav_noise")],
)
def test_the_graph_gives_upstreams_vectors(
    version: CosyVoiceVersion, case: str, array: str, tmp_path: Path
) -> None:
    config, weights = golden_vocoder(version)
    write = write_hift_v2 if version is CosyVoiceVersion.V2 else write_hift_v3
    write(tmp_path / "vocoder.onnx", config, weights, {})
    session = onnxruntime.InferenceSession(str(tmp_path / "vocoder.onnx"))
    network, arrays = (
        OnnxVocoder(ArrayVocoder(config, version, TensorOrtGraph(session))),
        read_arrays(GOLDEN, case),
    )
    mel = arrays["mel"]
    noise = read_arrays(GOLDEN, "d_hift")["noise"].abs()
    noise = noise * (array == "wav_noise")
    for edges in ([mel.shape[2]], [25, mel.shape[2]], [7, 31, mel.shape[2]]):
        samples = in_steps(network, mel, noise, edges)
        torch.testing.assert_close(samples, arrays[array], atol=WAVE_TOLERANCE, rtol=0)


@pytest.mark.parametrize(("rows", "edges"), [(1, [44]), (2, [6, 30, 93]), (3, [44, 94, 194, 201])])
def test_every_dynamic_axis_has_any_size(
    vocoder: HiftV2 | HiftV3, onnx_vocoder: OnnxVocoder, rows: int, edges: list[int]
) -> None:
    mel = random_mel(rows, edges[-1])
    generator = torch.Generator().manual_seed(rows)
    noise = torch.rand(rows, 480 * edges[-1], vocoder.config.sine_count, generator=generator)
    expected = in_steps(vocoder, mel, noise, edges)
    assert expected.abs().mean() > 0.01
    torch.testing.assert_close(
        in_steps(onnx_vocoder, mel, noise, edges), expected, atol=WAVE_TOLERANCE, rtol=0
    )


@torch.inference_mode()
@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize(("fewer", "is_enough"), [(0, True), (1, False)])
def test_samples_depend_on_no_frame_that_a_stage_leaves_out(stage: int, fewer: int, is_enough: bool) -> None:
    config, weights = golden_vocoder(CosyVoiceVersion.V2)
    vocoder = HiftV2(config)
    load_weights(vocoder, weights)
    margin = frames_around_stages(config)[stage] - fewer
    frames, wanted = 24, range(10, 14)

    def leave_out(layer: torch.nn.Module, inputs: tuple[torch.Tensor]) -> torch.Tensor:
        x = inputs[0].clone()
        places = x.shape[2] // frames
        x[..., : places * (wanted.start - margin)] = torch.nan
        x[..., places * (wanted.stop + margin) + x.shape[2] % frames :] = torch.nan
        return x

    vocoder.ups[stage].register_forward_pre_hook(leave_out)
    for source_down in vocoder.source_downs[stage:]:
        source_down.register_forward_pre_hook(leave_out)
    samples = vocoder.decode(random_mel(1, frames), torch.rand(1, 1, 480 * frames))
    found = samples[:, 480 * wanted.start : 480 * wanted.stop].isfinite()
    assert bool(found.all()) is is_enough


@torch.inference_mode()
def test_sessions_are_joined_and_parted(onnx_vocoder: OnnxVocoder) -> None:
    mel = random_mel(2, 94)
    noise = torch.rand(2, 480 * 94, onnx_vocoder.config.sine_count)
    states, places = [], []
    for row in range(2):
        state = onnx_vocoder.init_state(1)
        count = onnx_vocoder.noise_samples(44, state, last=False)
        _, state = onnx_vocoder.step(mel[row : row + 1, :, :44], noise[row : row + 1, :count], state)
        states.append(state)
        places.append(count)
    joined = join_states(states)
    count = onnx_vocoder.noise_samples(50, joined, last=False)
    drawn = noise[:, places[0] : places[0] + count]
    together, after = onnx_vocoder.step(mel[..., 44:], drawn, joined)
    for row in range(2):
        alone, _ = onnx_vocoder.step(mel[row : row + 1, :, 44:], drawn[row : row + 1], states[row])
        torch.testing.assert_close(together[row : row + 1], alone, atol=1e-5, rtol=0)
    assert all(len(part) == 1 for part in gather(after, [1]).parts)


def test_version_2_withholds_a_short_first_chunk_and_version_3_refuses_it(onnx_vocoder: OnnxVocoder) -> None:
    noise, begin = torch.rand(1, 480 * 4, onnx_vocoder.config.sine_count), onnx_vocoder.init_state(1)
    if onnx_vocoder.version is CosyVoiceVersion.V2:
        assert onnx_vocoder.step(random_mel(1, 4), noise, begin)[0].shape == (1, 0)
    else:
        with pytest.raises(ValueError, match="the first chunk has 4 frames; allowed: more than 4"):
            onnx_vocoder.step(random_mel(1, 4), noise, begin)
