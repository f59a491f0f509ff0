"""How the CosyVoice backend behaves: numbers only, each with its unit and reason."""

from dataclasses import dataclass, field, replace
from enum import Enum

from ...models.cosyvoice.devices import DeviceError, find_device
from ...models.cosyvoice.flow.flow import HALF_PRECISION_POLICY, FlowPolicy
from ...models.cosyvoice.lm.generation import SpeechLengthRule
from ...models.cosyvoice.precision import Precision
from ..errors import BadRequest, BundleError


class Interleave(Enum):
    """How text is fed to the language model. The compat ones repeat upstream id by id, faults included."""

    BISTREAM = "bistream"
    ONE_SHOT = "one-shot"
    COMPAT_BISTREAM = "compat-bistream"
    COMPAT_ONE_SHOT = "compat-one-shot"


@dataclass(frozen=True, slots=True)
class CosyVoicePolicy:
    """What a house chooses once; what a session chooses is in ``Delivery``.

    slots: sessions open at once. memory_ids: ids that the language model remembers of a session, room that
    costs nothing until it is used. max_text_ids: of one sentence, longer ones are spoken in parts (upstream
    cuts at 80). ids_per_decode_step: speech ids a step, few, so that cancelling is quick. max_decode_rows: sessions
    that share such a step. max_render_rows: that share the rendering of a chunk. prefill_chunk: ids of a
    long prompt that the model is fed at once, between the ids of others who wait that long. first_hop,
    max_hop: speech ids of a chunk of audio, 40 ms each. prompt_ids: of a voice's recording, the last
    ones, that the flow hears; they cost memory in every session as speech does. max_prepared_voices: whose
    prompts are kept computed. pause_share: of the pause that a text asks for after a sentence; the model
    makes its own. memory_share: of the memory that is free when the bundle is loaded, for what sessions
    remember; expected_ids: speech ids for which it is held free in each, 10 s; a sentence that becomes longer
    takes what it needs, and fewer newcomers are let in. precision: of the language model's matrices. device:
    that the networks compute on: "auto", the first card that torch can use, else the CPU; "cpu", "cuda" or
    "cuda:N". overlap: whether a step of each stage may run at once, on a thread and a stream of its own.
    """

    interleave: Interleave = Interleave.BISTREAM
    flow: FlowPolicy = field(default_factory=FlowPolicy)
    length: SpeechLengthRule = field(default_factory=SpeechLengthRule)
    slots: int = 8
    lm_context_ids: int = 6144
    max_text_ids: int = 100
    ids_per_decode_step: int = 4
    max_decode_rows: int = 32
    # On two cores, 4 chunks of 1 s in one step take 70 to 100 % of the time that they take in four; and no
    # chunk is heard before all are done, which in four steps the first would be after a quarter of the time.
    max_render_rows: int = 2
    prefill_chunk: int = 128
    first_hop: int = 25
    max_hop: int = 50
    max_prompt_ids: int = 10 * 25
    max_prepared_voices: int = 4
    pause_share: float = 0.3
    memory_share: float = 0.8
    expected_ids: int = 10 * 25
    precision: Precision = Precision.FP32
    device: str = "auto"
    # On two cores three newcomers were first heard after 9.8, 9.8, 12.5 s without it and
    # 8.5, 8.5, 16.1 s with it, and all had spoken at the same time: no stage leaves anything free.
    overlap: bool = False


def policy_for(precision: str, device: str) -> CosyVoicePolicy:
    """The policy of a house that chose these by name; raises BadRequest, and BundleError without the device.

    A card has room for many: what the flow remembers is in halves there, which moves a mel by 4e-5. And the
    next ids, which hardly fill it, are not to wait for the sound of others.
    """
    policy = CosyVoicePolicy(precision=parse_precision(precision), device=device)
    try:
        found = find_device(device)
    except DeviceError as fault:
        raise BundleError(str(fault)) from fault
    if found.type == "cpu":
        return policy
    return replace(policy, slots=32, max_render_rows=4, flow=HALF_PRECISION_POLICY, overlap=True)


def parse_precision(name: str) -> Precision:
    """A precision by its name; raises BadRequest."""
    if name not in list(Precision):
        raise BadRequest(f"precision is {name!r}; it must be {', '.join(Precision)}")
    return Precision(name)
