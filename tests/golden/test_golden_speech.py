"""Every case before the flow passes as `check-golden` compares it, and a folder of another salt does not."""

import json
import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: pip install 'vivavoce[cosyvoice]'"
)

from golden.reference.lm_and_front_end import cases  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

GOLDEN = Path(__file__).parent / "data"


@pytest.mark.parametrize("case", cases())
def test_the_case_passes(case: str) -> None:
    comparisons = list(cases()[case](GOLDEN))
    assert comparisons
    assert [comparison for comparison in comparisons if not comparison.passed] == []
    assert {comparison.case for comparison in comparisons} == {case}


def test_every_array_of_the_language_models_is_compared() -> None:
    stated = json.loads((GOLDEN / "config.json").read_text("utf-8"))["cases"]
    given = {"text", "prompt_text", "prompt_speech", "step_tokens"}
    for case in ("e_llm", "e_llm3"):
        compared = {comparison.array for comparison in cases()[case](GOLDEN)}
        assert compared == set(stated[case]["arrays"]) - given


def changed(folder: Path, name: str, old: str, new: str) -> Path:
    """A copy of the golden folder with one file changed."""
    shutil.copytree(GOLDEN, folder)
    text = (folder / name).read_text("utf-8")
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1), "utf-8")
    return folder


@pytest.mark.parametrize(
    ("case", "name", "old", "new"),
    [
        ("e_llm", "config.json", '"salt": ""', '"salt": "x"'),
        ("e_llm3", "config.json", '"llm_decoder.weight": 6.0', '"llm_decoder.weight": 6.1'),
        ("h_bistream", "h_bistream.json", '"T2005"', '"T2006"'),
        ("i_schedule", "i_schedule.json", '"samples":20160', '"samples":20161'),
        ("k_frontend", "k_frontend.json", "three cats", "3 cats"),
        ("l_tokenizer_proxy", "l_tokenizer_proxy.json", "9707", "9708"),
    ],
)
def test_a_difference_is_a_miss(tmp_path: Path, case: str, name: str, old: str, new: str) -> None:
    folder = changed(tmp_path / "golden", name, old, new)
    assert not all(comparison.passed for comparison in cases()[case](folder))
