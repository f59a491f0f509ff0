"""How far the next ids of a language model in another precision are from those in float32.

Sessions are sampled in float32; the other one is then given the same ids, so that every position is compared
after the same past. Needs torch.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from vivavoce.models.cosyvoice.lm.generation import START_INPUT, TURN_INPUT
from vivavoce.models.cosyvoice.lm.sampling import SamplingContext, sample_ids
from vivavoce.models.cosyvoice.lm.speech_lm import LmNetwork
from vivavoce.models.decoding.uniforms import seeded_uniforms

SESSIONS = 8
TEXT_IDS = 40  # of a session
# What a precision may differ by from float32 to be a default.
MAX_KL = 0.01  # nats, mean over positions
MIN_AGREEMENT = 0.99  # of the likeliest id, where float32's leads by 0.1
_CERTAIN_LEAD = 0.1  # of probability, of the likeliest id over the second
_SEED = 11


@dataclass(frozen=True, slots=True)
class LogitError:
    """Difference of a precision's distributions from those of float32."""

    kl: float  # nats, mean over positions
    agreement: float  # share of equal likeliest ids at certain positions
    certain: int  # positions where float32's likeliest id leads by more than 0.1

    @property
    def is_small(self) -> bool:
        """Whether the precision may be a default for these weights."""
        return self.certain > 0 and self.kl <= MAX_KL and self.agreement >= MIN_AGREEMENT


def logit_error(logits: Tensor, exact: Tensor) -> LogitError:
    """Compare logits (positions, V). Agreement is 1 if no position is certain."""
    exact_log, log = exact.double().log_softmax(-1), logits.double().log_softmax(-1)
    kl = (exact_log.exp() * (exact_log - log)).sum(-1).mean()
    first, second = exact_log.exp().topk(2).values.unbind(-1)
    certain = first - second > _CERTAIN_LEAD
    same = (logits.argmax(-1) == exact.argmax(-1))[certain]
    return LogitError(float(kl), float(same.double().mean()) if len(same) else 1.0, len(same))


def sample_sessions(lm: LmNetwork, steps: int, text_ids: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Sample speech for texts of (SESSIONS, TEXT_IDS) ids; None: random ones.

    Returns all inputs (SESSIONS, T, hidden) and the logits of every sampled id (steps * SESSIONS, V).
    """
    start, turn = (
        lm.embed(torch.full((SESSIONS, 1), lm.input_index(model_input)))
        for model_input in (START_INPUT, TURN_INPUT)
    )
    text = lm.embed(
        random_ids((SESSIONS, TEXT_IDS), lm.config.text_vocab_size) if text_ids is None else text_ids
    )
    fed = [torch.cat((start, text, turn), 1)]
    state = lm.init_state(SESSIONS, fed[0].shape[1] + steps)
    decoded: list[list[int]] = [[] for _ in range(SESSIONS)]
    contexts = [SamplingContext(ids, seeded_uniforms(_SEED + row)) for row, ids in enumerate(decoded)]
    logits = []
    for _ in range(steps):
        hidden, state = lm.step(fed[-1], state)
        logits.append(lm.logits(hidden[:, -1]))
        sampled = sample_ids(logits[-1][:, : lm.config.codebook_size].numpy(), contexts)
        for ids, draw in zip(decoded, sampled, strict=True):
            ids.append(draw.id)
        fed.append(lm.embed_speech(torch.tensor([[ids[-1]] for ids in decoded])))
    return torch.cat(fed[:-1], 1), torch.cat(logits)


def teacher_forced_logits(lm: LmNetwork, inputs: Tensor) -> Tensor:
    """Logits of the ids sampled by ``sample_sessions``, in its order."""
    hidden, _ = lm.step(inputs, lm.init_state(SESSIONS, inputs.shape[1]))
    sampled = hidden[:, TEXT_IDS + 1 :].transpose(0, 1)
    return lm.logits(sampled).flatten(0, 1)


def random_ids(shape: tuple[int, int], below: int) -> Tensor:
    """Ids that are always the same."""
    return torch.randint(below, shape, generator=torch.Generator().manual_seed(_SEED))
