"""The table of the golden check: case, largest error, tolerance, verdict."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from golden.reference.check_folder import GoldenCaseResult, check_folder

_ROW_FORMAT = "{:<20} {:<30} {:>14} {:>10}  {}"


def print_report(folder: Path, *, as_json: bool, show: Callable[[str], None]) -> bool:
    """Show a line a case as it is done, or all as one JSON object.

    Returns whether there was a case and all passed. Raises FileNotFoundError without a config.json.
    """
    if not as_json:
        show(_ROW_FORMAT.format("case", "nearest to failing", "largest error", "tolerance", "verdict"))
    results = []
    for result in check_folder(folder):
        results.append(result)
        if not as_json:
            show(_ROW_FORMAT.format(*_row(result)))
    if as_json:
        cases = [asdict(result) | {"passed": result.passed} for result in results]
        show(json.dumps({"cases": cases}, indent=2))
    return bool(results) and all(result.passed for result in results)


def _row(result: GoldenCaseResult) -> tuple[str, str, str, str, str]:
    if not result.array:
        return result.case, "", "", "", "UNKNOWN"
    verdict = "pass" if result.passed else "FAIL"
    return result.case, result.array, f"{result.error:.2g}", f"{result.tolerance:.2g}", verdict
