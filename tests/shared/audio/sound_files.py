"""Sound files and videos of samples, in any format that PyAV writes."""

import io
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray


def encoded(
    samples: NDArray[np.float32], sample_rate: int, container: str, codec: str, pictures: str | None = None
) -> bytes:
    """A sound file, or a video of 1 s with them, of (channels, N) samples in [-1, 1].

    container, codec, pictures: names of FFmpeg, such as "mp4", "aac", "libx264".
    """
    layout = {1: "mono", 2: "stereo", 6: "5.1"}[len(samples)]
    file = io.BytesIO()
    output: Any  # its types do not know what kind of stream a codec has
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream(codec, rate=sample_rate, layout=layout)
        if pictures is not None:
            track = output.add_stream(pictures, rate=10)
            track.width = track.height = 64
            track.pix_fmt = "yuv420p"
            picture = av.VideoFrame.from_ndarray(np.zeros((96, 64), np.uint8), format="yuv420p")
            for _ in range(10):
                output.mux(track.encode(picture))
        frame = av.AudioFrame.from_ndarray(samples, format="fltp", layout=layout)
        frame.sample_rate = sample_rate
        context = stream.codec_context
        resampler = av.AudioResampler(context.format, layout, sample_rate, context.frame_size or None)
        for piece in [*resampler.resample(frame), *resampler.resample(None)]:
            output.mux(stream.encode(piece))
        output.mux(stream.encode(None))
        if pictures is not None:
            output.mux(track.encode(None))
    return file.getvalue()
