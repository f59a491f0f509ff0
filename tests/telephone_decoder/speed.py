"""Measures what decoders cost at 8 kHz: CPU ms a second of speech, decoders in turns on one thread.

The teacher is also measured with the columns of its last product that a telephone hears, 1,000 of 3,005; its
spectra are not used then.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from telephone_decoder.listen import Speakers, judged_texts
from vivavoce.models.devices.onnx_sessions import CPU_SESSIONS
from vivavoce.models.hibari import voice as hibari
from vivavoce.models.hibari.decoder import Decoder, FullBandDecoder
from vivavoce.models.hibari.harmonic_vocoder import BINS, FRAME_S, PARTS, TELEPHONE_BAND
from vivavoce.models.hibari.phonemizer import ASSETS
from vivavoce.models.hibari.prepared_files import PreparedFiles

Task = Callable[[], None]
TURNS, LINES = 5, 6
STEPS = {"whole lines": (100_000,), "steps of 24 frames": (24,), "steps of 16, 32, 64": (16, 32, 64)}


def measure(weights: Path) -> None:
    """Print a table of decoders, and of the whole chain from hidden frames to samples."""
    speakers = Speakers.of(weights)
    lines = [line for text in judged_texts()[:LINES] for line in speakers.lines(text.text)]
    seconds = sum(line.frames - line.onset for line in lines) * FRAME_S
    decoders = {
        **speakers.decoders,
        "teacher, 1,000 columns": FullBandDecoder(CPU_SESSIONS.open(_heard_columns())),
    }
    print(f"{len(lines)} lines, {seconds:.0f} s of speech, least of {TURNS} turns, ms of CPU a second")
    for title, steps in STEPS.items():
        tasks: dict[str, Task] = {
            f"decoder: {name}": partial(_decode, decoder, lines, steps) for name, decoder in decoders.items()
        }
        tasks |= {
            f"decoder and vocoder: {name}": partial(_render, speakers, name, lines, steps)
            for name in speakers.decoders
        }
        for name, costs in _in_turns(tasks).items():
            print(f"{title:20} {name:40} {1000 * min(costs) / seconds:6.2f}  ", end="")
            print(f"median {1000 * statistics.median(costs) / seconds:6.2f}", flush=True)


def _render(speakers: Speakers, name: str, lines: Sequence[hibari.EncodedLine], steps: Sequence[int]) -> None:
    for line in lines:
        speakers.render(name, line, steps)


def _in_turns(tasks: dict[str, Task]) -> dict[str, list[float]]:
    costs: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(TURNS):
        for name, task in tasks.items():
            started = time.thread_time()
            task()
            costs[name].append(time.thread_time() - started)
    return costs


def _decode(decoder: Decoder, lines: Sequence[hibari.EncodedLine], steps: Sequence[int]) -> None:
    """Decode lines with contexts kept, as ``HibariVoice.step`` does."""
    for line in lines:
        start, end = decoder.start(line.onset), hibari.decoded_frames(line, decoder)
        frame, contexts, taken = start.frame, start.contexts, 0
        while frame < end:
            frames = steps[min(taken, len(steps) - 1)]
            stop = frame + frames if taken else line.onset + frames + decoder.lookahead_frames
            stop = min(end, stop + stop % decoder.row_frames)
            hidden = line.hidden[:, :, frame:stop]
            _, contexts = decoder.decode(hidden, contexts, at_edge=stop == line.hidden.shape[2])
            frame, taken = stop, taken + 1


def _heard_columns() -> bytes:
    """The teacher's graph with the columns of its last product that a telephone hears."""
    model = onnx.load_from_string(PreparedFiles.load(ASSETS).graphs()[1])
    columns = np.concatenate([part * BINS + np.arange(TELEPHONE_BAND.bins) for part in range(PARTS)])
    for tensor in model.graph.initializer:
        if tensor.dims and tensor.dims[-1] == PARTS * BINS:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor)[..., columns], tensor.name))
    for output in model.graph.output:
        output.type.CopyFrom(helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None))
    return bytes(model.SerializeToString())
