"""The reference vectors on the device: in float32, with TF32, and the language model in 16 bits.

exact     every array is within the tolerance of the vectors
others    how far they are: a table from which a precision is chosen
trained   what 16 bits change in the next ids of the small bundle that speaks, and whether that is small
          enough for a default (``shared.runtimes.logit_error``)
"""

from collections.abc import Iterator
from pathlib import Path

import torch
from gpu_check.findings import CheckOptions, Finding
from torch import Tensor

from golden.reference.comparison import Comparison, compare, read_arrays
from golden.reference.flow import FlowInputs, read_flow_inputs
from golden.reference.golden_config import read_network_config, read_rule
from golden.reference.language_model import compare_language_model
from golden.reference.rule_weights import rule_weights
from golden.reference.vocoder import WAVE_TOLERANCE, load_vocoder_v2, load_vocoder_v3
from shared.runtimes.logit_error import (
    MAX_KL,
    MIN_AGREEMENT,
    SESSIONS,
    TEXT_IDS,
    LogitError,
    logit_error,
    sample_sessions,
    teacher_forced_logits,
)
from small_voice.world import PHRASES
from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle
from vivavoce.models.cosyvoice.checkpoint.tensor_shapes import llm_shapes
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.flow.state import FlowChunk
from vivavoce.models.cosyvoice.lm.generation import LmInput
from vivavoce.models.cosyvoice.lm.speech_lm import SpeechLm
from vivavoce.models.cosyvoice.networks import load_lm
from vivavoce.models.cosyvoice.vocoder.layers import Vocoder
from vivavoce.models.decoding.kv_memory import SpeechLmState
from vivavoce.models.devices.execution import Precision
from vivavoce.models.devices.torch_devices import CPU

_TESTS = Path(__file__).parents[2]
VECTORS = _TESTS / "golden" / "data"
_SMALL_VOICE = _TESTS / "data" / "small_voice"
_COMPARED = 125  # ids of each of ``SESSIONS``
_MEL_TOLERANCE = 5e-4
_STEP_EDGES = (25, 50, 100)
_LM_CASES = ((CosyVoiceVersion.V2, "e_llm"), (CosyVoiceVersion.V3, "e_llm3"))


class DeviceLm:
    """A language model on a device, whose inputs and outputs are on the host. An ``LmNetwork``."""

    device = CPU

    def __init__(self, lm: SpeechLm) -> None:
        self._lm, self.config = lm, lm.config

    def init_state(self, rows: int, capacity: int) -> SpeechLmState:
        """As ``SpeechLm``, like all that follows."""
        return self._lm.init_state(rows, capacity)

    def input_index(self, lm_input: LmInput) -> int:
        """Index of an input."""
        return self._lm.input_index(lm_input)

    def embed(self, indices: Tensor) -> Tensor:
        """Embed indices."""
        return self._lm.embed(indices.to(self._lm.device)).cpu()

    def embed_speech(self, speech_ids: Tensor) -> Tensor:
        """Embed speech ids."""
        return self._lm.embed_speech(speech_ids.to(self._lm.device)).cpu()

    def step(
        self, x: Tensor, state: SpeechLmState, valid: Tensor | None = None
    ) -> tuple[Tensor, SpeechLmState]:
        """Feed embedded inputs."""
        hidden, state = self._lm.step(x.to(self._lm.device), state, valid)
        return hidden.cpu(), state

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores."""
        return self._lm.logits(hidden.to(self._lm.device)).float().cpu()


@torch.inference_mode()
def measure(options: CheckOptions) -> Iterator[Finding]:
    """Yield the largest error of each network and setting, as a share of its tolerance."""
    device = options.torch_device
    for has_tf32 in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = has_tf32
        setting = "TF32" if has_tf32 else "float32"
        yield from _summaries(setting, [*_flow(device), *_vocoders(device)])
        yield from _summaries(setting, _language_models(device, Precision.FP32))
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for precision in (Precision.BF16, Precision.FP16):
        yield from _summaries(precision.value, _language_models(device, precision))
        error = trained_error(device, precision, 4 if options.is_quick else _COMPARED)
        name = f"{precision}, small voice"
        yield Finding(f"{name}, mean KL to fp32 (at most {MAX_KL:g})", error.kl, "nats")
        agreement = f"likeliest id as fp32's where it leads by 0.1 (at least {MIN_AGREEMENT:.0%})"
        yield Finding(f"{name}, {agreement}", 100 * error.agreement, "%")
        yield Finding(f"{name}, positions where it leads", error.certain)
        yield Finding(f"{name}, may be a default", "yes" if error.is_small else "no")


@torch.inference_mode()
def trained_error(device: torch.device, precision: Precision, ids: int = _COMPARED) -> LogitError:
    """Error of the small bundle's next ids after phrases that it has learnt. ids: of each session."""
    bundle = open_bundle(_SMALL_VOICE)
    exact, other = (DeviceLm(load_lm(bundle, each, device)) for each in (Precision.FP32, precision))
    encode = bundle.text_tokenizer().encode_plain
    turned = (PHRASES[row:] + PHRASES[:row] for row in range(SESSIONS))
    text_ids = torch.tensor([encode(" ".join(phrases))[:TEXT_IDS] for phrases in turned])
    inputs, logits = sample_sessions(exact, ids, text_ids)
    return logit_error(teacher_forced_logits(other, inputs), logits)


