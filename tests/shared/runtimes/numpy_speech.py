"""Speaks with the exported graphs, numpy and ONNX Runtime only, from the contract in the README.

The random numbers of the noise are the package's.

    python numpy_speech.py BUNDLE/onnx PRECISION COUNT PROMPT.npz SAMPLES.npy

PROMPT.npz has ``lm_index`` (T,), indices of the table of ``lm_embed``; and of the voice ``embedding`` (192,),
``speech_ids`` (P,) and ``mel`` (80, 2 P). COUNT speech ids are decoded greedily and rendered in chunks.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.random import RandomState
from numpy.typing import NDArray

from vivavoce.models.cosyvoice.onnx_runtime.vocoder import normal_numbers, uniform_numbers
from vivavoce.models.cosyvoice.vocoder.normal_noise import draw_normal, noise_generator

Float = NDArray[np.float32]

BLOCK_IDS, LOOKAHEAD_IDS, MAX_CHUNK_IDS = 25, 3, 50
SAMPLES_PER_FRAME, V2_WITHHELD_FRAMES, V3_PENDING_FRAMES = 480, 20, 3
NOISE_FRAMES, NOISE_TABLE_OFFSET = 15_000, 3_852_970


class Graph:
    """A graph and its state: ``past_`` inputs, which the ``present_`` outputs of a step replace."""

    def __init__(self, folder: Path, name: str) -> None:
        self._session = onnxruntime.InferenceSession(str(folder / f"{name}.onnx"))
        self.shapes = {part.name: part.shape for part in self._session.get_inputs()}
        self.metadata = self._session.get_modelmeta().custom_metadata_map
        self._outputs = [part.name for part in self._session.get_outputs()]
        self._doubles = {part.name for part in self._session.get_inputs() if part.type == "tensor(double)"}

    def init_state(self) -> dict[str, Float]:
        """The state of one row before the first chunk."""
        return {
            name: np.zeros(
                [1, *(size if isinstance(size, int) else 0 for size in shape[1:])],
                np.float64 if name in self._doubles else np.float32,
            )
            for name, shape in self.shapes.items()
            if name.startswith("past_")
        }

    def empty_memory(self, name: str, slots: int) -> Float:
        """A memory of one row for some frames or ids."""
        *fixed, _, width = self.shapes[name][1:]
        return np.empty((1, *fixed, slots, width), np.float32)

    def run(self, inputs: Mapping[str, NDArray[np.generic]], state: dict[str, Float]) -> dict[str, Float]:
        """Outputs by name; replaces the state. Inputs that the graph does not have are left out."""
        fed = {name: array for name, array in {**inputs, **state}.items() if name in self.shapes}
        outputs = dict(zip(self._outputs, self._session.run(self._outputs, fed), strict=True))
        for name in state:
            state[name] = outputs[name.replace("past_", "present_")]
        return outputs


class NumpyFlow:
    """The flow of one utterance. frames: room for prompt and utterance."""

    def __init__(self, folder: Path, embedding: Float, frames: int) -> None:
        self._encoder, self._step = Graph(folder, "flow_encoder"), Graph(folder, "flow_step")
        self._speaker = Graph(folder, "flow_speaker").run({"embedding": embedding[None]}, {})["speaker"]
        self._noise = normal_numbers(RandomState(0), 80 * NOISE_FRAMES).reshape(80, NOISE_FRAMES).T
        self._frames = 0
        self._encoder_state = self._encoder.init_state()
        names = [name for name in ("id_memory", "frame_memory") if name in self._encoder.shapes]
        self._memories = {name: self._encoder.empty_memory(name, frames) for name in names}
        self._solver = [
            (self._step.init_state(), self._step.empty_memory("memory", frames))
            for _ in range(int(self._step.metadata["solver_steps"]))
        ]

    def render(self, ids: NDArray[np.int64], future: NDArray[np.int64], prompt_mel: Float) -> Float:
        """The mel of a chunk, (2 T, 80). prompt_mel: (2 T, 80)."""
        begin, length = self._frames, 2 * len(ids)
        place = {"length": np.array(begin), "block": np.array(2 * BLOCK_IDS)}
        inputs = {"ids": ids[None], "future": future[None], **place, **self._memories}
        outputs = self._encoder.run(inputs, self._encoder_state)
        for name, memory in self._memories.items():
            new = outputs[f"new_{name.removesuffix('_memory')}_keys_values"]
            first = begin // 2 if name == "id_memory" else begin
            memory[..., first : first + new.shape[-2], :] = new
        x = self._noise[begin : begin + length][None]
        given = {"mu": outputs["mu"], "speaker": self._speaker, "prompt_mel": prompt_mel[None], **place}
        for index, (state, memory) in enumerate(self._solver):
            step = {**given, "x": x, "memory": memory, "solver_step": np.array(index)}
            outputs = self._step.run(step, state)
            x = outputs["next_x"]
            memory[..., begin : begin + length, :] = outputs["new_keys_values"]
        self._frames += length
        mel: Float = x[0]
        return mel


class NumpyVocoder:
    """The vocoder of one utterance; noise of version 2 from a seed, of version 3 from its table."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._graph = Graph(folder, "vocoder")
        self._state = self._graph.init_state()
        self._waves = self._graph.shapes["noise"][2]
        self._is_v3 = "last" in self._graph.shapes
        self._normal = noise_generator(seed)
        self._table = RandomState(0)
        if self._is_v3:
            uniform_numbers(self._table, 80 * NOISE_FRAMES + NOISE_TABLE_OFFSET)

    def render(self, mel: Float, *, last: bool) -> Float:
        """Samples of a chunk. mel: (T, 80)."""
        flags = {"last": np.array(int(last)), "withheld": np.array(0 if last else V2_WITHHELD_FRAMES)}
        inputs = {"mel": mel.T[None], "noise": self._draw_noise(len(mel), last=last), **flags}
        samples: Float = self._graph.run(inputs, self._state)["samples"][0]
        return samples

    def _draw_noise(self, frames: int, *, last: bool) -> Float:
        if not self._is_v3:
            return draw_normal(self._normal, (1, SAMPLES_PER_FRAME * frames, self._waves))
        is_beginning = not self._state["past_mel"].shape[2]
        frames += V3_PENDING_FRAMES * (int(last) - int(is_beginning))
        shape = (1, SAMPLES_PER_FRAME * frames, self._waves)
        return uniform_numbers(self._table, int(np.prod(shape))).reshape(shape)


