"""Weights made from their own keys, so that networks can be compared without a checkpoint.

A tensor is drawn from a generator seeded with the CRC-32 of its key and scaled so that activations stay of
order one; a few named tensors are multiplied afterwards. Keys and shapes come from the caller, as they stand
in llm.pt, flow.pt and hift.pt.

Source: the weight rule of the golden vectors (README.md and config.json of tests/golden/data); the keys are
those of FunAudioLLM/CosyVoice@ace7c47.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vivavoce.models.checkpoint.random_weights import (
    ROTARY_KEY_SUFFIX,
    Float,
    rotary_frequencies,
    scale_for_key,
)
from vivavoce.models.cosyvoice.config import TEXT_EMBEDDING_KEY, TIED_HEAD_KEY


@dataclass(frozen=True, slots=True)
class WeightRule:
    """Parameters of the rule."""

    salt: str = ""
    multipliers: tuple[tuple[str, float], ...] = ()  # (end of a key, factor)


def rule_weight(key: str, shape: Sequence[int], rule: WeightRule) -> Float:
    """One tensor: float32 of the given shape."""
    if key.endswith(ROTARY_KEY_SUFFIX):
        return rotary_frequencies(shape)
    source = TEXT_EMBEDDING_KEY if key == TIED_HEAD_KEY else key
    generator = np.random.Generator(np.random.PCG64(zlib.crc32((rule.salt + source).encode())))
    drawn = scale_for_key(source, generator.standard_normal(tuple(shape)).astype(np.float32))
    for suffix, factor in rule.multipliers:
        if source.endswith(suffix):
            drawn *= np.float32(factor)
    return drawn


def rule_weights(shapes: Mapping[str, Sequence[int]], rule: WeightRule) -> dict[str, Float]:
    """A tensor for every key."""
    return {key: rule_weight(key, shape, rule) for key, shape in shapes.items()}
