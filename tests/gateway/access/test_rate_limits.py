"""The limits of a key, with a clock that the test sets."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivavoce.gateway.access.errors import RateLimited, RequestTooLarge
from vivavoce.gateway.access.keys import KeyLimits
from vivavoce.gateway.access.rate_limits import KeyRateLimiter


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_amount_of_a_minute_may_be_used_at_once_and_refills_evenly() -> None:
    clock = Clock()
    limiter = KeyRateLimiter(KeyLimits(requests_per_minute=60), clock)
    for _ in range(60):
        limiter.charge_request()
    with pytest.raises(RateLimited) as refusal:
        limiter.charge_request()
    assert refusal.value.retry_after_s == pytest.approx(1.0)
    clock.now += 1.0
    limiter.charge_request()
    with pytest.raises(RateLimited):
        limiter.charge_request()


def test_a_retry_after_the_given_time_succeeds() -> None:
    clock = Clock()
    limiter = KeyRateLimiter(KeyLimits(characters_per_minute=600), clock)
    limiter.charge_characters(600)
    with pytest.raises(RateLimited) as refusal:
        limiter.charge_characters(300)
    clock.now += refusal.value.retry_after_s
    limiter.charge_characters(300)


def test_a_refused_charge_takes_nothing() -> None:
    clock = Clock()
    limiter = KeyRateLimiter(KeyLimits(characters_per_minute=10), clock)
    limiter.charge_characters(1)
    with pytest.raises(RateLimited):
        limiter.charge_characters(10)
    with pytest.raises(RequestTooLarge):
        limiter.charge_characters(11)
    limiter.charge_characters(9)


def test_an_amount_that_never_fits_is_no_matter_of_time() -> None:
    with pytest.raises(
        RequestTooLarge, match=r"got 1000 characters at once; .* allowed 10 characters a minute"
    ):
        KeyRateLimiter(KeyLimits(characters_per_minute=10), Clock()).charge_characters(1000)


@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.floats(0, 30), st.integers(1, 300)), max_size=60),
)
def test_no_pattern_of_requests_exceeds_the_rate_plus_the_amount_of_a_minute(
    per_minute: int, uses: list[tuple[float, int]]
) -> None:
    clock = Clock()
    limiter = KeyRateLimiter(KeyLimits(characters_per_minute=per_minute), clock)
    began, used = clock.now, 0
    for pause_s, characters in uses:
        clock.now += pause_s
        try:
            limiter.charge_characters(characters)
        except (RateLimited, RequestTooLarge):
            continue
        used += characters
    assert used <= per_minute + (clock.now - began) * per_minute / 60 + 1e-6


def test_streams_are_counted_while_they_are_open() -> None:
    limiter = KeyRateLimiter(KeyLimits(streams=2))
    with limiter.stream(), limiter.stream():  # noqa: SIM117
        with pytest.raises(RateLimited, match="2 are allowed"), limiter.stream():
            pass
    with pytest.raises(KeyError), limiter.stream():
        raise KeyError
    assert limiter.streams.here == 0


def test_without_limits_nothing_is_refused() -> None:
    limiter = KeyRateLimiter(KeyLimits())
    for _ in range(1000):
        limiter.charge_request()
        limiter.charge_characters(10**9)
