"""The vectors of upstream's training classes: batches, draws, and networks with the weights of the rule."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from golden.reference.comparison import Arrays, read_arrays
from golden.reference.golden_config import read_network_config, read_rule
from golden.reference.rule_weights import rule_weights
from vivavoce.models.cosyvoice.checkpoint.tensor_shapes import flow_shapes, llm_shapes
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.flow.flow import Flow
from vivavoce.models.cosyvoice.lm.speech_lm import SpeechLm
from vivavoce.models.cosyvoice.training.flow_loss import FlowBatch, FlowDraws
from vivavoce.models.cosyvoice.training.lm_loss import LmBatch, join_lm_rows
from vivavoce.models.cosyvoice.training.lm_rows import LmRow, LmUtterance, make_lm_row
from vivavoce.models.cosyvoice.training.networks import lm_tensors, trainable_flow, trainable_lm

SIZES = Path(__file__).parent.parent / "data"  # whose config.json has all sizes
DATA = Path(__file__).parent / "data"


def stated_config() -> dict[str, Any]:
    """The config.json of the training vectors."""
    stated: dict[str, Any] = json.loads((DATA / "config.json").read_text("utf-8"))
    return stated


def golden_lm(version: CosyVoiceVersion) -> SpeechLm:
    """The reduced language model, to be trained."""
    config = read_network_config(SIZES, version).lm
    drawn = rule_weights(llm_shapes(config), read_rule(DATA))
    return trainable_lm(config, {key: torch.from_numpy(array) for key, array in drawn.items()})


def golden_flow(version: CosyVoiceVersion) -> Flow:
    """The reduced flow, to be trained."""
    config = read_network_config(SIZES, version).flow
    drawn = rule_weights(flow_shapes(config), read_rule(DATA))
    return trainable_flow(config, {key: torch.from_numpy(array) for key, array in drawn.items()})


def lm_rows(lm: SpeechLm, arrays: Arrays) -> list[LmRow]:
    """The rows of a case, with its draws."""
    return [
        make_lm_row(lm.config, utterance, interleaved=draw < 0.5)
        for utterance, draw in zip(_utterances(arrays), arrays["draws"].tolist(), strict=True)
    ]


def lm_batch(lm: SpeechLm, arrays: Arrays) -> LmBatch:
    """The batch of a case."""
    return join_lm_rows(lm.config, lm_rows(lm, arrays))


def _utterances(arrays: Arrays) -> Iterator[LmUtterance]:
    def rows(name: str) -> list[tuple[int, ...]]:
        lengths = arrays[f"{name}_len"].tolist()
        return [tuple(row[:length]) for row, length in zip(arrays[name].tolist(), lengths, strict=True)]

    texts, speeches = rows("text_token"), rows("speech_token")
    instructs = rows("instruct_token") if "instruct_token" in arrays else [()] * len(texts)
    for text, speech, instruct in zip(texts, speeches, instructs, strict=True):
        yield LmUtterance(text, speech, instruct)


def flow_batch() -> FlowBatch:
    """The batch of all flow cases."""
    arrays = read_arrays(DATA, "flow_inputs")
    ids, lengths = arrays["speech_token"].long(), arrays["speech_token_len"].long()
    return FlowBatch(ids, lengths, arrays["speech_feat"].float(), arrays["embedding"])


def flow_draws(arrays: Arrays) -> FlowDraws:
    """The draws of a flow case."""
    inputs = read_arrays(DATA, "flow_inputs")
    noise = inputs["z"].float().mT.contiguous()
    frames, kept = arrays["prompt_frames"], arrays["kept"]
    return FlowDraws(bool(arrays["streaming"]), frames, inputs["t"], noise, kept)


def upstream_tensors(network: nn.Module, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters or gradients of a network under upstream's keys."""
    if isinstance(network, SpeechLm):
        return lm_tensors(network.config, values)
    return dict(values)


def gradients(network: nn.Module) -> dict[str, Tensor]:
    """Gradients of all parameters, under upstream's keys."""
    found = {name: parameter.grad for name, parameter in network.named_parameters()}
    return upstream_tensors(network, {name: grad for name, grad in found.items() if grad is not None})


def stored_places(tensor: Tensor) -> Tensor:
    """The numbers that a case stores of a tensor: at places 0, n / 12, 2 n / 12, ..."""
    flat = tensor.detach().flatten()
    count = min(12, len(flat))
    return flat[[len(flat) * place // count for place in range(count)]]
