"""Case v3_silent_filter: long silences of version 3, shortened."""

from collections.abc import Iterator
from pathlib import Path

from golden.reference.comparison import Comparison, compare_rows, read_rows
from vivavoce.models.cosyvoice.lm.sampling import SilenceFilter


def check_silence_filter(folder: Path) -> Iterator[Comparison]:
    """Compare the ids that pass, pushed at once and one by one, for the silent ids that the case states."""
    stated = read_rows(folder, "v3_silent_filter")
    silent, max_run = frozenset(stated["silent_tokens"]), stated["max_consecutive_kept"]
    theirs = [case["out"] for case in stated["cases"]]
    at_once = [list(SilenceFilter(silent, max_run).push(case["inp"])) for case in stated["cases"]]
    yield compare_rows("v3_silent_filter", "traces", at_once, theirs)
    one_by_one = []
    for case in stated["cases"]:
        silence_filter = SilenceFilter(silent, max_run)
        one_by_one.append([kept for id in case["inp"] for kept in silence_filter.push([id])])
    yield compare_rows("v3_silent_filter", "traces, one by one", one_by_one, theirs)
