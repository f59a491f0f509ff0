"""Golden case h: the interleave of text and speech, id by id, with a scripted model."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.lm.generation import (
    CompatBistreamGeneration,
    LmInput,
    LmInputKind,
    LmPrompt,
    SamplingRequest,
    SpecialIds,
    SpeechLengthRule,
    UnexpectedIdError,
)

GOLDEN = Path(__file__).parent / "data"
CASES: list[dict[str, Any]] = json.loads((GOLDEN / "h_bistream.json").read_text("utf-8"))
FIRST_TEXT_ID = 2000


def spelled(unit: LmInput) -> str:
    match unit.kind:
        case LmInputKind.START:
            return "sos"
        case LmInputKind.TURN:
            return "task"
        case LmInputKind.TEXT:
            return f"T{unit.id}"
        case LmInputKind.SPEECH:
            return f"S{unit.id}"


class ScriptedModel:
    """Answers what the script says, and writes down what it was fed."""

    def __init__(self, case: dict[str, Any], ids: SpecialIds) -> None:
        self.words = {"fill": ids.fill, "eos": ids.end}
        self.script: Iterator[int | str] = iter(case["script"])
        self.final_script: Iterator[int | str] = iter(case["final_script"])
        self.forward_calls: list[list[str]] = []

    def answer(self, ask: SamplingRequest) -> int:
        self.forward_calls.append([spelled(unit) for unit in ask.inputs])
        if ask.forced is not None:
            return ask.forced
        said = next(self.script if ask.forbidden else self.final_script)
        return self.words[said] if isinstance(said, str) else said


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_the_compatible_interleave_feeds_and_yields_what_upstream_does(case: dict[str, Any]) -> None:
    ids = SpecialIds(CosyVoiceVersion.V3 if case["v3"] else CosyVoiceVersion.V2, 120)
    assert (ids.fill, ids.end) == (case["fill_token"], case["eos"])
    prompt = LmPrompt(tuple(case["prompt_text_ids"]), tuple(case["prompt_speech_ids"]))
    generation = CompatBistreamGeneration(ids, prompt, SpeechLengthRule())
    model = ScriptedModel(case, ids)
    error = None
    try:
        speak(generation, model, case["text_chunks"])
    except UnexpectedIdError as stray:
        error = str(stray)
    assert model.forward_calls == case["forward_calls"]
    assert generation.speech_ids == case["yielded"]
    assert error == case["error"]
    assert generation.finished


def speak(generation: CompatBistreamGeneration, model: ScriptedModel, chunks: list[int]) -> None:
    """Push each piece when the last one is spoken, as upstream's iterator of text does."""
    next_id = FIRST_TEXT_ID
    for chunk in chunks:
        generation.push_text(range(next_id, next_id + chunk))
        next_id += chunk
        answer_all(generation, model)
    generation.end_text()
    answer_all(generation, model)


def answer_all(generation: CompatBistreamGeneration, model: ScriptedModel) -> None:
    while (ask := generation.ask()) is not None:
        generation.answer(model.answer(ask))
