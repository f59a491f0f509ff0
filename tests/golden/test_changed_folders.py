"""The language models give every array of upstream's, and cases fail in a folder with one difference."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from golden.__main__ import check_golden  # noqa: E402
from golden.reference.check_folder import CHECKS  # noqa: E402
from golden.reference.golden_config import read_config  # noqa: E402

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize("case", ["e_llm", "e_llm3"])
def test_every_array_of_the_language_models_is_that_of_upstream(case: str) -> None:
    comparisons = list(CHECKS[case](DATA))
    assert [comparison for comparison in comparisons if not comparison.passed] == []
    assert {comparison.case for comparison in comparisons} == {case}
    inputs = {"text", "prompt_text", "prompt_speech", "step_tokens"}
    compared = {comparison.array for comparison in comparisons}
    assert compared == set(read_config(DATA)["cases"][case]["arrays"]) - inputs


def copy_with_change(folder: Path, name: str, old: str, new: str) -> Path:
    """Copy the golden folder and replace the first ``old`` in one file."""
    shutil.copytree(DATA, folder)
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
        ("h_bistream", "h_bistream.json", '"mix_ratio":[5,15]', '"mix_ratio":[4,12]'),
        ("i_schedule", "i_schedule.json", '"samples":20160', '"samples":20161'),
        ("k_frontend", "k_frontend.json", "three cats", "3 cats"),
        ("l_tokenizer_proxy", "l_tokenizer_proxy.json", "9707", "9708"),
    ],
)
def test_a_difference_fails(tmp_path: Path, case: str, name: str, old: str, new: str) -> None:
    folder = copy_with_change(tmp_path / "golden", name, old, new)
    assert not all(comparison.passed for comparison in CHECKS[case](folder))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"chunk_size": 25', '"chunk_size": 50', "chunk_size is 50; expected 25"),
        ('"pre_lookahead_len": 3', '"pre_lookahead_len": 4', "pre_lookahead_len is 4; expected 3"),
        (
            '"chunk_size": 25',
            '"chunk_size": 25, "num_decoding_left_chunks": 2',
            "num_decoding_left_chunks is 2; expected -1",
        ),
    ],
)
def test_vectors_of_networks_that_are_not_built_are_refused_in_one_sentence(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    folder = copy_with_change(tmp_path / "golden", "config.json", old, new)
    answer = CliRunner().invoke(check_golden, [str(folder)])
    assert (answer.exit_code, answer.stderr) == (1, f"Error: config.json: {message}\n")
