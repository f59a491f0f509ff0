"""Runs the check of every case in a folder of vectors.

A case is a .npz or .json file of the folder; sizes, salt and multipliers come from the folder's config.json,
so any folder in the layout of tests/golden/data, or of tests/golden/xtts_data, can be checked.
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
from golden.reference.xtts import (
    checkpoint as xtts_checkpoint,
)
from golden.reference.xtts import (
    conditioning as xtts_conditioning,
)
from golden.reference.xtts import (
    language_model as xtts_language_model,
)
from golden.reference.xtts import (
    speech as xtts_speech,
)
from golden.reference.xtts import (
    text as xtts_text,
)
from golden.reference.xtts import (
    vocoder as xtts_vocoder,
)
from golden.reference.xtts.networks import is_xtts_folder

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

XTTS_CHECKS: Mapping[str, Check] = {
    "a_cond": xtts_conditioning.check_conditioning,
    "b_speaker": xtts_conditioning.check_speaker,
    "c_features": xtts_conditioning.check_features,
    "d_gpt": xtts_language_model.check_gpt,
    "e_sampling": xtts_language_model.check_sampling,
    "f_latents": xtts_language_model.check_latents,
    "g_hifigan": xtts_vocoder.check_vocoder,
    "h_stream": xtts_vocoder.check_stream,
    "i_tokenizer": xtts_text.check_text,
    "j_tts": xtts_speech.check_speech,
    "manifest_xtts_v2": xtts_checkpoint.check_manifest,
    "n_checkpoint": xtts_checkpoint.check_checkpoint,
}

_NON_CASE_PREFIXES = ("config", "manifest_")  # sizes of the reduced and of the released networks
_XTTS_NON_CASES = ("config", "vocab")


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
    if is_xtts_folder(folder):
        yield from _check_cases(folder, _xtts_cases(folder), XTTS_CHECKS)
        return
    require_supported(folder)
    yield from _check_cases(folder, _cases(folder), CHECKS)


def _cases(folder: Path) -> set[str]:
    found = {file.stem for file in folder.iterdir() if file.suffix in (".npz", ".json")}
    return {case for case in found if not case.startswith(_NON_CASE_PREFIXES)}


def _xtts_cases(folder: Path) -> set[str]:
    """Files of arrays or rows, and folders; the list of the release is a case here too."""
    found = {path.stem for path in folder.iterdir() if path.is_dir() or path.suffix in (".npz", ".json")}
    return found.difference(_XTTS_NON_CASES)


def _check_cases(folder: Path, cases: set[str], checks: Mapping[str, Check]) -> Iterator[GoldenCaseResult]:
    for case in sorted(cases):
        yield _check_case(folder, case, checks)


def _check_case(folder: Path, case: str, checks: Mapping[str, Check]) -> GoldenCaseResult:
    if case not in checks:
        return GoldenCaseResult(case, "", float("inf"), 0.0)
    worst = max(checks[case](folder), key=lambda comparison: comparison.severity)
    return GoldenCaseResult(case, worst.array, worst.error, worst.tolerance)
