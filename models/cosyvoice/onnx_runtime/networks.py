"""Opens the exported graphs of all three networks, without torch."""

from dataclasses import dataclass

from ..checkpoint.bundle import CosyVoiceBundle
from ..execution import DeviceError, Precision
from ..flow.policy import CacheForm, FlowPolicy
from .flow import ArrayFlow
from .language_model import ArraySpeechLm
from .vocoder import ArrayVocoder

EXPORTED_PRECISIONS = (Precision.FP32, Precision.INT8, Precision.INT4)


@dataclass(frozen=True, slots=True)
class ArrayNetworks:
    """Text ids to speech ids, speech ids to mel, mel to samples, on numpy arrays."""

    lm: ArraySpeechLm
    flow: ArrayFlow
    vocoder: ArrayVocoder


def load_array_networks(bundle: CosyVoiceBundle, policy: FlowPolicy, precision: Precision) -> ArrayNetworks:
    """Open the graphs of a bundle. Raises InvalidBundleError, and DeviceError for another precision."""
    if precision not in EXPORTED_PRECISIONS:
        raise DeviceError(
            f"the executor onnxruntime has {', '.join(EXPORTED_PRECISIONS)}, and the precision is {precision}"
        )
    return ArrayNetworks(
        ArraySpeechLm.load(bundle, precision), ArrayFlow.load(bundle, policy), ArrayVocoder.load(bundle)
    )


def can_run_policy(policy: FlowPolicy) -> bool:
    """Whether the graphs can keep their memory as the policy says."""
    is_exact = policy.cache_form is CacheForm.KEYS_VALUES and policy.dtype == "float32"
    return is_exact and policy.window_frames is None
