"""The bound on what a call's peer may send, in virtual time."""

import random
from collections.abc import Callable, Iterable

import pytest

from vivavoce.adapters.call_rate_limit import CallRateLimit

PTIME_S = 0.02


class SentTooFast(Exception):
    """The protocol's error."""


def last_before_a_refusal(times: Iterable[float], take: Callable[[float], None]) -> float | None:
    """Take at each time; return the time that was refused, None if none was."""
    for now in times:
        try:
            take(now)
        except SentTooFast:
            return now
    return None


def test_an_hour_of_a_call_with_jitter_passes() -> None:
    draw = random.Random(7)
    limit = CallRateLimit(0.0, SentTooFast)
    times = sorted(number * PTIME_S + draw.uniform(0, 0.5) for number in range(180_000))
    assert last_before_a_refusal(times, lambda now: limit.take_audio(PTIME_S, now)) is None
    limit = CallRateLimit(0.0, SentTooFast)
    assert last_before_a_refusal(times[::10], limit.take_control) is None  # five a second


@pytest.mark.parametrize("ptime_s", [0.01, 0.02, 0.1])
def test_what_comes_at_once_after_half_a_minute_without_network_passes_again_and_again(
    ptime_s: float,
) -> None:
    limit = CallRateLimit(0.0, SentTooFast)
    times = [29.0 * (1 + int(number * ptime_s / 29)) for number in range(int(300 / ptime_s))]
    assert last_before_a_refusal(times, lambda now: limit.take_audio(ptime_s, now)) is None
    limit = CallRateLimit(0.0, SentTooFast)
    assert last_before_a_refusal(times[:: max(1, int(0.2 / ptime_s))], limit.take_control) is None


def test_audio_at_twice_its_speed_is_refused_after_a_minute() -> None:
    limit = CallRateLimit(0.0, SentTooFast)
    refused = last_before_a_refusal(
        (number * PTIME_S / 2 for number in range(12_000)), lambda now: limit.take_audio(PTIME_S, now)
    )
    assert refused == pytest.approx(60, abs=1)


def test_the_packets_of_both_directions_pass() -> None:
    limit = CallRateLimit(0.0, SentTooFast)
    for number in range(10_000):
        limit.take_audio(PTIME_S, number * PTIME_S)
        limit.take_audio(0.0, number * PTIME_S)  # our own speech, which is not taken


def test_messages_without_audio_are_counted() -> None:
    limit = CallRateLimit(0.0, SentTooFast)
    for _ in range(3_000):
        limit.take_audio(0.0, 0.0)
    with pytest.raises(SentTooFast, match="got more than 3000 messages at once and 150 a second"):
        limit.take_audio(0.0, 0.0)


def test_control_messages_are_bounded_beside_audio() -> None:
    limit = CallRateLimit(0.0, SentTooFast)
    for _ in range(400):
        limit.take_control(0.0)
        limit.take_audio(PTIME_S, 0.0)
    with pytest.raises(SentTooFast, match="got more than 400 control messages at once and 20"):
        limit.take_control(0.01)
