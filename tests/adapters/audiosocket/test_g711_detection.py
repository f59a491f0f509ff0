"""Detection of G.711 that a peer labels as 16-bit audio."""

import struct
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
import pytest

from shared.calls.audiosocket_messages import CALL_ID_MESSAGE, CALL_UUID
from vivavoce.adapters.audio.formats.g711 import alaw_encode, ulaw_encode
from vivavoce.adapters.audiosocket.g711_detection import PayloadEncoding, guess_encoding
from vivavoce.adapters.audiosocket.protocol import (
    SAMPLE_RATE_OF_KIND,
    AudioSocketAudio,
    AudioSocketProtocolError,
    CallId,
)
from vivavoce.adapters.audiosocket.server_connection import AudioSocketServerConnection, AudioSocketTimeouts

Encoder = Callable[[bytes], bytes]
_KIND_OF_RATE = {rate: kind for kind, rate in SAMPLE_RATE_OF_KIND.items()}


def voice(level_db: float, seconds: float = 1.0) -> bytes:
    """A vowel-like sound: harmonics of 120 Hz under two formants."""
    time = np.arange(round(8_000 * seconds)) / 8_000
    random = np.random.default_rng(3)
    tones = [
        np.cos(2 * np.pi * hertz * time + random.uniform(0, 6))
        / (1 + ((hertz - 600) / 400) ** 2 + (hertz / 1_500) ** 2)
        for hertz in range(120, 3_400, 120)
    ]
    return at_level(np.sum(tones, axis=0), level_db)


def white_noise(level_db: float) -> bytes:
    return at_level(np.random.default_rng(4).standard_normal(8_000), level_db)


def dtmf_tone(level_db: float) -> bytes:
    time = np.arange(8_000) / 8_000
    return at_level(np.sin(2 * np.pi * 770 * time) + np.sin(2 * np.pi * 1_336 * time), level_db)


def at_level(signal: npt.NDArray[np.float64], level_db: float) -> bytes:
    scaled = signal / signal.std() * 32_768 * 10 ** (level_db / 20)
    return np.clip(np.rint(scaled), -32_768, 32_767).astype("<i2").tobytes()


def messages_until_g711(
    payloads: Iterable[bytes], *, bytes_per_s: int = 8_000, rate: int = 8_000
) -> int | None:
    """Number of messages up to the one that ends the call as G.711, or None if the call goes on."""
    connection = AudioSocketServerConnection(100.0, AudioSocketTimeouts())
    connection.receive_data(CALL_ID_MESSAGE)
    assert list(connection.events(100.0)) == [CallId(CALL_UUID)]
    now = 100.0
    for number, payload in enumerate(payloads, 1):
        now += len(payload) / bytes_per_s
        connection.receive_data(struct.pack("!BH", _KIND_OF_RATE[rate], len(payload)) + payload)
        try:
            assert list(connection.events(now)) == [AudioSocketAudio(rate, payload)]
        except AudioSocketProtocolError as error:
            assert "c(slin)" in str(error)
            return number
    return None


def split_into_payloads(data: bytes, size: int = 160) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


PTIMES_MS = (10, 20, 30, 40, 60)


@pytest.mark.parametrize("ptime_ms", PTIMES_MS)
@pytest.mark.parametrize("encoder", [ulaw_encode, alaw_encode])
@pytest.mark.parametrize("level_db", [-60, -40, -20, -6])
@pytest.mark.parametrize("signal", [voice, white_noise, dtmf_tone])
def test_g711_labelled_as_16_bit_audio_is_detected_in_packets_of_any_length(
    encoder: Encoder, level_db: float, signal: Callable[[float], bytes], ptime_ms: int
) -> None:
    payloads = split_into_payloads(encoder(signal(level_db)), 8 * ptime_ms)
    messages = messages_until_g711(payloads)
    assert messages is not None and messages * ptime_ms <= 300 + 2 * ptime_ms


@pytest.mark.parametrize("ptime_ms", PTIMES_MS)
@pytest.mark.parametrize("level_db", [-60, -40, -20, -12, -6])
@pytest.mark.parametrize("signal", [voice, white_noise, dtmf_tone])
def test_16_bit_audio_in_packets_of_any_length_is_not_detected_as_g711(
    level_db: float, signal: Callable[[float], bytes], ptime_ms: int
) -> None:
    payloads = split_into_payloads(signal(level_db), 16 * ptime_ms)
    assert messages_until_g711(payloads, bytes_per_s=16_000) is None


def test_16_bit_noise_whose_bytes_look_like_g711_is_told_by_its_rate() -> None:
    payloads = split_into_payloads(white_noise(-3), 320)
    assert {guess_encoding(payload) for payload in payloads} == {PayloadEncoding.COMPANDED}
    assert messages_until_g711(payloads * 3, bytes_per_s=16_000) is None
    with_pauses = list(payloads * 3)
    assert messages_until_g711(with_pauses, bytes_per_s=2_000) is None  # each gap is a pause of the phone


@pytest.mark.parametrize("silence", [b"\xff", b"\x7f", b"\xd5", b"\x55"])
def test_g711_silence_of_both_laws_is_detected(silence: bytes) -> None:
    assert messages_until_g711([silence * 160] * 30) in (16, 17)


def test_16_bit_silence_is_not_detected_as_g711() -> None:
    assert messages_until_g711([bytes(160)] * 100) is None
    comfort_noise = np.random.default_rng(5).integers(-2, 2, 8_000).astype("<i2").tobytes()
    assert messages_until_g711(split_into_payloads(comfort_noise)) is None
    assert messages_until_g711([b"\xff" * 320] * 100, bytes_per_s=16_000) is None  # an offset of -1


def test_silence_at_the_rate_of_16_bit_audio_ends_the_detection() -> None:
    companded = split_into_payloads(ulaw_encode(voice(-20)))
    assert messages_until_g711([bytes(320)] * 150 + companded, bytes_per_s=16_000) is None
    assert messages_until_g711([bytes(320)] * 20 + companded, bytes_per_s=8_000) is not None


def test_g711_is_detected_after_leading_silence() -> None:
    silence_then_voice = [bytes(160)] * 50 + split_into_payloads(ulaw_encode(voice(-20)))
    assert messages_until_g711(silence_then_voice) == 55


def test_a_message_of_another_rate_ends_the_detection() -> None:
    companded = split_into_payloads(ulaw_encode(voice(-20)))
    assert messages_until_g711(companded, rate=12_000) is None


def test_five_messages_of_16_bit_audio_end_the_detection() -> None:
    companded = split_into_payloads(ulaw_encode(voice(-20)))
    assert messages_until_g711(split_into_payloads(voice(-20))[:5] + companded) is None
    assert messages_until_g711(split_into_payloads(voice(-20))[:4] + companded) is not None


@pytest.mark.parametrize(
    ("payload", "encoding"),
    [
        (bytes(160), None),
        (b"\x01\x00\xff\xff" * 40, None),
        (struct.pack("<hh", 255, -255) * 40, None),
        (struct.pack("<hh", 256, -255) * 40, PayloadEncoding.COMPANDED),
        (b"\xff" * 160, PayloadEncoding.COMPANDED),
        (voice(-20, 0.01), PayloadEncoding.LINEAR),
        (ulaw_encode(voice(-20, 0.02)), PayloadEncoding.COMPANDED),
    ],
)
def test_the_encoding_of_one_message_is_guessed_from_its_bytes(
    payload: bytes, encoding: PayloadEncoding | None
) -> None:
    assert guess_encoding(payload) is encoding
