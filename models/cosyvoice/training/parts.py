"""The trained parts of a bundle, each with its batches and its loss; the vocoder is in ``vocoder``.

A part gives ``losses`` of some utterances of a data set. All its random choices come from a ``DrawSeed``, so
that a batch may be split between processes or halved.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..flow.flow import Flow
from ..lm.speech_lm import SpeechLm
from .dataset import TrainingDataset
from .draws import DrawSeed, draw_flow, draw_interleaved
from .flow_loss import FlowBatch, TrainingLoss, flow_loss
from .lm_loss import join_lm_rows, lm_loss
from .lm_rows import LmUtterance, make_lm_row
from .lora import merge_adapters
from .networks import lm_tensors


@dataclass(frozen=True, slots=True)
class TrainingTurn:
    """One step of the optimizer on a batch."""

    loss: Callable[[TrainingDataset, Sequence[int], DrawSeed, int], TrainingLoss]  # as ``TrainedPart.loss``
    trains: str = ""  # what the names of the parameters begin with that it trains


class TrainedPart(ABC):
    """A network in training.

    Attributes:
        network: parameters that require no gradient stay as they are.
        name: "lm", "flow" or "vocoder".
        weight_file: the file of a bundle that it replaces, such as "llm.pt".
        max_row_frames: mel frames of a row at most, if it has crops of the utterances.
    """

    name: str
    weight_file: str
    network: nn.Module
    max_row_frames: int | None = None

    @property
    def turns(self) -> Sequence[TrainingTurn]:
        """The steps on each batch; the loss of the last one is reported."""
        return (TrainingTurn(self.loss),)

    @abstractmethod
    def loss(
        self, dataset: TrainingDataset, numbers: Sequence[int], seed: DrawSeed, step: int
    ) -> TrainingLoss:
        """The loss of some utterances. step: what draws of a whole batch depend on."""

    @abstractmethod
    def weight_tensors(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of ``weight_file``, of a state of the network."""


class LmPart(TrainedPart):
    """The language model. adapter_scale: of its adapters, if it has any."""

    name, weight_file = "lm", "llm.pt"

    def __init__(self, lm: SpeechLm, *, adapter_scale: float | None = None) -> None:
        self.network: SpeechLm = lm
        self._adapter_scale = adapter_scale

    def loss(
        self, dataset: TrainingDataset, numbers: Sequence[int], seed: DrawSeed, step: int
    ) -> TrainingLoss:
        """As ``TrainedPart.loss``; rows are interleaved with a probability of a half."""
        instruct, rows = dataset.about.instruct_ids, []
        for number in numbers:
            arrays = dataset.arrays(number)
            text, speech = (tuple(arrays[name].tolist()) for name in ("text_ids", "speech_ids"))
            utterance = LmUtterance(text, speech, instruct)
            interleaved = draw_interleaved(seed, number)
            rows.append(make_lm_row(self.network.config, utterance, interleaved=interleaved))
        batch = join_lm_rows(self.network.config, rows)
        return lm_loss(self.network, batch.to(self.network.device))

    def weight_tensors(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """As ``TrainedPart.weight_tensors``, with adapters merged."""
        if self._adapter_scale is not None:
            state = merge_adapters(state, self._adapter_scale)
        return lm_tensors(self.network.config, state)


class FlowPart(TrainedPart):
    """The flow. speaker_share: of the rows, those that have the speaker's mean embedding.

    dropout: of the attention weights of version 2's encoder in training; see ``dropout`` for the rest.
    """

    name, weight_file = "flow", "flow.pt"

    def __init__(self, flow: Flow, *, speaker_share: float = 1.0, dropout: float = 0.0) -> None:
        self.network: Flow = flow
        self._speaker_share, self._dropout = speaker_share, dropout

    def loss(
        self, dataset: TrainingDataset, numbers: Sequence[int], seed: DrawSeed, step: int
    ) -> TrainingLoss:
        """As ``TrainedPart.loss``; a step is streamed, or not, as a whole."""
        batch = self._batch(dataset, numbers, seed)
        draws = draw_flow(seed, step, numbers, [2 * length for length in batch.lengths.tolist()])
        device, dropout = self.network.device, self._dropout if self.network.training else 0.0
        return flow_loss(self.network, batch.to(device), draws.to(device), dropout)

    def weight_tensors(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """As ``TrainedPart.weight_tensors``."""
        return state

    def _batch(self, dataset: TrainingDataset, numbers: Sequence[int], seed: DrawSeed) -> FlowBatch:
        rows = [dataset.arrays(number) for number in numbers]
        embeddings = [
            dataset.speaker_embedding(dataset.entries[number].speaker)
            if seed.generator(5, number).random() < self._speaker_share
            else row["embedding"]
            for number, row in zip(numbers, rows, strict=True)
        ]
        lengths = torch.tensor([len(row["speech_ids"]) for row in rows])
        return FlowBatch(
            _padded(torch.from_numpy(row["speech_ids"]).long() for row in rows),
            lengths,
            _padded(torch.from_numpy(row["mel"]) for row in rows),
            torch.stack([torch.from_numpy(embedding) for embedding in embeddings]),
        )


def _padded(rows: Iterable[Tensor]) -> Tensor:
    return nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
