"""Opens the exported graphs of the three networks on a device of ONNX Runtime, without torch."""

from collections.abc import Callable
from dataclasses import dataclass

from ...devices.execution import DeviceError, Precision
from ...devices.host_memory import release_free_heap
from ...devices.onnx_sessions import CPU_SESSIONS, OnnxSessions
from ..checkpoint.bundle import CosyVoiceBundle
from ..config import BLOCK_FRAMES
from ..flow.policy import CacheForm, FlowPolicy
from .flow import ArrayFlow
from .language_model import ArraySpeechLm
from .shared_voice_flow import SharedVoiceFlow
from .vocoder import ArrayVocoder

EXPORTED_PRECISIONS = (Precision.FP32, Precision.INT8, Precision.INT4, Precision.INT4_INT8)


@dataclass(frozen=True, slots=True)
class ArrayRenderNetworks:
    """Speech ids to mel, mel to samples, with numpy arrays in and out."""

    flow: ArrayFlow
    vocoder: ArrayVocoder
    free_card_bytes: Callable[[], int] | None = None  # of the card that has the states; None: the host has


def load_array_lm(
    bundle: CosyVoiceBundle, precision: Precision, sessions: OnnxSessions = CPU_SESSIONS
) -> ArraySpeechLm:
    """Open the language model's graphs. Raises InvalidBundleError, and DeviceError for another precision."""
    if precision not in EXPORTED_PRECISIONS:
        raise DeviceError(
            f"the executor onnxruntime has {', '.join(EXPORTED_PRECISIONS)}, and the precision is {precision}"
        )
    lm = ArraySpeechLm.load(bundle, precision.of_lm, sessions=sessions)
    release_free_heap()  # packing matrices leaves it in pieces
    return lm


def load_array_render_networks(
    bundle: CosyVoiceBundle, policy: FlowPolicy, precision: Precision, sessions: OnnxSessions = CPU_SESSIONS
) -> ArrayRenderNetworks:
    """Open the graphs of flow and vocoder. Raises as ``load_array_flow``."""
    flow = load_array_flow(bundle, policy, precision, sessions)
    vocoder = ArrayVocoder.load(bundle, sessions=sessions)
    release_free_heap()
    return ArrayRenderNetworks(flow, vocoder)


def load_array_flow(
    bundle: CosyVoiceBundle, policy: FlowPolicy, precision: Precision, sessions: OnnxSessions = CPU_SESSIONS
) -> ArrayFlow:
    """Open the flow's graphs only. Raises InvalidBundleError, and DeviceError for int8 on another device."""
    has_8_bits = precision.of_exported_flow is Precision.INT8
    # Only the CPU's provider has the products, and OpenVINO's (1.24.1) ends the process when it reads them.
    if has_8_bits and not sessions.device.is_cpu:
        raise DeviceError(
            f"{precision} is for the device cpu, and it is {sessions.device}; take int4 or int8"
        )
    flow = SharedVoiceFlow if has_8_bits else ArrayFlow
    return flow.load(bundle, policy, sessions=sessions)


def can_run_policy(policy: FlowPolicy) -> bool:
    """Whether the graphs can keep their memory as the policy says."""
    is_exact = policy.cache_form is CacheForm.KEYS_VALUES and policy.dtype == "float32"
    return is_exact and policy.window_frames is None and policy.block_frames == BLOCK_FRAMES
