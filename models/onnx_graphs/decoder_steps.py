"""Steps of a decoder in ONNX Runtime that write keys and values into the memory of its rows.

    kv     (B, layers, 2, kv_heads, capacity + 1, head_width), as in ``SpeechLmState``
    memory (layers, 2, B, kv_heads, capacity + 1, head_width), so that a range of rows is contiguous in each
           of the graph's buffers

Past and present of a step are bound to the same memory. Rows with one input share a step. A row with more
takes a step of its own, without padding: ONNX Runtime's attention does not accept several such rows.
"""

import numpy as np
import onnxruntime
from numpy.typing import NDArray

EMBEDDED, LENGTHS, HIDDEN = "embedded", "lengths", "hidden"  # inputs and an output of a step graph
_FLOAT, _INT64 = 1, 7  # TensorProto.FLOAT, TensorProto.INT64
_Float = NDArray[np.float32]
_Integers = NDArray[np.int64]


def state_names(layers: int) -> list[str]:
    """Buffers of a step graph without past or present, in the order of its inputs and outputs."""
    return [f"{part}.{layer}" for layer in range(layers) for part in ("key", "value")]


class DecoderSteps:
    """The session of a step graph (see ``kv_attention``)."""

    def __init__(self, session: onnxruntime.InferenceSession, layers: int) -> None:
        self._session, self._states = session, state_names(layers)

    def step(self, x: _Float, kv: _Float, lengths: _Integers, counts: _Integers) -> tuple[_Float, _Integers]:
        """Feed embedded inputs (B, T, hidden), of which ``counts`` (B,) are real; padding is at the right.

        kv: a view of the memory. lengths: (B,), inputs fed before. Returns the hidden states (B, T, hidden),
        undefined at padding, and the new lengths. A row without inputs may be written to behind its length.
        Raises ValueError if a row would outgrow its memory.
        """
        after = lengths + counts
        capacity = kv.shape[4] - 1
        if after.max() > capacity:
            raise ValueError(f"a row would hold {after.max()} ids; its memory was made for {capacity}")
        hidden = np.empty_like(x)
        singles = np.flatnonzero(counts == 1)
        if len(singles):
            # Rows in between get a key behind their length, which their next input overwrites.
            rows = slice(singles[0], singles[-1] + 1)
            hidden[rows, :1] = self._run(x[rows, :1], kv[rows], lengths[rows])
        for row in np.flatnonzero(counts > 1):
            one, columns = slice(row, row + 1), slice(0, counts[row])
            hidden[one, columns] = self._run(x[one, columns], kv[one], lengths[one])
        return hidden, after

    def _run(self, x: _Float, kv: _Float, lengths: _Integers) -> _Float:
        """Run the graph on rows with T inputs each; keys and values are written into ``kv``."""
        binding = self._session.io_binding()
        x, lengths = np.ascontiguousarray(x), np.ascontiguousarray(lengths)
        hidden = np.empty(x.shape, x.dtype)
        binding.bind_input(EMBEDDED, "cpu", 0, _FLOAT, x.shape, x.ctypes.data)
        binding.bind_input(LENGTHS, "cpu", 0, _INT64, lengths.shape, lengths.ctypes.data)
        binding.bind_output(HIDDEN, "cpu", 0, _FLOAT, hidden.shape, hidden.ctypes.data)
        buffers = (part for layer in kv.transpose(1, 2, 0, 3, 4, 5) for part in layer)
        for name, buffer in zip(self._states, buffers, strict=True):
            if not buffer.flags.c_contiguous:
                raise ValueError("the state was not made by init_state; its rows are not adjacent")
            place = ("cpu", 0, _FLOAT, buffer.shape, buffer.ctypes.data)
            binding.bind_input(f"past_{name}", *place)
            binding.bind_output(f"present_{name}", *place)
        self._session.run_with_iobinding(binding)
        return hidden
