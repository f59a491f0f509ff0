"""Checks the CosyVoice networks against a folder of reference vectors, case by case.

A case is a file of the folder; configuration, salt and multipliers come from its config.json. What is
compared and how closely is the models' own affair (``models/cosyvoice/golden``).
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import BadRequest, MissingExtra

_NO_CASES = ("config", "manifest_")  # what cases are made of, and the released sizes


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case: its largest error against its tolerance, at the array that comes nearest to failing.

    ``array``: "" for a case that nobody here knows, which is a failure.
    """

    case: str
    array: str
    error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether every array of the case is within its tolerance."""
        return bool(self.array) and self.error <= self.tolerance


def check_golden(folder: Path) -> Iterator[CaseResult]:
    """Every case found in ``folder``, in order of name.

    Raises BadRequest for a folder without config.json, MissingExtra without torch.
    """
    if not (folder / "config.json").is_file():
        raise BadRequest(f"{folder} has no config.json; a folder of reference vectors has one")
    known = _cases()
    for case in sorted({file.stem for file in folder.iterdir() if file.suffix in (".npz", ".json")}):
        if case.startswith(_NO_CASES):
            continue
        if case not in known:
            yield CaseResult(case, "", float("inf"), 0.0)
            continue
        yield known[case](folder)


def _cases() -> Mapping[str, Callable[[Path], CaseResult]]:
    try:
        from ..models.cosyvoice.golden import flow as golden_flow
        from ..models.cosyvoice.golden import hift as golden_hift
        from ..models.cosyvoice.golden import speech as golden_speech
    except ModuleNotFoundError as error:
        raise MissingExtra("check-golden", "cosyvoice") from error
    compared = {**golden_flow.CASES, **golden_hift.CASES, **golden_speech.cases()}

    def summed(case: str) -> Callable[[Path], CaseResult]:
        def check(folder: Path) -> CaseResult:
            worst = max(
                compared[case](folder),
                key=lambda one: one.error / one.tolerance if one.tolerance else one.error,
            )
            return CaseResult(case, worst.array, worst.error, worst.tolerance)

        return check

    return {case: summed(case) for case in compared} | {
        "rand_noise": _initial_noise,
        "v3_silent_filter": _silent_filter,
    }


def _initial_noise(folder: Path) -> CaseResult:
    from ..models.cosyvoice.flow import Flow
    from ..models.cosyvoice.golden import flow as golden_flow

    stored = golden_flow.read_arrays(folder, "rand_noise")["rand_noise"][0]
    ours = Flow(golden_flow.flow_config(folder, 3)).noise(0, stored.shape[1]).T
    return CaseResult("rand_noise", "rand_noise", float((ours - stored).abs().max()), 0.0)


def _silent_filter(folder: Path) -> CaseResult:
    from ..models.cosyvoice.silent_ids import SilentFilter

    stated = json.loads((folder / "v3_silent_filter.json").read_text("utf-8"))
    silent, longest = frozenset(stated["silent_tokens"]), stated["max_consecutive_kept"]
    wrong = sum(
        list(SilentFilter(silent, longest).push(case["inp"])) != case["out"] for case in stated["cases"]
    )
    return CaseResult("v3_silent_filter", "traces", float(wrong), 0.0)
