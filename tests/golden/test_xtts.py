"""The networks of XTTS v2, each and end to end, against the stored answers of upstream."""

import json
import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the XTTS networks need torch: make test EXTRAS=dev,cosyvoice")

from golden.reference.check_folder import XTTS_CHECKS, check_folder  # noqa: E402
from golden.reference.golden_config import read_config  # noqa: E402
from golden.reference.xtts.networks import load_rule_networks  # noqa: E402

DATA = Path(__file__).parent / "xtts_data"
# Arrays that a case reads and does not compare.
INPUTS = {"wav_a", "wav_b", "text", "cond", "forced", "text_long"}

CASES = sorted(XTTS_CHECKS.keys() - {"e_sampling", "f_latents", "h_stream"})


@pytest.mark.parametrize("case", CASES)
def test_every_array_of_a_case_is_an_input_or_that_of_upstream(case: str) -> None:
    comparisons = list(XTTS_CHECKS[case](DATA))
    assert [comparison for comparison in comparisons if not comparison.passed] == []
    arrays = read_config(DATA)["cases"].get(case, {}).get("arrays", {})
    compared = {comparison.array for comparison in comparisons}
    read_only = INPUTS - (compared if case == "j_tts" else set())
    assert {name for name in arrays if not name.startswith("u_")} - read_only <= compared


def test_a_folder_of_xtts_is_told_from_one_of_cosyvoice(tmp_path: Path) -> None:
    for name in ("config.json", "vocab.json", "manifest_xtts_v2.json"):
        shutil.copy(DATA / name, tmp_path)
    (tmp_path / "z_unknown.npz").write_bytes(b"")
    results = {result.case: result.passed for result in check_folder(tmp_path)}
    assert results == {"manifest_xtts_v2": True, "z_unknown": False}


@pytest.mark.parametrize(
    ("case", "path", "value"),
    [
        ("d_gpt", ("multipliers", "mel_head.weight"), 2.6),
        ("i_tokenizer", ("rows", 0, "clean_lower"), "hello mister brown"),
    ],
)
def test_a_difference_fails(tmp_path: Path, case: str, path: tuple[str | int, ...], value: object) -> None:
    folder = tmp_path / "golden"
    shutil.copytree(DATA, folder)
    file = folder / ("config.json" if case == "d_gpt" else f"{case}.json")
    stated = json.loads(file.read_text("utf-8"))
    place = stated
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    file.write_text(json.dumps(stated), "utf-8")
    load_rule_networks.cache_clear()
    assert not all(comparison.passed for comparison in XTTS_CHECKS[case](folder))
