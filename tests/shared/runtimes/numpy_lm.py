"""Executes the exported language model with numpy and ONNX Runtime only, from the contract in the README.

    python numpy_lm.py BUNDLE/onnx PRECISION COUNT INDEX ...    prints COUNT greedy speech ids as JSON

A native runtime does the same: it knows the names of the graphs and of their inputs, and takes every size
from the graphs themselves.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

Float = NDArray[np.float32]


class NumpyLm:
    """The three graphs of the language model; the caller keeps the state."""

    def __init__(self, folder: Path, precision: str) -> None:
        self._embedding = onnxruntime.InferenceSession(str(folder / "lm_embed.onnx"))
        self._step = onnxruntime.InferenceSession(str(folder / f"lm_step.{precision}.onnx"))
        self._head = onnxruntime.InferenceSession(str(folder / f"lm_head.{precision}.onnx"))
        self._past = {
            part.name: part.shape for part in self._step.get_inputs() if part.name.startswith("past_")
        }
        self.first_speech_index = int(self._embedding.get_modelmeta().custom_metadata_map["text_rows"])
        self._outputs = ["hidden", *(name.replace("past", "present") for name in self._past)]

    def init_state(self, rows: int, capacity: int) -> list[Float]:
        """Empty buffers for ``capacity`` ids a row."""
        return [
            np.zeros((rows, heads, capacity, width), np.float32) for _, heads, _, width in self._past.values()
        ]

    def embed(self, indices: NDArray[np.int64]) -> Float:
        """(B, T) to (B, T, hidden)."""
        embedded: Float = self._embedding.run(None, {"index": indices})[0]
        return embedded

    def step(
        self, embedded: Float, lengths: NDArray[np.int64], state: list[Float]
    ) -> tuple[Float, list[Float]]:
        """Hidden states (B, T, hidden), and the new buffers."""
        past = dict(zip(self._past, state, strict=True))
        hidden, *present = self._step.run(self._outputs, {"embedded": embedded, "lengths": lengths, **past})
        return hidden, present

    def logits(self, hidden: Float) -> Float:
        """(B, T, hidden) to (B, T, speech ids)."""
        scores: Float = self._head.run(None, {"hidden": hidden})[0]
        return scores


def decode(folder: Path, precision: str, count: int, indices: Sequence[int]) -> list[int]:
    """The likeliest speech ids after some inputs, given as indices of the table of ``lm_embed``."""
    lm = NumpyLm(folder, precision)
    state = lm.init_state(1, len(indices) + count)
    fed, length, ids = np.array([indices]), 0, list[int]()
    while len(ids) < count:
        hidden, state = lm.step(lm.embed(fed), np.array([length]), state)
        length += fed.shape[1]
        ids.append(int(lm.logits(hidden[:, -1:]).argmax()))
        fed = np.array([[lm.first_speech_index + ids[-1]]])
    return ids


if __name__ == "__main__":
    graphs, of_precision, how_many, *given = sys.argv[1:]
    spoken = decode(Path(graphs), of_precision, int(how_many), [int(index) for index in given])
    print(json.dumps({"ids": spoken, "torch": "torch" in sys.modules}))
