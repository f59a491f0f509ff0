"""How the CosyVoice backend behaves: numbers only, each with its unit and reason."""

from dataclasses import dataclass, field
from enum import Enum

from ...models.cosyvoice.bistream import LengthRule
from ...models.cosyvoice.flow import FlowPolicy
from ...models.cosyvoice.precision import Precision
from ..errors import BadRequest


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
    costs nothing until it is used. most_text_ids: of one sentence, longer ones are spoken in parts (upstream
    cuts at 80). decode_ids: speech ids a step, few, so that cancelling is quick. most_decode_rows: sessions
    that share such a step. most_render_rows: that share the rendering of a chunk. prefill_chunk: ids of a
    long prompt that the model is fed at once, between the ids of others who wait that long. first_hop,
    longest_hop: speech ids of a chunk of audio, 40 ms each. prompt_ids: of a voice's recording, the last
    ones, that the flow hears; they cost memory in every session as speech does. prepared_voices: whose
    prompts are kept computed. pause_share: of the pause that a text asks for after a sentence; the model
    makes its own. precision: of the language model's matrices. device: that the networks compute on: "auto",
    the first graphics card where there is one, "cpu", "cuda" or "cuda:N".
    """

    interleave: Interleave = Interleave.BISTREAM
    flow: FlowPolicy = field(default_factory=FlowPolicy)
    length: LengthRule = field(default_factory=LengthRule)
    slots: int = 8
    memory_ids: int = 6144
    most_text_ids: int = 100
    decode_ids: int = 4
    most_decode_rows: int = 32
    # On two cores 4 chunks of 1 s together take 0.7 to 1.0 of the time apart, and the first is heard last.
    most_render_rows: int = 2
    prefill_chunk: int = 128
    first_hop: int = 25
    longest_hop: int = 50
    prompt_ids: int = 10 * 25
    prepared_voices: int = 4
    pause_share: float = 0.3
    precision: Precision = Precision.FP32
    device: str = "auto"


def precision_of(name: str) -> Precision:
    """A precision by its name; raises BadRequest."""
    if name not in list(Precision):
        raise BadRequest(f"precision is {name!r}; it must be {', '.join(Precision)}")
    return Precision(name)
