"""Weights made from their own names, so that networks can be checked without a checkpoint.

The rule behind the golden vectors: a tensor is drawn from a generator seeded by the CRC-32 of its key, scaled
so that activations stay of order one, and a few named tensors are multiplied afterwards. Nothing here knows a
network: keys and shapes come from the caller, keys as they stand in llm.pt, flow.pt and hift.pt.

Source: the weight rule of the golden set (its README and config.json); upstream's keys are
FunAudioLLM/CosyVoice@ace7c47.
"""

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float32]

EMBEDDING_KEY = "llm.model.model.embed_tokens.weight"
TIED_HEAD_KEY = "llm.model.lm_head.weight"
ROTARY_KEY_END = "rotary_embed.inv_freq"
_ROTARY_BASE = 10000.0


@dataclass(frozen=True, slots=True)
class WeightRule:
    """How a golden set makes its weights. multipliers: (end of a key, factor)."""

    salt: str = ""
    multipliers: tuple[tuple[str, float], ...] = ()


def read_rule(folder: Path) -> WeightRule:
    """The rule that a golden folder's config.json states."""
    stated = json.loads((folder / "config.json").read_text("utf-8"))
    return WeightRule(stated["salt"], tuple(stated["multipliers"].items()))


def weight(key: str, shape: Sequence[int], rule: WeightRule) -> Float:
    """One tensor; float32 of the shape given."""
    if key.endswith(ROTARY_KEY_END):
        return _rotary_frequencies(shape)
    source = EMBEDDING_KEY if key == TIED_HEAD_KEY else key
    generator = np.random.Generator(np.random.PCG64(zlib.crc32((rule.salt + source).encode())))
    drawn = _scaled(source, generator.standard_normal(tuple(shape)).astype(np.float32))
    for end, factor in rule.multipliers:
        if source.endswith(end):
            drawn *= np.float32(factor)
    return drawn


def weights(shapes: Mapping[str, Sequence[int]], rule: WeightRule) -> dict[str, Float]:
    """A tensor for every key, e.g. for ``load_state_dict`` by way of ``torch.from_numpy``."""
    return {key: weight(key, shape, rule) for key, shape in shapes.items()}


def _scaled(key: str, drawn: Float) -> Float:
    if key.endswith((".original0", ".alpha")) or (drawn.ndim == 1 and key.endswith("weight")):
        return np.float32(1) + np.float32(0.1) * drawn
    if drawn.ndim >= 2:
        return drawn / np.float32(math.sqrt(math.prod(drawn.shape[1:])))
    return np.float32(0.02) * drawn


def _rotary_frequencies(shape: Sequence[int]) -> Float:
    """The formula value 1 / 10000 ** (2 i / head width), which upstream keeps as a buffer."""
    (count,) = shape
    exponents = np.arange(0, 2 * count, 2, dtype=np.float32) / np.float32(2 * count)
    return (np.float32(1) / np.float32(_ROTARY_BASE) ** exponents).astype(np.float32)
