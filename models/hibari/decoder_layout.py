"""Sizes of the packaged voice's streaming decoders, over frames of 12.5 ms: its own, and that for telephones.

Its own is a stack of convolutions over frames. The one for telephones has convolutions over rows, which are
two frames each, and reaches further back than ahead.
"""

from typing import Final

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
