"""Decodes a sentence id by id with the language model of XTTS, for the golden checks."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from vivavoce.models.decoding.uniforms import Float
from vivavoce.models.xtts.gpt import XttsGpt, XttsPrompt
from vivavoce.models.xtts.sampling import (
    PREFIX_ID,
    XttsSampling,
    XttsSamplingInputs,
    likeliest_id,
    sample_speech_ids,
)

Draw = Callable[[Float, Sequence[int]], int]  # an id from logits (V,) and the ids to penalize


class StoredUniforms:
    """Random numbers of a stored run, in order."""

    def __init__(self, numbers: Tensor) -> None:
        self._numbers: Iterator[float] = iter(numbers.tolist())

    def random(self) -> float:
        """The next number."""
        return next(self._numbers)


def sampled(uniforms: StoredUniforms, parameters: XttsSampling) -> Draw:
    """Draws with the stored random numbers."""
    return lambda logits, seen: sample_speech_ids(
        logits[None], [XttsSamplingInputs(seen, uniforms, parameters)]
    )[0]


def greedy(repetition_penalty: float) -> Draw:
    """Takes the likeliest id."""
    return lambda logits, seen: likeliest_id(logits, seen, repetition_penalty)


@torch.inference_mode()
def decode(gpt: XttsGpt, prompt: XttsPrompt, draw: Draw) -> tuple[list[int], Tensor, Tensor]:
    """Ids to the stop id or the longest length, their latents (n, hidden) and logits (n, V)."""
    x, valid = gpt.embed_prompts([prompt])
    state = gpt.init_state(1, int(valid[0]) + gpt.config.max_new_ids)
    hidden, state = gpt.step(x, state, valid)
    seen = [PREFIX_ID, gpt.config.start_speech_id]
    ids: list[int] = []
    latents: list[Tensor] = []
    while True:
        latents.append(gpt.latents(hidden[:, -1]))
        ids.append(draw(gpt.logits(latents[-1])[0].numpy(), [*seen, *ids]))
        if ids[-1] == gpt.config.stop_speech_id or len(ids) == gpt.config.max_new_ids:
            made = torch.cat(latents)
            return ids, made, gpt.logits(made)
        x = gpt.embed_speech(torch.tensor([ids[-1:]]), torch.tensor([[len(ids) - 1]]))
        hidden, state = gpt.step(x, state)
