"""Cases e_llm and e_llm3: embedded inputs, prefill, cached steps, and greedy utterances."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from golden.reference.comparison import Comparison, compare, compare_rows, read_arrays
from golden.reference.golden_config import read_network_config, read_rule
from golden.reference.rule_weights import rule_weights
from golden.reference.upstream_generation import UpstreamOneShotGeneration
from vivavoce.models.cosyvoice.checkpoint.tensor_shapes import llm_shapes
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.lm.generation import (
    LmInput,
    LmInputKind,
    LmPrompt,
    SamplingRequest,
    SpecialIds,
    lm_inputs,
    one_shot_prefix,
)
from vivavoce.models.cosyvoice.lm.speech_lm import LmNetwork, SpeechLm, embed_inputs
from vivavoce.models.decoding.kv_memory import last_valid_hidden

_TOLERANCE = 1e-4
_ARGMAX_SOUNDS = 60  # of the trace speech_argmax60_zs
_END_OF_PROMPT_INDEX = 3  # in the prompt's text, where version 3 has <|endofprompt|>

ChooseId = Callable[[NDArray[np.float32], SamplingRequest], int]


def check_language_model_v2(folder: Path) -> Iterator[Comparison]:
    """Compare case e_llm."""
    return _check_language_model(folder, "e_llm", CosyVoiceVersion.V2)


def check_language_model_v3(folder: Path) -> Iterator[Comparison]:
    """Compare case e_llm3."""
    return _check_language_model(folder, "e_llm3", CosyVoiceVersion.V3)


def _check_language_model(folder: Path, case: str, version: CosyVoiceVersion) -> Iterator[Comparison]:
    yield from compare_language_model(folder, case, load_language_model(folder, version))


def compare_language_model(folder: Path, case: str, lm: LmNetwork) -> Iterator[Comparison]:
    """Compare a case with the reduced network, executed by any library."""
    arrays = read_arrays(folder, case)
    found = _teacher_forced_outputs(lm, arrays)
    for name in ("lm_input", "prefill_hidden", "prefill_logits", "logits", "logp"):
        yield compare(case, name, found[name], arrays[name], _TOLERANCE)
    for name, speech_ids in _utterances(lm, arrays).items():
        if name in arrays:
            yield compare_rows(case, name, [speech_ids], [arrays[name].tolist()])


def load_language_model(folder: Path, version: CosyVoiceVersion) -> SpeechLm:
    """The reduced language model of a folder, with its weights."""
    config = read_network_config(folder, version).lm
    drawn = rule_weights(llm_shapes(config), read_rule(folder))
    return SpeechLm.load(config, {key: torch.from_numpy(array) for key, array in drawn.items()})


def _teacher_forced_outputs(lm: LmNetwork, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Outputs of a prefill and of the steps that feed given ids."""
    prompt = LmPrompt(speech_ids=tuple(arrays["prompt_speech"][0].tolist()))
    text = [*arrays["prompt_text"][0].tolist(), *arrays["text"][0].tolist()]
    x, valid = embed_inputs(lm, [one_shot_prefix(prompt, text)])
    hidden, state = lm.step(x, lm.init_state(1, x.shape[1] + len(arrays["step_tokens"])), valid)
    logits = [lm.logits(last_valid_hidden(hidden, valid))]
    for id in arrays["step_tokens"].tolist():
        fed, _ = embed_inputs(lm, [lm_inputs(LmInputKind.SPEECH, [id])])
        stepped, state = lm.step(fed, state)
        logits.append(lm.logits(stepped[:, -1]))
    steps = torch.cat(logits)
    return {
        "lm_input": x,
        "prefill_hidden": hidden,
        "prefill_logits": lm.logits(hidden),
        "logits": steps,
        "logp": steps.log_softmax(-1),
    }


def _utterances(lm: LmNetwork, arrays: Mapping[str, Tensor]) -> dict[str, list[int]]:
    ids = SpecialIds(lm.config.version, lm.config.codebook_size)
    prompt_text = arrays["prompt_text"][0].tolist()
    if lm.config.version is CosyVoiceVersion.V3:
        prompt_text[_END_OF_PROMPT_INDEX] = ids.end_of_prompt
    prompt = LmPrompt(tuple(prompt_text), tuple(arrays["prompt_speech"][0].tolist()))
    text = arrays["text"][0].tolist()
    utterances = {
        "greedy_zs": _generate(lm, ids, prompt, text, _likeliest),
        "greedy_noprompt_speech": _generate(lm, ids, replace(prompt, speech_ids=()), text, _likeliest),
        "speech_argmax60_zs": _generate(lm, ids, prompt, text, _LikeliestSound(ids, _ARGMAX_SOUNDS)),
    }
    if lm.config.version is CosyVoiceVersion.V2:
        utterances["greedy_sft"] = _generate(lm, ids, LmPrompt(), text, _likeliest)
    return utterances


def _generate(
    lm: LmNetwork, ids: SpecialIds, prompt: LmPrompt, text: Sequence[int], choose: ChooseId
) -> list[int]:
    generation = UpstreamOneShotGeneration(ids, prompt)
    generation.push_text(text)
    generation.end_text()
    _, max_ids = generation.rule.bounds(len(text))
    state = lm.init_state(1, len(prompt.text_ids) + len(prompt.speech_ids) + len(text) + max_ids + 2)
    while (request := generation.ask()) is not None:
        x, valid = embed_inputs(lm, [_within_vocabulary(lm, request.inputs)])
        hidden, state = lm.step(x, state, valid)
        generation.answer(choose(lm.logits(last_valid_hidden(hidden, valid))[0].numpy(), request))
    return generation.speech_ids


def _within_vocabulary(lm: LmNetwork, inputs: Sequence[LmInput]) -> list[LmInput]:
    """A reduced vocabulary ends before <|endofprompt|>; its last row stands for it."""
    return [replace(lm_input, id=min(lm_input.id, lm.config.text_vocab_size - 1)) for lm_input in inputs]


def _likeliest(logits: NDArray[np.float32], request: SamplingRequest) -> int:
    logits[list(request.forbidden)] = -np.inf
    return int(logits.argmax())


class _LikeliestSound:
    """The likeliest sound a number of times, then the end."""

    def __init__(self, ids: SpecialIds, sounds: int) -> None:
        self._ids, self._left = ids, sounds

    def __call__(self, logits: NDArray[np.float32], request: SamplingRequest) -> int:
        self._left -= 1
        return int(logits[: self._ids.codebook_size].argmax()) if self._left >= 0 else self._ids.end
