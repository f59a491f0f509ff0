"""The limiter changes large samples only."""

import numpy as np

from vivavoce.models.signal.level import limit


def test_the_limiter_does_not_change_samples_below_its_knee() -> None:
    samples = np.linspace(-0.85, 0.85, 1001).astype(np.float32)
    assert np.array_equal(limit(samples), samples)


def test_the_limiter_never_reaches_full_scale_and_keeps_order_and_sign() -> None:
    ramp = np.linspace(-1.5, 1.5, 1001).astype(np.float32)
    limited = limit(ramp)
    assert np.abs(limited).max() < 1.0
    assert (np.diff(limited) > 0).all()
    assert np.array_equal(np.sign(limited), np.sign(ramp))


def test_the_limiter_accepts_no_samples() -> None:
    assert len(limit(np.zeros(0, np.float32))) == 0
