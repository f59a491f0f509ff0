"""Keys as tones in the audio (in-band DTMF), for a far end that takes them in no other way.

Source: ITU-T Q.23 (frequencies), Q.24 (tones of at least 40 ms and as long a gap).
"""

from typing import Final

import numpy as np

_ROWS: Final = (697, 770, 852, 941)  # Hz
_COLUMNS: Final = (1209, 1336, 1477, 1633)  # Hz
_KEYS: Final = "123A456B789C*0#D"  # row by row
_TONE_S: Final = 0.1
_GAP_S: Final = 0.1
_EDGE_S: Final = 0.002  # without one, a tone clicks
_LEVELS: Final = (0.20, 0.25)  # of full scale, -14 and -12 dBFS: the higher tone is the louder one


def encode_dtmf(digits: str, sample_rate: int) -> bytes:
    """Return the tones of keys, each one of ``0-9 * # A-D``, s16le mono at ``sample_rate`` (Hz)."""
    at = np.arange(round(_TONE_S * sample_rate)) / sample_rate
    edge = np.minimum(1.0, np.minimum(at, at[::-1]) / _EDGE_S)
    gap = np.zeros(round(_GAP_S * sample_rate))
    parts = [gap]
    for digit in digits:
        row, column = divmod(_KEYS.index(digit), len(_COLUMNS))
        low, high = (np.sin(2 * np.pi * frequency * at) for frequency in (_ROWS[row], _COLUMNS[column]))
        parts += [(_LEVELS[0] * low + _LEVELS[1] * high) * edge, gap]
    return np.rint(32_767 * np.concatenate(parts)).astype("<i2").tobytes()
