"""The packaged voice's decoders: hidden frames in, spectra out, in steps of any number of frames.

    start(onset)                          -> DecoderStart, before the first step
    decode(hidden, contexts, at_edge)     -> spectrum of T' frames, next contexts
    reader(spectrum)                      -> what the vocoder reads of it

Frames are of 12.5 ms. The voice's own decoder is a stack of convolutions over frames. The one for telephones
has convolutions over rows, which are two frames each, and reaches further back than ahead.

A decoder is a value: its session and what it reaches. All listeners hear the packaged voice's own, but those
at 8 kHz, who hear the smaller one that was made for telephones (``telephone_graph``).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from .harmonic_vocoder import AngleSpectrum, DirectionSpectrum, SpectrumReader

HIDDEN_CHANNELS: Final = 130  # of a frame, that the encoder gives

LAYERS = 9  # convolutions in a row: one at the input, then one in each block
KERNEL = 7
CONTEXT_FRAMES = KERNEL - 1
EDGE_FRAMES = KERNEL // 2
LOOKAHEAD_FRAMES = LAYERS * EDGE_FRAMES
CHANNELS = 256


class TelephoneLayout:
    """Sizes of the decoder for telephones. A reach is a number of rows (before, after)."""

    ROW_FRAMES: Final = 2
    ROW_CHANNELS: Final = ROW_FRAMES * HIDDEN_CHANNELS
    CHANNELS: Final = 192
    BLOCKS: Final = 5
    INPUT_REACH: Final = (3, 2)  # of the convolution at the input
    BLOCK_REACH: Final = (2, 1)  # of each block's
    ROWS_BEFORE: Final = INPUT_REACH[0] + BLOCKS * BLOCK_REACH[0]
    ROWS_AFTER: Final = INPUT_REACH[1] + BLOCKS * BLOCK_REACH[1]
    PARTS: Final = 6  # of a spectrum, as ``harmonic_vocoder.DirectionSpectrum``
    BINS: Final = 200


Float = NDArray[np.float32]
Contexts = tuple[Float, ...]  # of the layers, each the last frames or rows of its input


@dataclass(frozen=True, slots=True)
class DecoderStart:
    """What the first step of a line begins with."""

    frame: int  # of the hidden frames, the first that is decoded
    spectrum_frame: int  # of the first spectrum, at most the onset
    contexts: Contexts


class Decoder(Protocol):
    """Steps of a decoder."""

    @property
    def lookahead_frames(self) -> int:
        """Frames after a frame that its spectrum depends on."""

    @property
    def row_frames(self) -> int:
        """Steps take a multiple of so many frames, but at the end of a line."""

    @property
    def reader(self) -> Callable[[Float], SpectrumReader]:
        """What the vocoder reads spectra with."""

    def start(self, onset: int) -> DecoderStart:
        """What the first step begins with if nothing before the onset, a frame, is rendered."""

    def decode(self, hidden: Float, contexts: Contexts, *, at_edge: bool) -> tuple[Float, Contexts]:
        """The spectra of the next frames, and the next contexts.

        hidden: (1, 130, T). at_edge: nothing follows; then the last frames are decoded too.
        """


class FullBandDecoder:
    """The packaged voice's own decoder, for all frequencies. Spectra: (T', 3005).

    Args:
        session: of ``graph.split_graph``'s decoder.
    """

    lookahead_frames = LOOKAHEAD_FRAMES
    row_frames = 1
    reader = AngleSpectrum

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self._outputs = [output.name for output in session.get_outputs()]

    def start(self, onset: int) -> DecoderStart:
        """Begin at frame 0. Of the last layers that need none, the padding is left out.

        Each layer without padding begins 3 frames later:

            layers 1, 2     |000|frame 0 ......
            layer 3            |frame 0 .......
            layer 4               |frame 3 ....
            spectrum                 |frame 6 .     two layers without padding, of an onset in frames 6 to 8
        """
        unpadded = min(LAYERS, onset // EDGE_FRAMES)
        frames = [EDGE_FRAMES if layer < LAYERS - unpadded else 0 for layer in range(LAYERS)]
        contexts = tuple(_padding(layer, count) for layer, count in enumerate(frames))
        return DecoderStart(0, EDGE_FRAMES * unpadded, contexts)

    def decode(self, hidden: Float, contexts: Contexts, *, at_edge: bool) -> tuple[Float, Contexts]:
        """The spectra of the next frames, and the next contexts: (1, 130, K), then (1, 1, K, 256)."""
        edge = EDGE_FRAMES if at_edge else 0
        feed = {"hidden": hidden, "edge_in": _padding(0, edge), "edge": _padding(1, edge)}
        feed |= {f"context_{layer}": context for layer, context in enumerate(contexts)}
        spectrum, *following = self._session.run(self._outputs, feed)
        return spectrum[0, 0], tuple(following)


class TelephoneDecoder:
    """The decoder for telephones. Spectra: (T', 6, 200).

    Args:
        session: of ``telephone_graph.make_telephone_decoder``.
    """

    lookahead_frames = TelephoneLayout.ROWS_AFTER * TelephoneLayout.ROW_FRAMES
    row_frames = TelephoneLayout.ROW_FRAMES
    reader = DirectionSpectrum

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self._outputs = [output.name for output in session.get_outputs()]

    def start(self, onset: int) -> DecoderStart:
        """Begin as far before the onset's row as the decoder reaches, with zeros before frame 0."""
        layout = TelephoneLayout
        row = onset // layout.ROW_FRAMES
        zero_rows = max(0, layout.ROWS_BEFORE - row)
        contexts = [np.zeros((zero_rows, layout.ROW_CHANNELS), np.float32)]
        contexts += [np.zeros((0, layout.CHANNELS), np.float32)] * layout.BLOCKS
        first = row + zero_rows - layout.ROWS_BEFORE
        return DecoderStart(first * layout.ROW_FRAMES, row * layout.ROW_FRAMES, tuple(contexts))

    def decode(self, hidden: Float, contexts: Contexts, *, at_edge: bool) -> tuple[Float, Contexts]:
        """The spectra of the next frames, and the next contexts: (K, 260), then (K, 192)."""
        if at_edge:
            odd = hidden.shape[2] % self.row_frames
            zeros = np.zeros((1, HIDDEN_CHANNELS, odd + self.lookahead_frames), np.float32)
            hidden = np.concatenate([hidden, zeros], axis=2)
        feed = {"hidden": hidden} | {f"context_{layer}": context for layer, context in enumerate(contexts)}
        spectrum, *following = self._session.run(self._outputs, feed)
        return spectrum, tuple(following)


def _padding(layer: int, frames: int) -> Float:
    """Frames of zeros before or after the input of a layer of the packaged voice's own decoder."""
    return np.zeros((1, 1, frames, CHANNELS) if layer else (1, HIDDEN_CHANNELS, frames), np.float32)
