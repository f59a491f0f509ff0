"""The weight rule: a key determines the numbers of its tensor, and their scale."""

import numpy as np
import pytest

from golden.reference.rule_weights import WeightRule, rule_weight, rule_weights
from vivavoce.models.cosyvoice.config import TEXT_EMBEDDING_KEY, TIED_HEAD_KEY

PLAIN = WeightRule()


def test_a_tensor_depends_on_its_key_and_on_the_salt() -> None:
    first = rule_weight("a.bias", (4,), PLAIN)
    assert np.array_equal(first, rule_weight("a.bias", (4,), PLAIN))
    assert not np.array_equal(first, rule_weight("b.bias", (4,), PLAIN))
    assert not np.array_equal(first, rule_weight("a.bias", (4,), WeightRule("other")))


def test_known_values_stay_as_they_are() -> None:
    drawn = rule_weight("llm_decoder.bias", (3,), PLAIN)
    generator = np.random.Generator(np.random.PCG64(0x05E43DCB))
    assert drawn.dtype == np.float32
    # 0x05E43DCB is the CRC-32 of the key; a bias is scaled by 0.02.
    assert drawn == pytest.approx(0.02 * generator.standard_normal(3), rel=1e-6)


@pytest.mark.parametrize("key", ["x.original0", "x.alpha", "norm.weight"])
def test_gains_and_norm_scales_stay_around_one(key: str) -> None:
    drawn = rule_weight(key, (4000,), PLAIN)
    assert drawn.mean() == pytest.approx(1, abs=0.01)
    assert drawn.std() == pytest.approx(0.1, abs=0.01)


def test_a_gain_with_three_dimensions_stays_around_one() -> None:
    assert rule_weight("x.original0", (4000, 1, 1), PLAIN).mean() == pytest.approx(1, abs=0.01)


def test_matrices_are_scaled_by_their_fan_in() -> None:
    assert rule_weight("linear.weight", (50, 20, 5), PLAIN).std() == pytest.approx(0.1, abs=0.005)


def test_biases_are_small() -> None:
    assert rule_weight("linear.bias", (4000,), PLAIN).std() == pytest.approx(0.02, abs=0.002)


def test_a_multiplier_applies_to_every_key_that_ends_with_it() -> None:
    rule = WeightRule("", (("decoder.weight", 6.0),))
    plain = rule_weights({"llm_decoder.weight": (2, 2), "decoder.weight.x": (2, 2)}, PLAIN)
    scaled = rule_weights({"llm_decoder.weight": (2, 2), "decoder.weight.x": (2, 2)}, rule)
    assert np.array_equal(scaled["llm_decoder.weight"], plain["llm_decoder.weight"] * np.float32(6))
    assert np.array_equal(scaled["decoder.weight.x"], plain["decoder.weight.x"])


def test_the_tied_head_is_the_embedding() -> None:
    assert np.array_equal(
        rule_weight(TIED_HEAD_KEY, (3, 2), PLAIN), rule_weight(TEXT_EMBEDDING_KEY, (3, 2), PLAIN)
    )


def test_rotary_frequencies_keep_their_formula() -> None:
    drawn = rule_weight("decoder.estimator.rotary_embed.inv_freq", (8,), WeightRule("any"))
    assert drawn == pytest.approx(10000.0 ** (-np.arange(0, 16, 2) / 16), rel=1e-6)
