"""The interleave with upstream's faults: golden case h_bistream, and the faults one by one."""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from golden.reference.comparison import read_rows  # noqa: E402
from golden.reference.interleave import ScriptedUtterance  # noqa: E402
from golden.reference.upstream_generation import (  # noqa: E402
    UnexpectedIdError,
    UpstreamBistreamGeneration,
    UpstreamOneShotGeneration,
)
from vivavoce.models.cosyvoice.config import RELEASED_MIX_RATIO, CosyVoiceVersion  # noqa: E402
from vivavoce.models.cosyvoice.lm.generation import (  # noqa: E402
    END_OF_PROMPT_ID,
    Generation,
    LmPrompt,
    SpecialIds,
)

DATA = Path(__file__).parent / "data"
ROWS: list[dict[str, Any]] = read_rows(DATA, "h_bistream")
V2 = SpecialIds(CosyVoiceVersion.V2, 120)
V3 = SpecialIds(CosyVoiceVersion.V3, 120)


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_the_interleave_feeds_and_yields_the_ids_of_upstream(row: dict[str, Any]) -> None:
    utterance = ScriptedUtterance(row, 120, RELEASED_MIX_RATIO)
    assert utterance.run() == (row["forward_calls"], row["yielded"], row["error"])
    assert (utterance.ids.fill, utterance.ids.end) == (row["fill_token"], row["eos"])
    assert utterance.generation.finished


def generate(generation: Generation, id: int) -> Generation:
    """Push seven text ids and answer every request with one id."""
    generation.push_text(range(7))
    generation.end_text()
    while generation.ask() is not None:
        generation.answer(id)
    return generation


def test_upstream_ends_version_3_before_its_minimum_length() -> None:
    assert generate(UpstreamOneShotGeneration(V3, LmPrompt((END_OF_PROMPT_ID,))), V3.end).speech_ids == []


def test_upstream_is_ended_by_any_control_id() -> None:
    assert generate(UpstreamOneShotGeneration(V2), V2.fill).speech_ids == []


def test_upstream_fails_at_an_unexpected_id() -> None:
    with pytest.raises(UnexpectedIdError, match="got id 121"):
        generate(UpstreamBistreamGeneration(V2, LmPrompt()), 121)


def test_upstream_needs_the_end_of_the_prompt_in_version_3() -> None:
    with pytest.raises(ValueError, match="151646"):
        generate(UpstreamOneShotGeneration(V3), 1)
