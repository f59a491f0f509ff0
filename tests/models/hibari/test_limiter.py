"""The limiter: what is bent, and what is not."""

import numpy as np

from vivavoce.models.hibari.limiter import limit


def test_the_limiter_leaves_ordinary_samples_as_they_are() -> None:
    samples = np.linspace(-0.85, 0.85, 1001).astype(np.float32)
    assert np.array_equal(limit(samples), samples)


def test_the_limiter_never_reaches_full_scale_and_keeps_order_and_sign() -> None:
    ramp = np.linspace(-1.5, 1.5, 1001).astype(np.float32)
    bent = limit(ramp)
    assert np.abs(bent).max() < 1.0
    assert (np.diff(bent) > 0).all()
    assert np.array_equal(np.sign(bent), np.sign(ramp))


def test_the_limiter_takes_no_samples() -> None:
    assert len(limit(np.zeros(0, np.float32))) == 0
