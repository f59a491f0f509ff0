"""Runs the check of every case in a folder of vectors.

A case is a .npz or .json file of the folder; sizes, salt and multipliers come from the folder's config.json,
so any folder in the layout of tests/golden/data can be checked.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from golden.reference import (
    features,
    flow,
    flow_networks,
    interleave,
    language_model,
    sampling,
    schedule,
    silence,
    speech,
    text_ids,
    text_rules,
    vocoder,
)
from golden.reference.comparison import Check
from golden.reference.golden_config import require_supported

CHECKS: Mapping[str, Check] = {
    "a_encoder": flow_networks.check_encoder,
    "b_cfm": flow.check_solver,
    "b_estimator": flow_networks.check_unet,
    "c_flow": flow.check_flow_v2,
    "d_hift": vocoder.check_vocoder_v2,
    "e_llm": language_model.check_language_model_v2,
    "e_llm3": language_model.check_language_model_v3,
    "f_ras": sampling.check_sampling,
    "g_features": features.check_features,
    "h_bistream": interleave.check_interleave,
    "i_schedule": schedule.check_schedule,
    "j_tts": speech.check_speech_v2,
    "k_frontend": text_rules.check_text_rules,
    "l_tokenizer_proxy": text_ids.check_text_ids,
    "rand_noise": flow.check_noise,
    "v3_dit": flow_networks.check_dit,
    "v3_flow": flow.check_flow_v3,
    "v3_hift": vocoder.check_vocoder_v3,
    "v3_j_tts": speech.check_speech_v3,
    "v3_silent_filter": silence.check_silence_filter,
}

_NON_CASE_PREFIXES = ("config", "manifest_")  # sizes of the reduced and of the released networks


@dataclass(frozen=True, slots=True)
class GoldenCaseResult:
    """Result of one case: that of the array closest to its tolerance."""

    case: str
    array: str  # empty for a case without a check, which is a failure
    error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether every array of the case is within its tolerance."""
        return bool(self.array) and self.error <= self.tolerance


def check_folder(folder: Path) -> Iterator[GoldenCaseResult]:
    """Check every case of a folder, in order of name.

    Raises FileNotFoundError without a config.json, UnsupportedGoldenConfigError for networks not built here.
    """
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} has no config.json; a folder of reference vectors has one")
    require_supported(folder)
    for case in sorted({file.stem for file in folder.iterdir() if file.suffix in (".npz", ".json")}):
        if not case.startswith(_NON_CASE_PREFIXES):
            yield _check_case(folder, case)


def _check_case(folder: Path, case: str) -> GoldenCaseResult:
    if case not in CHECKS:
        return GoldenCaseResult(case, "", float("inf"), 0.0)
    worst = max(CHECKS[case](folder), key=lambda comparison: comparison.severity)
    return GoldenCaseResult(case, worst.array, worst.error, worst.tolerance)
