"""What a precision of the language model costs and gains beside float32: time a token, error, memory.

Sessions are spoken by float32 first, ids drawn as a session draws them; both are then given what was spoken,
so that every position is judged on the same past.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vivavoce.models.cosyvoice.checkpoint.bundle import CosyVoiceBundle
from vivavoce.models.cosyvoice.device_benchmark import MeasuredTime, Stopwatch, median_time
from vivavoce.models.cosyvoice.layers import Linear
from vivavoce.models.cosyvoice.lm.generation import START_INPUT, TURN_INPUT
from vivavoce.models.cosyvoice.lm.sampling import SamplingContext, sample_ids, seeded_uniforms
from vivavoce.models.cosyvoice.lm.speech_lm import SpeechLm, SpeechLmState
from vivavoce.models.cosyvoice.networks import load_lm
from vivavoce.models.cosyvoice.precision import Precision

SESSIONS = 8
_TEXT_IDS = 40
_CERTAIN = 0.1
_SEED = 11


@dataclass(frozen=True, slots=True)
class LogitError:
    """Against float32. kl: nats, mean over positions. agreement: share of the same likeliest id where
    float32's is ahead of its second by more than 0.1 of probability. certain: positions where it is.
    """

    kl: float
    agreement: float
    certain: int


@dataclass(frozen=True, slots=True)
class PrecisionComparison:
    """One precision beside float32. token, exact_token: a step of one session, median of alternating ones."""

    token: MeasuredTime
    exact_token: MeasuredTime
    error: LogitError


@dataclass(frozen=True, slots=True)
class BatchingGain:
    """Sessions stepped at once and the same ones one after another: tokens a second, by the clock."""

    batched: float
    sequential: float


def matrix_bytes(lm: SpeechLm) -> int:
    """What the matrices of its layers and its head take."""
    matrices = [linear.matrix for linear in lm.modules() if isinstance(linear, Linear)]
    return sum(matrix.numel() * matrix.element_size() for matrix in matrices if matrix is not None)


@torch.inference_mode()
def compare_with_float32(
    bundle: CosyVoiceBundle, lm: SpeechLm, *, context: int, tokens: int, positions: int
) -> PrecisionComparison:
    """Measure ``lm`` against the bundle's in float32, which is loaded for it.

    context: ids before the tokens that are timed. positions: judged, at least one.
    """
    exact = load_lm(bundle, Precision.FP32)
    token, exact_token = _alternating((lm, exact), context, tokens)
    inputs, wanted = _sampled_speech(exact, -(-positions // SESSIONS))
    wanted, got = wanted[:positions], _logits_on(lm, inputs)[:positions]
    return PrecisionComparison(token, exact_token, logit_error(got, wanted))


def logit_error(logits: Tensor, exact: Tensor) -> LogitError:
    """Both (positions, V). Agreement is 1 where no position is certain."""
    likely, probable = exact.double().log_softmax(-1), logits.double().log_softmax(-1)
    kl = (likely.exp() * (likely - probable)).sum(-1).mean()
    first, second = likely.exp().topk(2).values.unbind(-1)
    certain = first - second > _CERTAIN
    same = (logits.argmax(-1) == exact.argmax(-1))[certain]
    return LogitError(float(kl), float(same.double().mean()) if len(same) else 1.0, len(same))


@torch.inference_mode()
def measure_batching(lm: SpeechLm, *, context: int, tokens: int) -> BatchingGain:
    """Tokens a second of SESSIONS behind ``context`` ids each."""
    states = [_prefilled_state(lm, context, tokens, rows) for rows in (SESSIONS, *(1,) * SESSIONS)]
    costs: list[list[MeasuredTime]] = [[], []]
    for _ in range(tokens):
        with Stopwatch() as at_once:
            states[0] = _step(lm, states[0])
        with Stopwatch() as one_after_another:
            states[1:] = [_step(lm, state) for state in states[1:]]
        costs[0].append(at_once.elapsed)
        costs[1].append(one_after_another.elapsed)
    return BatchingGain(*(SESSIONS / median_time(each).wall_s for each in costs))


def _alternating(lms: Sequence[SpeechLm], context: int, tokens: int) -> list[MeasuredTime]:
    """The median step of each, taken in turns: whatever else the machine does is shared."""
    states = [_prefilled_state(lm, context, tokens, 1) for lm in lms]
    costs: list[list[MeasuredTime]] = [[] for _ in lms]
    for _ in range(tokens):
        for index, lm in enumerate(lms):
            with Stopwatch() as watch:
                states[index] = _step(lm, states[index])
            costs[index].append(watch.elapsed)
    return [median_time(each) for each in costs]


def _prefilled_state(lm: SpeechLm, context: int, tokens: int, rows: int) -> SpeechLmState:
    ids = _random((rows, context), lm.config.codebook_size)
    _, state = lm.step(lm.embed_speech(ids), lm.init_state(rows, context + tokens + 1))
    return _step(lm, state)  # once, for what a process does once


def _step(lm: SpeechLm, state: SpeechLmState) -> SpeechLmState:
    ids = torch.zeros(len(state.lengths), 1, dtype=torch.int64)
    hidden, state = lm.step(lm.embed_speech(ids), state)
    lm.logits(hidden[:, -1])
    return state


def _sampled_speech(lm: SpeechLm, steps: int) -> tuple[Tensor, Tensor]:
    """What SESSIONS random texts are spoken as: inputs (SESSIONS, T, hidden), and logits where an id was
    drawn, (steps * SESSIONS, V).
    """
    start, turn = (
        lm.embed(torch.full((SESSIONS, 1), lm.input_index(unit))) for unit in (START_INPUT, TURN_INPUT)
    )
    text = lm.embed(_random((SESSIONS, _TEXT_IDS), lm.config.text_vocab_size))
    fed = [torch.cat((start, text, turn), 1)]
    state = lm.init_state(SESSIONS, fed[0].shape[1] + steps)
    sources, heard = (
        [seeded_uniforms(_SEED + row) for row in range(SESSIONS)],
        [[0][:0] for _ in range(SESSIONS)],
    )
    logits = []
    for _ in range(steps):
        hidden, state = lm.step(fed[-1], state)
        logits.append(lm.logits(hidden[:, -1]))
        choosers = [SamplingContext(ids, source) for ids, source in zip(heard, sources, strict=True)]
        drawn = sample_ids(logits[-1][:, : lm.config.codebook_size].numpy(), choosers)
        for ids, each in zip(heard, drawn, strict=True):
            ids.append(each.id)
        fed.append(lm.embed_speech(torch.tensor([[ids[-1]] for ids in heard])))
    return torch.cat(fed[:-1], 1), torch.cat(logits)


def _logits_on(lm: SpeechLm, inputs: Tensor) -> Tensor:
    hidden, _ = lm.step(inputs, lm.init_state(SESSIONS, inputs.shape[1]))
    spoken = hidden[:, _TEXT_IDS + 1 :].transpose(0, 1)
    return lm.logits(spoken).flatten(0, 1)


def _random(shape: tuple[int, int], below: int) -> Tensor:
    return torch.randint(below, shape, generator=torch.Generator().manual_seed(_SEED))
