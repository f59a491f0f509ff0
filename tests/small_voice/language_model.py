"""Trains the language model: text ids to speech ids, text first or interleaved, by the product's own loss.

A second loss, in the first half of the run, shows one head where to look: at the tokens of the word that is
being spoken, which the teacher knows. Alone, a network of this size takes hours to find out that speech
follows its text. Some speech ids of the input are replaced by others: without that, the network goes on by
its own ids rather than by the text, and says whole sentences of the training.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from small_voice.optimise import Losses
from small_voice.sizes import LANGUAGE_MODEL
from vivavoce.models.cosyvoice.lm.generation import LmInputKind
from vivavoce.models.cosyvoice.lm.speech_lm import SpeechLm
from vivavoce.models.cosyvoice.training.draws import INTERLEAVED_SHARE
from vivavoce.models.cosyvoice.training.lm_loss import join_lm_rows, lm_loss
from vivavoce.models.cosyvoice.training.lm_rows import NO_TARGET, LmRow, LmUtterance, make_lm_row

_GUIDED_LAYER, _GUIDED_HEAD = 1, 0
_GUIDED_SHARE = 0.6  # of the run; the weight of the second loss falls to 0 until then
_BATCH_INPUTS = 2400  # with padding
_MAX_REPLACED = 0.3  # share of a row's speech ids; it is drawn for each row


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence as ids. text_words: index of the word of each text id; speech_words: of each speech id."""

    text_ids: tuple[int, ...]
    text_words: tuple[int, ...]
    speech_ids: tuple[int, ...]
    speech_words: tuple[int, ...]


def new_network(seed: int) -> SpeechLm:
    """A language model with first weights, to be trained."""
    torch.manual_seed(seed)
    network = SpeechLm(LANGUAGE_MODEL)
    for name, parameter in network.named_parameters():
        if parameter.ndim > 1:
            shared = 1 / math.sqrt(2 * LANGUAGE_MODEL.layers) if "output" in name or "down" in name else 1.0
            std = 0.5 if "embedding" in name else shared / math.sqrt(parameter.shape[1])
            nn.init.normal_(parameter, std=std)
        else:
            nn.init.constant_(parameter, 1.0 if "norm" in name else 0.0)
    return network


class LanguageModelTask:
    """The losses of the language model on sentences."""

    def __init__(self, network: SpeechLm, sentences: Sequence[Sentence]) -> None:
        self.network = network
        # By length, so that a batch has little padding.
        self._sentences = sorted(sentences, key=lambda one: len(one.speech_ids))
        self._projections: Tensor | None = None
        layer = network.layers[_GUIDED_LAYER]
        assert isinstance(layer.qkv, nn.Module)
        layer.qkv.register_forward_hook(self._keep_projections)

    def losses(self, draw: np.random.Generator, progress: float) -> Losses:
        """Of a batch: ``ids``, ``guide``, and ``wrong``, the share of ids that are not the likeliest."""
        sentences = self._drawn(draw)
        interleaved = draw.random(len(sentences)) < INTERLEAVED_SHARE
        rows = [
            make_lm_row(
                LANGUAGE_MODEL, LmUtterance(one.text_ids, one.speech_ids), interleaved=bool(is_interleaved)
            )
            for one, is_interleaved in zip(sentences, interleaved, strict=True)
        ]
        rows = [with_replaced_ids(row, draw) for row in rows]
        loss = lm_loss(self.network, join_lm_rows(LANGUAGE_MODEL, rows))
        losses = {"ids": loss.mean, "wrong": torch.tensor(1 - loss.accuracy)}
        weight = max(0.0, 1 - progress / _GUIDED_SHARE)
        if weight:
            losses["guide"] = 0.3 * weight * self._guide_loss(sentences, rows)
        return losses

    def _drawn(self, draw: np.random.Generator) -> list[Sentence]:
        """Neighbours in length, as many as fit."""
        at = int(draw.integers(len(self._sentences)))
        longest = self._sentences[at]
        count = max(4, _BATCH_INPUTS // (len(longest.speech_ids) + len(longest.text_ids)))
        around = range(max(0, at - 4 * count), at + 1)
        return [self._sentences[one] for one in draw.choice(around, min(count, len(around)), replace=False)]

    def _keep_projections(self, _module: nn.Module, _inputs: object, output: Tensor) -> None:
        self._projections = output  # the layer rotates queries and keys in place

    def _guide_loss(self, sentences: Sequence[Sentence], rows: Sequence[LmRow]) -> Tensor:
        """How little the guided head looks at the word that is spoken, where an id is predicted."""
        config, projections = LANGUAGE_MODEL, self._projections
        assert projections is not None
        # (B, T, queries, then keys, then values; width of a head)
        heads = projections.view(*projections.shape[:2], -1, config.head_width)
        query = heads[:, :, _GUIDED_HEAD]
        key = heads[:, :, config.heads + _GUIDED_HEAD // config.queries_per_key]
        scores = query @ key.mT / math.sqrt(config.head_width)  # (B, T, T)
        columns = scores.shape[1]
        future = torch.ones(columns, columns, dtype=torch.bool).triu(1)
        shares = scores.masked_fill(future, -torch.inf).softmax(2)
        wanted = torch.from_numpy(wanted_places(sentences, rows, columns))
        seen = (shares * (wanted & ~future)).sum(2)
        is_guided = (wanted & ~future).any(2)
        loss: Tensor = -seen[is_guided].clamp(min=1e-6).log().mean()
        return loss


def with_replaced_ids(row: LmRow, draw: np.random.Generator) -> LmRow:
    """The row with other speech ids at some of its inputs; its targets stay."""
    is_replaced = draw.random(len(row.inputs)) < draw.uniform(0, _MAX_REPLACED)
    others = draw.integers(LANGUAGE_MODEL.codebook_size, size=len(row.inputs)).tolist()
    inputs = tuple(
        replace(one, id=other) if one.kind is LmInputKind.SPEECH and replaced else one
        for one, replaced, other in zip(row.inputs, is_replaced, others, strict=True)
    )
    return LmRow(inputs, row.targets)


def wanted_places(sentences: Sequence[Sentence], rows: Sequence[LmRow], columns: int) -> np.ndarray:
    """(B, T, T) bool: at the inputs that predict a speech id, the inputs with text of the word of that id."""
    wanted = np.zeros((len(rows), columns, columns), bool)
    for place, (sentence, row) in enumerate(zip(sentences, rows, strict=True)):
        word_of_input = np.full(columns, -2)
        texts = [at for at, one in enumerate(row.inputs) if one.kind is LmInputKind.TEXT]
        word_of_input[texts] = sentence.text_words
        predicts = [
            at
            for at, target in enumerate(row.targets)
            if target != NO_TARGET and target < LANGUAGE_MODEL.codebook_size
        ]
        word_of_target = np.full(columns, -3)
        word_of_target[predicts] = np.maximum(sentence.speech_words, 0)
        wanted[place] = word_of_target[:, None] == word_of_input[None]
    return wanted
