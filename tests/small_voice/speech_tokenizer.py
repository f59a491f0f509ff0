"""The speech tokenizer: 16 kHz speech to 25 Hz speech ids, with the interface of CosyVoice 2's.

A few convolutions over Whisper's log-mel end in numbers of three levels each (finite scalar quantization).
What they must keep is what the teacher knows of the 40 ms around: both phonemes, pitch, voicing, and the mel,
level included. The view is short (0.2 s), so that an id tells of the sound at its place and of nothing else.

Source: Finite Scalar Quantization (arXiv:2309.15505); supervised ids: CosyVoice 2 (arXiv:2412.10117).
"""

import json
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper
from torch import Tensor, nn

from small_voice.optimise import Losses
from vivavoce.models.cosyvoice.config import FRAMES_PER_SPEECH_ID, MEL_BANDS
from vivavoce.models.hibari.phonemizer import ASSETS

LEVELS, DIMENSIONS = 3, 7
CODEBOOK_SIZE = LEVELS**DIMENSIONS
_WHISPER_BANDS, _WHISPER_FRAMES_PER_ID = 128, 4
_WIDTH = 128
_PHONEMES = 192  # ids of the teacher's alphabet lie below
_KERNELS_AND_STRIDES = ((5, 2), (5, 2), (3, 1))
_INAUDIBLE = -100
_CROP, _ROWS = 48, 24  # ids of a crop, crops of a batch
_PITCH_HZ = 200.0  # of which the logarithm counts as 0