def _summaries(setting: str, comparisons: list[Comparison]) -> Iterator[Finding]:
    worst: dict[str, Comparison] = {}
    for found in comparisons:
        if found.severity >= worst.get(found.case, found).severity:
            worst[found.case] = found
    for case, found in worst.items():
        verdict = "within" if found.passed else "beyond"
        name = f"{setting}, {case}, {found.array}, error ({verdict} {found.tolerance:g})"
        yield Finding(name, found.error)


def _language_models(device: torch.device, precision: Precision) -> list[Comparison]:
    comparisons: list[Comparison] = []
    for version, case in _LM_CASES:
        config = read_network_config(VECTORS, version).lm
        drawn = rule_weights(llm_shapes(config), read_rule(VECTORS))
        weights = {key: torch.from_numpy(array).to(device) for key, array in drawn.items()}
        lm = DeviceLm(SpeechLm.load(config, weights, precision))
        comparisons += compare_language_model(VECTORS, case, lm)
    return comparisons


def _flow(device: torch.device) -> Iterator[Comparison]:
    for version, case in ((CosyVoiceVersion.V2, "c_flow"), (CosyVoiceVersion.V3, "v3_flow")):
        inputs, arrays = read_flow_inputs(VECTORS, version, device)
        mel = torch.cat(list(_stepped_mel(inputs, device)), 2)[..., 2 * inputs.prompt_ids :]
        yield compare(case, "stream_final, in steps", mel, arrays["stream_final"], _MEL_TOLERANCE)


def _stepped_mel(inputs: FlowInputs, device: torch.device) -> Iterator[Tensor]:
    flow, begin, total = inputs.flow, 0, inputs.ids.shape[1]
    state = flow.init_state(inputs.speaker.to(device))
    for end in (*_STEP_EDGES, total):
        chunk = inputs.chunk(begin, end, last=end == total)
        ids, future, mel = (part.to(device) for part in (chunk.ids, chunk.future, chunk.prompt_mel))
        mel, state = flow.step(FlowChunk(ids, future, mel), state)
        yield mel.cpu()
        begin = end


def _vocoders(device: torch.device) -> Iterator[Comparison]:
    noise = read_arrays(VECTORS, "d_hift")["noise"]
    v2, v3 = load_vocoder_v2(VECTORS).to(device), load_vocoder_v3(VECTORS).to(device)
    runs: tuple[tuple[str, str, Vocoder, Tensor], ...] = (
        ("d_hift", "wav_zero", v2, torch.zeros_like(noise)),
        ("v3_hift", "wav_noise", v3, noise.abs()),
    )
    for case, array, vocoder, drawn in runs:
        arrays = read_arrays(VECTORS, case)
        samples = vocoder.finish(arrays["mel"].to(device), drawn.to(device), vocoder.init_state(1))
        yield compare(case, array, samples.cpu(), arrays[array], WAVE_TOLERANCE)
