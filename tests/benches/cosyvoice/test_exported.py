"""The bench of an exported bundle speaks without torch and prints every figure."""

import json

import pytest
from click.testing import CliRunner

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from benches.__main__ import bench_group


@pytest.mark.slow
def test_an_exported_bundle_is_measured_part_by_part() -> None:
    run = CliRunner().invoke(bench_group, ["exported", "--size", "tiny", "--json"])
    assert run.exit_code == 0, run.output
    report = json.loads(run.stdout)
    figures = {figure["name"]: figure["value"] for figure in report["figures"]}
    assert len(figures) == 15
    assert all(value > -1 for value in figures.values())
    assert figures["memory, after speaking"] > figures["memory, interpreter and packages"] > 20
