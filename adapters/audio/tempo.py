"""Time stretching and pitch shifting of streamed speech with FFmpeg's filters.

A tempo change keeps the pitch (waveform similarity overlap-add); a pitch change keeps the tempo and moves the
formants too. This serves voices that cannot change tempo or pitch themselves; speech that a voice renders at
another speed sounds better than stretched speech. 40 to 140 ms of speech are withheld. The filters lose up to
30 ms at the end, where every stream is silent; silence replaces them, so that the total length is exact. The
cost is 2 to 6 ms of CPU for a second of speech.

Source: FFmpeg 8 libavfilter atempo, asetrate; Verhelst and Roelands, "An overlap-add technique based on
waveform similarity (WSOLA)", ICASSP 1993.
"""

from math import ceil, log2

import av
import av.filter
import numpy as np

from ...tts_engine.chunk import SAMPLE_RATE
from .pcm import require_whole_samples

_MIN_TEMPO, _MAX_TEMPO = 0.25, 4.0
_MIN_PITCH, _MAX_PITCH = 0.5, 2.0
_MIN_FRAME_SAMPLES = 480  # atempo raises MemoryError for a frame that it would shorten to nothing


class TimeStretcher:
    """Changes tempo and pitch of 24 kHz s16le mono; factors relative to the input.

    n input samples give round(n / tempo) output samples after ``drain``.
    Raises ValueError unless ``tempo`` is 0.25 to 4 and ``pitch`` 0.5 to 2.
    """

    def __init__(self, tempo: float, pitch: float = 1.0) -> None:
        if not (_MIN_TEMPO <= tempo <= _MAX_TEMPO and _MIN_PITCH <= pitch <= _MAX_PITCH):
            raise ValueError(f"got tempo {tempo} and pitch {pitch}; allowed are 0.25 to 4 and 0.5 to 2")
        self._graph = _filter_graph(tempo, pitch)
        self._tempo = tempo
        self._held = b""  # less than a frame
        self._samples = 0  # pushed
        self._filtered_samples = 0  # given to the filters, with the silence that completes the last frame
        self._returned_bytes = 0

    def push(self, pcm: bytes) -> bytes:
        """Filter ``pcm`` and return the output that is ready; raises ValueError for an odd length."""
        self._held += require_whole_samples(pcm)
        self._samples += len(pcm) // 2
        if len(self._held) < 2 * _MIN_FRAME_SAMPLES:
            return b""
        frame, self._held = self._held, b""
        self._filter(frame)
        output = self._ready()
        self._returned_bytes += len(output)
        return output

    def drain(self) -> bytes:
        """Return the remaining output; ``push`` must not be called afterwards."""
        if self._held:
            self._filter(self._held.ljust(2 * _MIN_FRAME_SAMPLES, b"\0"))
        self._graph.push(None)
        remaining_bytes = 2 * round(self._samples / self._tempo) - self._returned_bytes
        return self._ready()[:remaining_bytes].ljust(remaining_bytes, b"\0")

    def _filter(self, pcm: bytes) -> None:
        samples = np.frombuffer(pcm, "<i2").reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        frame.sample_rate = SAMPLE_RATE
        frame.pts = self._filtered_samples
        self._filtered_samples += frame.samples
        self._graph.push(frame)

    def _ready(self) -> bytes:
        parts: list[bytes] = []
        while True:
            try:
                frame = self._graph.pull()
            except (av.BlockingIOError, av.EOFError):
                return b"".join(parts)
            assert isinstance(frame, av.AudioFrame)
            parts.append(frame.to_ndarray().tobytes())


def _filter_graph(tempo: float, pitch: float) -> av.filter.Graph:
    graph = av.filter.Graph()
    previous_filter = graph.add_abuffer(sample_rate=SAMPLE_RATE, format="s16", layout="mono")
    for name, value in [*_filters(tempo, pitch), ("abuffersink", None)]:
        next_filter = graph.add(name, value)
        previous_filter.link_to(next_filter)
        previous_filter = next_filter
    graph.configure()
    return graph


def _filters(tempo: float, pitch: float) -> list[tuple[str, str | None]]:
    filters: list[tuple[str, str | None]] = []
    if pitch != 1.0:
        # asetrate plays the samples faster: pitch and tempo both change by ``pitch``.
        filters += [("asetrate", str(round(SAMPLE_RATE * pitch))), ("aresample", str(SAMPLE_RATE))]
    remaining_tempo = tempo / pitch
    # A stage accepts 0.5 or more. Beyond 6, a long frame aborts the process by an assertion.
    stages = max(1, ceil(abs(log2(remaining_tempo))))
    return filters + [("atempo", str(remaining_tempo ** (1 / stages)))] * stages
