"""Limits of a key, on a clock that is turned by hand."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivavoce.gateway.access.errors import RateLimited
from vivavoce.gateway.access.keys import KeyLimits
from vivavoce.gateway.access.rate_limits import KeyRateLimiter


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_minutes_worth_may_be_used_at_once_and_then_it_refills_evenly() -> None:
    clock = Clock()
    allowance = KeyRateLimiter(KeyLimits(requests_per_minute=60), clock)
    for _ in range(60):
        allowance.charge_request()
    with pytest.raises(RateLimited) as refusal:
        allowance.charge_request()
    assert refusal.value.retry_after_s == pytest.approx(1.0)
    clock.now += 1.0
    allowance.charge_request()
    with pytest.raises(RateLimited):
        allowance.charge_request()


def test_trying_again_when_told_to_works() -> None:
    clock = Clock()
    allowance = KeyRateLimiter(KeyLimits(characters_per_minute=600), clock)
    allowance.charge_characters(600)
    with pytest.raises(RateLimited) as refusal:
        allowance.charge_characters(300)
    clock.now += refusal.value.retry_after_s
    allowance.charge_characters(300)


def test_a_refusal_costs_nothing() -> None:
    clock = Clock()
    allowance = KeyRateLimiter(KeyLimits(characters_per_minute=10), clock)
    with pytest.raises(RateLimited):
        allowance.charge_characters(11)
    allowance.charge_characters(10)


def test_what_never_fits_is_told_to_wait_a_minute_and_not_for_ever() -> None:
    with pytest.raises(RateLimited, match="allowed 10 characters") as refusal:
        KeyRateLimiter(KeyLimits(characters_per_minute=10), Clock()).charge_characters(1000)
    assert refusal.value.retry_after_s == 60.0


@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.floats(0, 30), st.integers(1, 300)), max_size=60),
)
def test_no_pattern_of_use_gets_more_than_the_rate_and_one_minutes_worth(
    per_minute: int, uses: list[tuple[float, int]]
) -> None:
    clock = Clock()
    allowance = KeyRateLimiter(KeyLimits(characters_per_minute=per_minute), clock)
    began, used = clock.now, 0
    for pause_s, characters in uses:
        clock.now += pause_s
        try:
            allowance.charge_characters(characters)
        except RateLimited:
            continue
        used += characters
    assert used <= per_minute + (clock.now - began) * per_minute / 60 + 1e-6


def test_streams_are_counted_while_they_are_open() -> None:
    allowance = KeyRateLimiter(KeyLimits(streams=2))
    with allowance.stream(), allowance.stream():  # noqa: SIM117
        with pytest.raises(RateLimited, match="2 are allowed"), allowance.stream():
            pass
    with pytest.raises(KeyError), allowance.stream():
        raise KeyError
    assert allowance.open_streams == 0


def test_without_limits_nothing_is_refused() -> None:
    allowance = KeyRateLimiter(KeyLimits())
    for _ in range(1000):
        allowance.charge_request()
        allowance.charge_characters(10**9)
