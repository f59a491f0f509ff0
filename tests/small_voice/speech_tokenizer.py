"""The speech tokenizer: 16 kHz speech to 25 Hz speech ids, with the interface of CosyVoice 2's.

Convolutions over Whisper's log-mel say how likely each sound is in both halves of 40 ms, and each pitch; the
id is that of the likeliest triple that there is. They learn it from what the teacher says of its recordings.

Source: ids that are learned under supervision: CosyVoice 2 (arXiv:2412.10117).
"""

from collections.abc import Sequence

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper
from torch import Tensor, nn

from small_voice.optimise import Losses
from small_voice.sounds import PITCHES, SOUNDS, Codebook
from vivavoce.models.cosyvoice.config import FRAMES_PER_SPEECH_ID

_WHISPER_BANDS, _WHISPER_FRAMES_PER_ID = 128, 4
_WIDTH, _KERNEL, _STRIDES = 128, 5, (2, 2, 1, 1, 1)  # a layer of stride 1 is added to what it is given
_GROUPS = (*(SOUNDS for _ in range(FRAMES_PER_SPEECH_ID)), PITCHES)
_CROP, _ROWS = 48, 24  # ids of a crop, crops of a batch


class SpeechTokenizer(nn.Module):
    """The network. triples: those of the codebook's ids."""

    triples: Tensor

    def __init__(self, codebook: Codebook) -> None:
        super().__init__()
        self.register_buffer("triples", torch.from_numpy(codebook.triples))
        widths = (_WHISPER_BANDS, *(_WIDTH for _ in _STRIDES[1:]))
        self.convs = nn.ModuleList(
            nn.Conv1d(width, _WIDTH, _KERNEL, stride, padding=_KERNEL // 2)
            for width, stride in zip(widths, _STRIDES, strict=True)
        )
        self.project = nn.Conv1d(_WIDTH, sum(_GROUPS), 1)

    def scores(self, whisper: Tensor) -> tuple[Tensor, ...]:
        """(B, 128, 4 L) -> of the first sound, the second and the pitch: (B, 192 or 6, L) before softmax."""
        x = whisper
        for conv, stride in zip(self.convs, _STRIDES, strict=True):
            heard = F.relu(conv(x))
            x = x + heard if stride == 1 else heard
        return torch.split(self.project(x), list(_GROUPS), 1)

    def ids(self, whisper: Tensor) -> Tensor:
        """(B, 128, 4 L) -> (B, L) int64."""
        shares = [scores.log_softmax(1) for scores in self.scores(whisper)]
        likely = [share[:, members] for share, members in zip(shares, self.triples.T, strict=True)]
        return torch.stack(likely).sum(0).argmax(1)


class SpeechTokenizerTask:
    """The losses of the tokenizer on crops of recordings. whisper: (128, 4 L) each; ids: (L,)."""

    def __init__(
        self,
        network: SpeechTokenizer,
        whisper: Sequence[NDArray[np.float16]],
        ids: Sequence[NDArray[np.int64]],
    ) -> None:
        self.network, self._whisper, self._ids = network, whisper, ids

    def losses(self, draw: np.random.Generator, progress: float) -> Losses:
        """Of a batch; ``wrong`` has no gradient: the share of sounds that are heard wrong."""
        whisper, ids = self._crops(draw)
        wanted = self.network.triples[ids].unbind(2)
        *sounds, pitch = self.network.scores(whisper)
        wrong = [one.argmax(1) != right for one, right in zip(sounds, wanted, strict=False)]
        of_sounds = [F.cross_entropy(one, right) for one, right in zip(sounds, wanted, strict=False)]
        return {
            "sounds": torch.stack(of_sounds).sum(),
            "pitch": F.cross_entropy(pitch, wanted[-1]),
            "wrong": torch.stack(wrong).float().mean(),
        }

    def _crops(self, draw: np.random.Generator) -> tuple[Tensor, Tensor]:
        whisper, ids = list[NDArray[np.float16]](), list[NDArray[np.int64]]()
        while len(ids) < _ROWS:
            at = int(draw.integers(len(self._ids)))
            room = len(self._ids[at]) - _CROP
            if room < 0:
                continue
            first = int(draw.integers(room + 1))
            columns = slice(first * _WHISPER_FRAMES_PER_ID, (first + _CROP) * _WHISPER_FRAMES_PER_ID)
            whisper.append(self._whisper[at][:, columns])
            ids.append(self._ids[at][first : first + _CROP])
        return torch.from_numpy(np.stack(whisper)).float(), torch.from_numpy(np.stack(ids))


def to_onnx(network: SpeechTokenizer) -> onnx.ModelProto:
    """The graph of a bundle: feats (1, 128, T), feats_length (1,) -> indices (1, L)."""
    nodes: list[NodeProto] = []
    x = "feats"
    for index, stride in enumerate(_STRIDES):
        names = [f"convs.{index}.weight", f"convs.{index}.bias"]
        pads = [_KERNEL // 2, _KERNEL // 2]
        nodes.append(helper.make_node("Conv", [x, *names], [f"conv.{index}"], strides=[stride], pads=pads))
        nodes.append(helper.make_node("Relu", [f"conv.{index}"], [f"heard.{index}"]))
        if stride == 1:
            nodes.append(helper.make_node("Add", [x, f"heard.{index}"], [f"sum.{index}"]))
        x = nodes[-1].output[0]
    groups = range(len(_GROUPS))
    nodes += [
        helper.make_node("Conv", [x, "project.weight", "project.bias"], ["scores"]),
        helper.make_node("Split", ["scores", "groups"], [f"scores.{group}" for group in groups], axis=1),
    ]
    for group in groups:
        nodes.append(helper.make_node("LogSoftmax", [f"scores.{group}"], [f"shares.{group}"], axis=1))
        members = [f"shares.{group}", f"triples.{group}"]
        nodes.append(helper.make_node("Gather", members, [f"likely.{group}"], axis=1))
    nodes += [
        helper.make_node("Sum", [f"likely.{group}" for group in groups], ["likely"]),
        helper.make_node("ArgMax", ["likely"], ["best"], axis=1, keepdims=0),
        helper.make_node("Cast", ["best"], ["indices"], to=TensorProto.INT32),
    ]
    weights = {name: tensor.detach().numpy() for name, tensor in network.named_parameters()}
    weights["groups"] = np.array(_GROUPS)
    weights |= {f"triples.{group}": members.numpy() for group, members in enumerate(network.triples.T)}
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    inputs = [
        helper.make_tensor_value_info("feats", TensorProto.FLOAT, [1, _WHISPER_BANDS, "T"]),
        helper.make_tensor_value_info("feats_length", TensorProto.INT32, [1]),
    ]
    outputs = [helper.make_tensor_value_info("indices", TensorProto.INT32, [1, "L"])]
    graph = helper.make_graph(nodes, "speech_tokenizer", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def codebook_of(model: onnx.ModelProto) -> Codebook:
    """The codebook that a graph of ``to_onnx`` names its ids by."""
    arrays = {one.name: one for one in model.graph.initializer}
    columns = [numpy_helper.to_array(arrays[f"triples.{group}"]) for group in range(len(_GROUPS))]
    return Codebook(np.column_stack(columns))
