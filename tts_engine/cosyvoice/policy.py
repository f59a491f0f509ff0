"""Settings of the CosyVoice backend, each with its unit and reason."""

from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from ...models.cosyvoice.flow.policy import EXACT_POLICY, HALF_PRECISION_POLICY, FlowPolicy
from ...models.cosyvoice.lm.generation import SpeechLengthRule
from ...models.devices.execution import Executor, Precision, is_torch_installed
from ...models.devices.onnx_providers import is_for_onnxruntime_only
from ..backends.voice_kind import AUTO_PRECISION
from ..errors import BadRequest, MissingExtra
from ..voice_kit.loading import require_onnx_device
from ..voice_kit.policy import DecodingPolicy, require_device

# Of policies that state no other. A bench of random weights sets a lower bound in its server's process.
SPEECH_LENGTH = SpeechLengthRule()


class Interleave(Enum):
    """Order of text and speech in the language model."""

    BISTREAM = "bistream"
    ONE_SHOT = "one-shot"


@dataclass(frozen=True, slots=True)
class CosyVoicePolicy(DecodingPolicy):
    """Settings of one CosyVoice backend. ``Delivery`` holds what a session chooses.

    A speech id is 40 ms of speech.
    """

    # How text is fed to the language model.
    interleave: Interleave = Interleave.BISTREAM
    flow: FlowPolicy = field(default_factory=FlowPolicy)
    # Bounds of speech ids for each text id of a sentence.
    length: SpeechLengthRule = field(default_factory=lambda: SPEECH_LENGTH)
    # Ids in the language model's memory of a session; a page costs nothing until it is written.
    lm_context_ids: int = 6144
    # Text ids of one sentence; a longer one is spoken as several. Upstream splits at 80.
    max_text_ids: int = 100
    # Speech ids of the first chunk of audio, and of the longest chunk.
    first_hop: int = 25
    max_hop: int = 50
    # Speech ids at the end of a voice's recording that the flow is conditioned on; they cost each session as
    # much memory as speech does.
    max_prompt_ids: int = 10 * 25
    # Voices whose prompts are kept computed.
    max_prepared_voices: int = 4
    # Share of the pause that the text asks for after a sentence; the model adds a pause of its own.
    pause_share: float = 0.3
    # Share of the memory free after loading that sessions may fill.
    memory_share: float = 0.8
    # Speech ids reserved for each session at admission, 10 s. A longer sentence takes what it needs, and
    # fewer sessions are admitted meanwhile.
    expected_ids: int = 10 * 25
    # Library that computes the networks.
    executor: Executor = Executor.AUTO
    # Folder of the voice store, in which prepared voices are kept; None keeps none.
    voice_store: Path | None = None
    # Of prepared voices on file; version 2 takes 116 MB for each second of a recording, version 3 90 MB.
    max_prepared_bytes: int = 8 * 2**30


def policy_for(precision: str, device: str, executor: str = "auto") -> CosyVoicePolicy:
    """The default policy for a device. Raises BadRequest for an unknown name, BundleError without the device.

    ONNX Runtime computes on devices that torch does not have; elsewhere the executor says what does.

    A GPU has room for many sessions: the flow's state is float16 there, which changes a mel by 4e-5, and
    stages overlap, because a DECODE step hardly uses a GPU and should not wait for a RENDER step. Unless a
    precision is named, products of the flow take float16 factors there.
    """
    if executor not in list(Executor):
        raise BadRequest(f"executor is {executor!r}; it must be {', '.join(Executor)}")
    chosen = _choose_executor(Executor(executor), device)
    is_auto = precision == AUTO_PRECISION
    named = Precision.FP32 if is_auto else parse_precision(precision)
    policy = CosyVoicePolicy(precision=named, executor=chosen, device=device)
    if chosen is Executor.ONNXRUNTIME:
        require_onnx_device(device)
        return policy
    if require_device(device) == "cpu":
        return policy
    policy = replace(policy, slots=32, overlap=True)
    if policy.executor is Executor.TENSORRT:
        return replace(policy, max_render_rows=4, flow=EXACT_POLICY)
    named = Precision.FP32_FP16 if is_auto else named
    flow = replace(HALF_PRECISION_POLICY, products=named.of_card_flow)
    return replace(policy, precision=named, max_render_rows=8, flow=flow)


def _choose_executor(executor: Executor, device: str) -> Executor:
    """ONNX Runtime instead of AUTO where torch is not installed or does not have the device."""
    if executor is Executor.AUTO and (not is_torch_installed() or is_for_onnxruntime_only(device)):
        return Executor.ONNXRUNTIME
    if executor in (Executor.TORCH, Executor.TENSORRT) and not is_torch_installed():
        raise MissingExtra(f"the executor {executor}", "cosyvoice")
    return executor


def parse_precision(name: str) -> Precision:
    """The precision with that name. Raises BadRequest if there is none."""
    if name not in list(Precision):
        raise BadRequest(f"precision is {name!r}; it must be {AUTO_PRECISION}, {', '.join(Precision)}")
    return Precision(name)
