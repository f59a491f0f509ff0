"""Checks the CosyVoice networks against a folder of reference vectors, case by case.

A case is a file of the folder; configuration, salt and multipliers come from its config.json. What is
compared and how closely is the models' own affair (``models/cosyvoice/golden``).
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from vivavoce.tts_engine.errors import BadRequest, MissingExtra

_NON_CASE_PREFIXES = ("config", "manifest_")  # what cases are made of, and the released sizes


@dataclass(frozen=True, slots=True)
class GoldenCaseResult:
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


def check_golden(folder: Path) -> Iterator[GoldenCaseResult]:
    """Every case found in ``folder``, in order of name.

    Raises BadRequest for a folder without config.json, MissingExtra without torch.
    """
    if not (folder / "config.json").is_file():
        raise BadRequest(f"{folder} has no config.json; a folder of reference vectors has one")
    known = _known_cases()
    for case in sorted({file.stem for file in folder.iterdir() if file.suffix in (".npz", ".json")}):
        if case.startswith(_NON_CASE_PREFIXES):
            continue
        if case not in known:
            yield GoldenCaseResult(case, "", float("inf"), 0.0)
            continue
        yield known[case](folder)


def _known_cases() -> Mapping[str, Callable[[Path], GoldenCaseResult]]:
    try:
        from golden.reference import flow as reference_flow
        from golden.reference import lm_and_front_end as golden_speech
        from golden.reference import vocoder as reference_hift_v2
    except ModuleNotFoundError as error:
        raise MissingExtra("check-golden", "cosyvoice") from error
    compared = {**reference_flow.CASES, **reference_hift_v2.CASES, **golden_speech.cases()}

    def summed(case: str) -> Callable[[Path], GoldenCaseResult]:
        def check(folder: Path) -> GoldenCaseResult:
            worst = max(
                compared[case](folder),
                key=lambda one: one.error / one.tolerance if one.tolerance else one.error,
            )
            return GoldenCaseResult(case, worst.array, worst.error, worst.tolerance)

        return check

    return {case: summed(case) for case in compared} | {
        "rand_noise": _initial_noise,
        "v3_silent_filter": _silent_filter,
    }


def _initial_noise(folder: Path) -> GoldenCaseResult:
    from golden.reference import flow as reference_flow
    from vivavoce.models.cosyvoice.flow.flow import Flow

    stored = reference_flow.read_arrays(folder, "rand_noise")["rand_noise"][0]
    ours = Flow(reference_flow.stated_flow_config(folder, 3)).noise(0, stored.shape[1]).T
    return GoldenCaseResult("rand_noise", "rand_noise", float((ours - stored).abs().max()), 0.0)


def _silent_filter(folder: Path) -> GoldenCaseResult:
    from vivavoce.models.cosyvoice.lm.silence_filter import SilenceFilter

    stated = json.loads((folder / "v3_silent_filter.json").read_text("utf-8"))
    silent, longest = frozenset(stated["silent_tokens"]), stated["max_consecutive_kept"]
    wrong = sum(
        list(SilenceFilter(silent, longest).push(case["inp"])) != case["out"] for case in stated["cases"]
    )
    return GoldenCaseResult("v3_silent_filter", "traces", float(wrong), 0.0)