def chunk_edges(count: int) -> Iterator[tuple[int, int]]:
    """Whole blocks while their lookahead is there, then the rest."""
    begin, size = 0, BLOCK_IDS
    while count - begin >= size + LOOKAHEAD_IDS:
        yield begin, begin + size
        begin, size = begin + size, MAX_CHUNK_IDS
    yield begin, count


def render(folder: Path, prompt: Mapping[str, NDArray[np.generic]], ids: list[int], seed: int = 0) -> Float:
    """The samples of some speech ids in a voice; the mel of the voice's own ids is not vocoded."""
    voice_ids, embedding = prompt["speech_ids"].astype(np.int64), prompt["embedding"].astype(np.float32)
    everything = np.concatenate([voice_ids, np.array(ids)])
    prompt_mel = np.zeros((2 * len(everything), 80), np.float32)
    prompt_mel[: 2 * len(voice_ids)] = prompt["mel"].T
    flow, vocoder = NumpyFlow(folder, embedding, 2 * len(everything)), NumpyVocoder(folder, seed)
    pieces = []
    for begin, end in chunk_edges(len(everything)):
        last = end == len(everything)
        future = everything[end : end + (0 if last else LOOKAHEAD_IDS)]
        mel = flow.render(everything[begin:end], future, prompt_mel[2 * begin : 2 * end])
        new = mel[max(0, 2 * (len(voice_ids) - begin)) :]
        if len(new):
            pieces.append(vocoder.render(new, last=last))
    return np.concatenate(pieces)


if __name__ == "__main__":
    from numpy_lm import decode  # type: ignore[import-not-found]  # beside this file

    graphs, of_precision, how_many, prompt_file, samples_file = sys.argv[1:]
    with np.load(prompt_file) as given:
        of_voice = dict(given)
    spoken = decode(Path(graphs), of_precision, int(how_many), of_voice["lm_index"].tolist())
    np.save(samples_file, render(Path(graphs), of_voice, spoken))
    print(json.dumps({"ids": spoken, "torch": "torch" in sys.modules}))
