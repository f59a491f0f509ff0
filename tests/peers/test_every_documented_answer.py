"""Requests with each boundary of each parameter of every operation: 5,000 of them."""

from pathlib import Path

from shared.gateways.documented_answers import EVERY_PATH, check_documented_answers


def test_schemathesis_finds_no_undocumented_answer_at_any_boundary(
    gateway: dict[str, str], tmp_path: Path
) -> None:
    check_documented_answers(gateway, tmp_path, EVERY_PATH)
