"""What a precision of the language model costs and gains beside float32: time a token, error, memory.

Sessions are spoken by float32 first, ids drawn as a session draws them; both are then given what was spoken,
so that every position is judged on the same past. Random weights make flat distributions, on which little
can go wrong: the error is told again with all logits multiplied, which is a head of larger weights, so that
the likeliest id has half of the probability at the median position, as trained ones are nearer to.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from .bistream import START, TURN
from .networks import load_lm
from .precision import Precision
from .release.bundle import Bundle
from .sampling import Chooser, draw, seeded
from .speech_lm import SpeechLm, SpeechLmState
from .timings import Cost, Watch

SESSIONS = 8
_TEXT_IDS = 40
_CERTAIN = 0.1
_SHARP = 0.5
_SEED = 11


@dataclass(frozen=True, slots=True)
class Error:
    """Against float32. kl: nats, mean over positions. agreement: share of the same likeliest id where
    float32's is ahead of its second by more than 0.1 of probability. certain: positions where it is.
    """

    kl: float
    agreement: float
    certain: int


@dataclass(frozen=True, slots=True)
class Trial:
    """One precision beside float32. token, exact_token: a step of one session, medians of alternating steps.
    plain: with the weights as they are. sharp: with a larger head.
    """

    token: Cost
    exact_token: Cost
    plain: Error
    sharp: Error


@dataclass(frozen=True, slots=True)
class Together:
    """Sessions stepped at once and the same ones one after another: tokens a second, by the clock."""

    together: float
    alone: float


def resident_bytes() -> int | None:
    """What of the process is in memory; None where the system does not say."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    lines = dict(line.split(":", 1) for line in status.read_text("ascii").splitlines())
    return 1024 * int(lines["VmRSS"].split()[0])


@torch.inference_mode()
def beside_exact(
    bundle: Bundle, lm: SpeechLm, *, context: int, tokens: int, positions: int, codes: int
) -> Trial:
    """Measure ``lm`` against the bundle's in float32, which is loaded for it.

    codes: speech ids drawn from. positions: judged, at least SESSIONS.
    """
    exact = load_lm(bundle, Precision.FP32)
    token, exact_token = _alternating((lm, exact), context, tokens)
    inputs, wanted = _spoken(exact, -(-positions // SESSIONS), codes)
    wanted, got = wanted[:positions], _judged(lm, inputs)[:positions]
    factor = _sharpening(wanted)
    return Trial(token, exact_token, error_of(got, wanted), error_of(got * factor, wanted * factor))


def error_of(logits: Tensor, exact: Tensor) -> Error:
    """Both (positions, V). Agreement is 1 where no position is certain."""
    likely, probable = exact.double().log_softmax(-1), logits.double().log_softmax(-1)
    kl = (likely.exp() * (likely - probable)).sum(-1).mean()
    first, second = likely.exp().topk(2).values.unbind(-1)
    certain = first - second > _CERTAIN
    same = (logits.argmax(-1) == exact.argmax(-1))[certain]
    return Error(float(kl), float(same.double().mean()) if len(same) else 1.0, len(same))


@torch.inference_mode()
def together(lm: SpeechLm, *, context: int, tokens: int) -> Together:
    """Tokens a second of SESSIONS behind ``context`` ids each."""
    states = [_begun(lm, context, tokens, rows) for rows in (SESSIONS, *(1,) * SESSIONS)]
    walls: list[list[float]] = [[], []]
    for _ in range(tokens):
        with Watch() as at_once:
            states[0] = _step(lm, states[0])
        with Watch() as one_after_another:
            states[1:] = [_step(lm, state) for state in states[1:]]
        walls[0].append(at_once.cost.wall_s)
        walls[1].append(one_after_another.cost.wall_s)
    return Together(*(SESSIONS / statistics.median(wall) for wall in walls))


def _alternating(lms: Sequence[SpeechLm], context: int, tokens: int) -> list[Cost]:
    """The median step of each, taken in turns: whatever else the machine does is shared."""
    states = [_begun(lm, context, tokens, 1) for lm in lms]
    costs: list[list[Cost]] = [[] for _ in lms]
    for _ in range(tokens):
        for index, lm in enumerate(lms):
            with Watch() as watch:
                states[index] = _step(lm, states[index])
            costs[index].append(watch.cost)
    return [
        Cost(statistics.median(one.cpu_s for one in each), statistics.median(one.wall_s for one in each))
        for each in costs
    ]


def _begun(lm: SpeechLm, context: int, tokens: int, rows: int) -> SpeechLmState:
    ids = _random((rows, context), lm.config.speech_codes)
    _, state = lm.step(lm.embed_speech(ids), lm.init_state(rows, context + tokens + 1))
    return _step(lm, state)  # once, for what a process does once


def _step(lm: SpeechLm, state: SpeechLmState) -> SpeechLmState:
    ids = torch.zeros(len(state.lengths), 1, dtype=torch.int64)
    hidden, state = lm.step(lm.embed_speech(ids), state)
    lm.logits(hidden[:, -1])
    return state


def _spoken(lm: SpeechLm, steps: int, codes: int) -> tuple[Tensor, Tensor]:
    """What SESSIONS random texts are spoken as: inputs (SESSIONS, T, hidden), and logits where an id was
    drawn, (steps * SESSIONS, V).
    """
    start, turn = (lm.embed(torch.full((SESSIONS, 1), lm.code(unit))) for unit in (START, TURN))
    text = lm.embed(_random((SESSIONS, _TEXT_IDS), lm.config.text_rows))
    fed = [torch.cat((start, text, turn), 1)]
    state = lm.init_state(SESSIONS, fed[0].shape[1] + steps)
    sources, heard = [seeded(_SEED + row) for row in range(SESSIONS)], [[0][:0] for _ in range(SESSIONS)]
    logits = []
    for _ in range(steps):
        hidden, state = lm.step(fed[-1], state)
        logits.append(lm.logits(hidden[:, -1]))
        choosers = [Chooser(ids, source) for ids, source in zip(heard, sources, strict=True)]
        drawn = draw(logits[-1][:, :codes].numpy(), choosers)
        for ids, each in zip(heard, drawn, strict=True):
            ids.append(each.id)
        fed.append(lm.embed_speech(torch.tensor([[ids[-1]] for ids in heard])))
    return torch.cat(fed[:-1], 1), torch.cat(logits)


def _judged(lm: SpeechLm, inputs: Tensor) -> Tensor:
    hidden, _ = lm.step(inputs, lm.init_state(SESSIONS, inputs.shape[1]))
    spoken = hidden[:, _TEXT_IDS + 1 :].transpose(0, 1)
    return lm.logits(spoken).flatten(0, 1)


def _sharpening(logits: Tensor) -> float:
    """By how much to multiply, so that the likeliest id's median probability is a half."""
    low, high = 0.0, 1e4
    for _ in range(50):
        middle = (low + high) / 2
        likeliest = (logits * middle).softmax(-1).amax(-1).median()
        low, high = (low, middle) if likeliest > _SHARP else (middle, high)
    return high


def _random(shape: tuple[int, int], below: int) -> Tensor:
    return torch.randint(below, shape, generator=torch.Generator().manual_seed(_SEED))
