"""Time stretching and pitch shifting of streamed speech with FFmpeg's filters.

A tempo change keeps the pitch (waveform similarity overlap-add); a pitch change keeps the tempo and moves the
formants too. This serves voices that cannot change tempo or pitch themselves; speech that a voice renders at
another speed sounds better than stretched speech. 40 to 140 ms of speech are withheld, and up to 30 ms at the
end, where every stream is silent, are lost. The cost is 2 to 6 ms of CPU for a second of speech.

Source: FFmpeg 8 libavfilter atempo, asetrate; Verhelst and Roelands, "An overlap-add technique based on
waveform similarity (WSOLA)", ICASSP 1993.
"""

from math import ceil, log2

import av
import av.filter
import numpy as np

from ...tts_engine.chunk import SAMPLE_RATE
from .codecs import require_whole_samples

_MIN_TEMPO, _MAX_TEMPO = 0.25, 4.0
_MIN_PITCH, _MAX_PITCH = 0.5, 2.0


class TimeStretcher:
    """Changes tempo and pitch of 24 kHz s16le mono; factors relative to the input.

    Raises ValueError unless ``tempo`` is 0.25 to 4 and ``pitch`` 0.5 to 2.
    """

    def __init__(self, tempo: float, pitch: float = 1.0) -> None:
        if not (_MIN_TEMPO <= tempo <= _MAX_TEMPO and _MIN_PITCH <= pitch <= _MAX_PITCH):
            raise ValueError(f"got tempo {tempo} and pitch {pitch}; allowed are 0.25 to 4 and 0.5 to 2")
        self._graph = _filter_graph(tempo, pitch)
        self._samples = 0

    def push(self, pcm: bytes) -> bytes:
        """Filter ``pcm`` and return the output that is ready; raises ValueError for an odd length."""
        if not require_whole_samples(pcm):
            return b""
        samples = np.frombuffer(pcm, "<i2").reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        frame.sample_rate = SAMPLE_RATE
        frame.pts = self._samples
        self._samples += frame.samples
        self._graph.push(frame)
        return self._ready()

    def drain(self) -> bytes:
        """Return the remaining output; ``push`` must not be called afterwards."""
        self._graph.push(None)
        return self._ready()

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
    stages = max(1, ceil(-log2(remaining_tempo)))  # atempo accepts 0.5 or more; chain it for less
    return filters + [("atempo", str(remaining_tempo ** (1 / stages)))] * stages
