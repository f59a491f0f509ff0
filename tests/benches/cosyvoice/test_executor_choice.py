"""The bench of the choice between libraries times both at every setting."""

import json

import pytest
from click.testing import CliRunner

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from benches.__main__ import bench_group


@pytest.mark.slow
def test_both_libraries_are_timed_and_the_choice_is_one_of_them() -> None:
    run = CliRunner().invoke(bench_group, ["executor-choice", "--size", "tiny", "--json"])
    figures = {figure["name"]: figure["value"] for figure in json.loads(run.stdout)["figures"]}
    assert len(figures) == 3 * 3 * 3  # settings, networks, figures
    shares = [value for name, value in figures.items() if "against the faster" in name]
    assert len(shares) == 9 and min(shares) >= 1
