"""Case h_bistream: the interleave of text and speech, id by id, with a scripted model."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from golden.reference.comparison import Comparison, compare_rows, read_rows
from golden.reference.golden_config import read_network_config
from golden.reference.upstream_generation import (
    ForcedRequest,
    UnexpectedIdError,
    UpstreamBistreamGeneration,
)
from vivavoce.models.cosyvoice.config import CosyVoiceVersion, MixRatio
from vivavoce.models.cosyvoice.lm.generation import (
    LmInput,
    LmInputKind,
    LmPrompt,
    SamplingRequest,
    SpecialIds,
)

_FIRST_TEXT_ID = 2000  # of the pushed text; later ids count up

Row = Mapping[str, Any]


def check_interleave(folder: Path) -> Iterator[Comparison]:
    """Compare inputs of every step, yielded ids and error, for every way of pushing the text."""
    lm = read_network_config(folder, CosyVoiceVersion.V2).lm
    rows = read_rows(folder, "h_bistream")
    ours = [ScriptedUtterance(row, lm.codebook_size, MixRatio(*row["mix_ratio"])).run() for row in rows]
    theirs = [(row["forward_calls"], row["yielded"], row["error"]) for row in rows]
    yield compare_rows("h_bistream", "forward_calls, yielded, error", ours, theirs)


class ScriptedUtterance:
    """One row of the case: a model that answers from a script and records its inputs."""

    def __init__(self, row: Row, codebook_size: int, mix_ratio: MixRatio) -> None:
        version = CosyVoiceVersion.V3 if row["v3"] else CosyVoiceVersion.V2
        self.ids = SpecialIds(version, codebook_size)
        self._named_ids = {"fill": self.ids.fill, "eos": self.ids.end}
        self._script, self._final_script = iter(row["script"]), iter(row["final_script"])
        self._text_chunks = row["text_chunks"]
        self._forward_calls: list[list[str]] = []
        prompt = LmPrompt(tuple(row["prompt_text_ids"]), tuple(row["prompt_speech_ids"]))
        self.generation = UpstreamBistreamGeneration(self.ids, prompt, mix_ratio)

    def run(self) -> tuple[list[list[str]], list[int], str | None]:
        """Inputs of every step, yielded ids, and the error."""
        error = None
        try:
            self._push_all()
        except UnexpectedIdError as unexpected:
            error = str(unexpected)
        return self._forward_calls, self.generation.speech_ids, error

    def _push_all(self) -> None:
        """Push each chunk after the last one is spoken, as upstream's iterator of text does."""
        first = _FIRST_TEXT_ID
        for count in self._text_chunks:
            self.generation.push_text(range(first, first + count))
            first += count
            self._answer_all()
        self.generation.end_text()
        self._answer_all()

    def _answer_all(self) -> None:
        while (request := self.generation.ask()) is not None:
            self._forward_calls.append([_upstream_name(lm_input) for lm_input in request.inputs])
            self.generation.answer(self._answer(request))

    def _answer(self, request: SamplingRequest) -> int:
        if isinstance(request, ForcedRequest):
            return self.ids.fill
        answer = next(self._script if request.forbidden else self._final_script)
        return self._named_ids[answer] if isinstance(answer, str) else int(answer)


def _upstream_name(lm_input: LmInput) -> str:
    match lm_input.kind:
        case LmInputKind.START:
            return "sos"
        case LmInputKind.TURN:
            return "task"
        case LmInputKind.TEXT:
            return f"T{lm_input.id}"
        case LmInputKind.SPEECH:
            return f"S{lm_input.id}"