class SpeechTokenizer(nn.Module):
    """Encoder, quantization and, for training, what reads the teacher's knowledge from codes."""

    def __init__(self) -> None:
        super().__init__()
        widths = (_WHISPER_BANDS, *(_WIDTH for _ in _KERNELS_AND_STRIDES))
        self.convs = nn.ModuleList(
            nn.Conv1d(inputs, outputs, kernel, stride, padding=kernel // 2)
            for (inputs, outputs), (kernel, stride) in zip(
                pairwise(widths), _KERNELS_AND_STRIDES, strict=True
            )
        )
        self.project = nn.Conv1d(_WIDTH, DIMENSIONS, 1)
        # Keeps all levels of every number in use: without it some saturate early, and their number is lost.
        self.spread = nn.BatchNorm1d(DIMENSIONS, affine=False)
        for conv in self.convs:
            nn.init.kaiming_normal_(conv.get_parameter("weight"))
        outputs = FRAMES_PER_SPEECH_ID * (_PHONEMES + 2 + MEL_BANDS)
        self.reader = nn.Sequential(
            nn.Conv1d(DIMENSIONS, 2 * _WIDTH, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(2 * _WIDTH, 2 * _WIDTH, 3, padding=1),
            nn.ReLU(),
            nn.Conv1d(2 * _WIDTH, outputs, 1),
        )

    def bounded(self, whisper: Tensor) -> Tensor:
        """(B, 128, 4 L) -> (B, 7, L) within -1..1, before rounding."""
        x = whisper
        for conv in self.convs:
            x = F.relu(conv(x))
        return torch.tanh(self.spread(self.project(x)))

    def ids(self, whisper: Tensor) -> Tensor:
        """(B, 128, 4 L) -> (B, L) int64."""
        digits = self.bounded(whisper).round().long() + 1
        return (digits * torch.tensor(_PLACES)[:, None]).sum(1)

    def read(self, codes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, 7, L) -> phonemes (B, 2 L, 192), voicing and pitch (B, 2 L, 2), mel (B, 2 L, 80)."""
        read = self.reader(codes).unflatten(1, (FRAMES_PER_SPEECH_ID, -1))
        frames = read.permute(0, 3, 1, 2).flatten(1, 2)
        phonemes, pitch, mel = torch.split(frames, [_PHONEMES, 2, MEL_BANDS], 2)
        return phonemes, pitch, mel


_PLACES = [LEVELS**place for place in range(DIMENSIONS)]


class SpeechTokenizerTask:
    """The losses of the tokenizer on crops of recordings.

    whisper: (128, 4 L) each; mels: (80, 2 L); phonemes, f0: (2 L,).
    """

    def __init__(
        self,
        network: SpeechTokenizer,
        whisper: Sequence[NDArray[np.float16]],
        mels: Sequence[NDArray[np.float16]],
        phonemes: Sequence[NDArray[np.uint8]],
        f0: Sequence[NDArray[np.float32]],
    ) -> None:
        self.network, self._whisper = network, whisper
        self._mels, self._f0 = mels, f0
        self._sounds = [audible_sounds(one) for one in phonemes]

    def losses(self, draw: np.random.Generator, progress: float) -> Losses:
        """Of a batch; ``wrong`` has no gradient: the share of phonemes that are read wrong."""
        whisper, mel, phonemes, f0 = self._crops(draw)
        bounded = self.network.bounded(whisper)
        codes = bounded + (bounded.round() - bounded).detach()
        read_phonemes, read_pitch, read_mel = self.network.read(codes)
        voiced = (f0 > 0).float()
        pitch = torch.log(f0.clamp(min=40) / _PITCH_HZ)
        return {
            "phonemes": F.cross_entropy(
                read_phonemes.flatten(0, 1), phonemes.flatten(), ignore_index=_INAUDIBLE
            ),
            "voicing": F.binary_cross_entropy_with_logits(read_pitch[..., 0], voiced),
            "pitch": 4 * ((read_pitch[..., 1] - pitch).abs() * voiced).mean(),
            "mel": 2 * (read_mel - mel.mT).abs().mean(),
            "wrong": (read_phonemes.argmax(2) != phonemes)[phonemes != _INAUDIBLE].float().mean(),
        }

    def _crops(self, draw: np.random.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        crops: list[tuple[NDArray[np.generic], ...]] = []
        while len(crops) < _ROWS:
            at = int(draw.integers(len(self._mels)))
            ids = self._mels[at].shape[1] // FRAMES_PER_SPEECH_ID
            if ids < _CROP:
                continue
            first = int(draw.integers(ids - _CROP + 1))
            frames = slice(first * FRAMES_PER_SPEECH_ID, (first + _CROP) * FRAMES_PER_SPEECH_ID)
            columns = slice(first * _WHISPER_FRAMES_PER_ID, (first + _CROP) * _WHISPER_FRAMES_PER_ID)
            crops.append(
                (
                    self._whisper[at][:, columns],
                    self._mels[at][:, frames],
                    self._sounds[at][frames],
                    self._f0[at][frames],
                )
            )
        whisper, mel, phonemes, f0 = (torch.from_numpy(np.stack(parts)) for parts in zip(*crops, strict=True))
        return whisper.float(), mel.float(), phonemes.long(), f0.float()


def audible_sounds(phonemes: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The phoneme of each frame as it is heard: a stress as the vowel after it, a space as nothing known."""
    alphabet: dict[str, int] = json.loads((ASSETS / "vocab.json").read_text("utf-8"))
    sounds = phonemes.astype(np.int64)
    for frame in range(len(sounds) - 2, -1, -1):
        if phonemes[frame] in (alphabet["ˈ"], alphabet["ˌ"]):
            sounds[frame] = sounds[frame + 1]
    sounds[phonemes == alphabet[" "]] = _INAUDIBLE
    return sounds


def _folded_projection(network: SpeechTokenizer) -> dict[str, NDArray[np.float32]]:
    """The projection with what ``spread`` does to its numbers."""
    project, spread = network.project, network.spread
    assert spread.running_mean is not None and spread.running_var is not None and project.bias is not None
    scale = (spread.running_var + spread.eps).rsqrt()
    with torch.no_grad():
        weight = project.weight * scale[:, None, None]
        bias = (project.bias - spread.running_mean) * scale
    return {"project.weight": weight.numpy(), "project.bias": bias.numpy()}


def to_onnx(network: SpeechTokenizer) -> onnx.ModelProto:
    """The graph of a bundle: feats (1, 128, T), feats_length (1,) -> indices (1, L)."""
    weights = {name: tensor.detach().numpy() for name, tensor in network.named_parameters()}
    weights |= _folded_projection(network)
    nodes: list[NodeProto] = []
    x = "feats"
    for index, (kernel, stride) in enumerate(_KERNELS_AND_STRIDES):
        names = [f"convs.{index}.weight", f"convs.{index}.bias"]
        pads = [kernel // 2, kernel // 2]
        nodes.append(helper.make_node("Conv", [x, *names], [f"conv.{index}"], strides=[stride], pads=pads))
        nodes.append(helper.make_node("Relu", [f"conv.{index}"], [f"relu.{index}"]))
        x = f"relu.{index}"
    nodes += [
        helper.make_node("Conv", [x, "project.weight", "project.bias"], ["projected"]),
        helper.make_node("Tanh", ["projected"], ["bounded"]),
        helper.make_node("Round", ["bounded"], ["rounded"]),
        helper.make_node("Add", ["rounded", "one"], ["digits"]),
        helper.make_node("Mul", ["digits", "places"], ["weighted"]),
        helper.make_node("ReduceSum", ["weighted", "axis"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["indices"], to=TensorProto.INT32),
    ]
    used = {name: weights[name] for node in nodes for name in node.input if name in weights}
    constants = {
        "one": np.ones(1, np.float32),
        "places": np.array(_PLACES, np.float32)[:, None],
        "axis": np.array([1]),
    }
    initializers = [numpy_helper.from_array(array, name) for name, array in (used | constants).items()]
    inputs = [
        helper.make_tensor_value_info("feats", TensorProto.FLOAT, [1, _WHISPER_BANDS, "T"]),
        helper.make_tensor_value_info("feats_length", TensorProto.INT32, [1]),
    ]
    outputs = [helper.make_tensor_value_info("indices", TensorProto.INT32, [1, "L"])]
    graph = helper.make_graph(nodes, "speech_tokenizer", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
