"""Our own voice in a caller's audio: removed at any delay and level; a caller over it stays."""

import numpy as np
import pytest
from numpy.typing import NDArray

from vivavoce.adapters.echo_filter import ECHO_RATE, EchoFilter

_PACKET = 160


def babble(seconds: float, seed: int, level: float = 0.1) -> NDArray[np.float64]:
    """Coloured noise in syllables, about as loud as speech."""
    numbers = np.random.default_rng(seed)
    samples = round(seconds * ECHO_RATE)
    noise = np.convolve(numbers.normal(size=samples), np.exp(-np.arange(40) / 6), "same")
    syllables = np.repeat(numbers.uniform(0.2, 1.5, samples // 800 + 1), 800)[:samples]
    return level * noise / noise.std() * syllables


def echoed(voice: NDArray[np.float64], db: float, ms: float) -> NDArray[np.float64]:
    shift = round(ms * ECHO_RATE / 1000)
    return np.concatenate([np.zeros(shift), voice])[: len(voice)] * 10 ** (db / 20)


def filtered(
    played: NDArray[np.float64], heard: NDArray[np.float64], packet: int = _PACKET
) -> NDArray[np.float64]:
    echo, parts = EchoFilter(), list[bytes]()
    pcm = [np.rint(32_768 * np.clip(one, -1, 1)).astype("<i2").tobytes() for one in (played, heard)]
    for start in range(0, len(pcm[0]), 2 * packet):
        parts.append(echo.remove(pcm[1][start : start + 2 * packet], ECHO_RATE))
        echo.play(pcm[0][start : start + 2 * packet], ECHO_RATE)
    return np.frombuffer(b"".join(parts), "<i2") / 32_768


def dbfs(samples: NDArray[np.float64]) -> float:
    return float(10 * np.log10(np.mean(samples**2) + 1e-12))


@pytest.mark.parametrize("ms", [20, 93, 250])
@pytest.mark.parametrize("db", [-12, -20])
def test_our_own_voice_is_removed_from_its_beginning_on(db: float, ms: float) -> None:
    voice = np.concatenate([np.zeros(4_000), babble(1.5, 1)])
    left = filtered(voice, echoed(voice, db, ms))
    pieces = [dbfs(left[start : start + 512]) for start in range(0, len(left) - 512, 512)]
    assert max(pieces) < -45  # and none of them is speech for the detector for 32 ms


@pytest.mark.parametrize("seed", range(5))
def test_our_own_voice_is_removed_from_a_room(seed: int) -> None:
    # A tail of 15 ms that is louder than the way straight.
    path = np.zeros(1_000)
    path[700] = 1.0
    path[700:820] += 0.35 * np.random.default_rng(seed).normal(size=120) * np.exp(-np.arange(120) / 40)
    voice = np.concatenate([np.zeros(4_000), babble(2.0, 1)])
    echo = np.convolve(voice, path / np.sqrt(np.sum(path**2)) / 4)[: len(voice)]
    left = filtered(voice, echo)
    pieces = [dbfs(left[start : start + 512]) for start in range(8_000, len(left) - 512, 512)]
    assert max(pieces) < -45


@pytest.mark.parametrize("ms", [399, 404, 412, 420, 430, 444, 448, 500])
def test_an_echo_that_is_later_than_the_filter_looks_passes(ms: float) -> None:
    voice = np.concatenate([np.zeros(4_000), babble(1.5, 1)])
    echo = echoed(voice, -12, ms)
    assert len(filtered(voice, echo)) == len(echo)


@pytest.mark.parametrize("ms", [20, 65, 250])
def test_an_echo_whose_delay_changes_is_found_again_soon(ms: float) -> None:
    voice = np.concatenate([np.zeros(4_000), babble(3.0, 1)])
    echo = np.where(np.arange(len(voice)) < 16_000, echoed(voice, -12, 110), echoed(voice, -12, ms))
    left = filtered(voice, echo)
    pieces = [dbfs(left[start : start + 512]) for start in range(19_200, len(left) - 512, 512)]
    assert max(pieces) < -45


def test_an_echo_that_is_nearly_too_quiet_is_removed() -> None:
    voice = np.concatenate([np.zeros(4_000), babble(1.5, 1), babble(1.5, 2, 0.01)])
    echo = echoed(voice, -12, 60)
    loudest = [max(map(dbfs, pcm[17_120:28_000].reshape(-1, 160))) for pcm in (echo, filtered(voice, echo))]
    assert loudest[0] > -50
    assert loudest[1] < -54


def test_a_caller_over_our_voice_stays() -> None:
    voice, caller = babble(2.0, 1), np.concatenate([np.zeros(8_000), babble(1.0, 2, 0.08)])
    left = filtered(voice, echoed(voice, -12, 120) + caller)
    assert dbfs(left[8_320:]) == pytest.approx(dbfs(caller[8_320:]), abs=2)
    assert dbfs(left[8_000:8_800]) > dbfs(caller[8_000:8_800]) - 3  # also at the beginning


def test_a_caller_who_begins_with_our_voice_is_not_explained_by_it() -> None:
    # Fitted to the block that it explains, the filter took 4 dB of the caller away here.
    voice, caller = babble(2.0, 1), np.concatenate([np.zeros(8_000), babble(1.0, 51, 0.03)])
    voice[4_000:7_200] *= 0.01
    left = filtered(voice, echoed(voice, -12, 100) + caller)
    assert dbfs(left[8_000:8_800]) > dbfs(caller[8_000:8_800]) - 2.5


@pytest.mark.parametrize("plays", [False, True])
def test_a_caller_without_echo_is_not_changed_much(plays: bool) -> None:
    caller = np.concatenate([np.zeros(8_000), babble(1.0, 2)])
    left = filtered(babble(2.0, 1) * plays, caller)
    assert np.mean((left - caller) ** 2) < 0.1 * np.mean(caller**2)


def test_packets_of_any_length_and_rate_are_taken() -> None:
    voice = babble(1.5, 1)
    assert dbfs(filtered(voice, echoed(voice, -12, 60), packet=100)) < -45
    wide = np.repeat(np.rint(32_768 * voice).astype("<i2"), 3).tobytes()
    echo = EchoFilter()
    left = b""
    for start in range(0, len(wide), 960):
        heard = (np.frombuffer(wide[max(0, start - 1_920) : max(0, start - 960)], "<i2") // 4).tobytes()
        left += echo.remove(heard or bytes(960), 24_000)
        echo.play(wide[start : start + 960], 24_000)
    assert dbfs(np.frombuffer(left, "<i2") / 32_768) < -45
