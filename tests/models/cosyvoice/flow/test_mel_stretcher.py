"""Stretching a mel in pieces gives the frames of stretching it at once."""

import pytest

torch = pytest.importorskip("torch", reason="the [cosyvoice] extra is not installed")

from vivavoce.models.cosyvoice.flow.streaming_flow import MelStretcher  # noqa: E402

SPEEDS = pytest.mark.parametrize("speed", [0.5, 0.8, 1.0, 1.25, 1.7, 3.0])


def stretch_in_pieces(mel: torch.Tensor, speed: float, edges: tuple[int, ...]) -> torch.Tensor:
    stretcher, pieces, begin = MelStretcher(speed), [], 0
    for end in (*edges, mel.shape[2]):
        pieces.append(stretcher.push(mel[..., begin:end]))
        begin = end
    return torch.cat([*pieces, stretcher.finish()], 2)


@SPEEDS
@pytest.mark.parametrize("edges", [(1,), (1, 2, 3, 4), (50,), (50, 99)])
def test_any_split_gives_the_frames_of_the_whole_mel(speed: float, edges: tuple[int, ...]) -> None:
    mel = torch.randn(2, 80, 100, generator=torch.Generator().manual_seed(0))
    expected = stretch_in_pieces(mel, speed, ())
    assert expected.shape[2] == round(100 / speed)
    assert torch.allclose(stretch_in_pieces(mel, speed, edges), expected, atol=1e-5)


@pytest.mark.parametrize("speed", [0.5, 0.8, 1.0, 1.25, 2.0])
def test_whole_frame_counts_give_upstreams_interpolation(speed: float) -> None:
    mel = torch.randn(1, 80, 100, generator=torch.Generator().manual_seed(0))
    expected = torch.nn.functional.interpolate(mel, size=int(100 / speed), mode="linear")
    assert torch.allclose(stretch_in_pieces(mel, speed, (30,)), expected, atol=1e-4)


def test_most_frames_do_not_wait_for_the_end() -> None:
    stretcher = MelStretcher(1.25)
    assert stretcher.push(torch.zeros(1, 80, 50)).shape[2] == 40


@pytest.mark.parametrize("speed", [0.0, -1.0, 11.0, float("nan")])
def test_a_speed_out_of_range_raises(speed: float) -> None:
    with pytest.raises(ValueError, match=r"allowed: 0\.1 to 10"):
        MelStretcher(speed)


def test_finishing_without_any_mel_raises() -> None:
    with pytest.raises(ValueError, match="before any mel"):
        MelStretcher(1.0).finish()
