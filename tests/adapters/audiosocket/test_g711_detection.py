"""Detection of G.711 that a peer labels as 16-bit audio."""

import struct
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
import pytest

from shared.calls.audiosocket_messages import DTMF_MESSAGE, PAYLOAD, open_call
from vivavoce.adapters.audio.codecs import alaw_encode, ulaw_encode
from vivavoce.adapters.audiosocket.g711_detection import PayloadEncoding, guess_encoding
from vivavoce.adapters.audiosocket.protocol import (
    AudioSocketAudio,
    AudioSocketConnection,
    AudioSocketRole,
    Dtmf,
    MislabelledG711,
)

Encoder = Callable[[bytes], bytes]


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


def messages_until_g711(payloads: Iterable[bytes]) -> int | None:
    """Number of messages of kind 0x10 up to the MislabelledG711 event, or None without one."""
    connection = open_call()
    warnings = []
    for number, payload in enumerate(payloads, 1):
        connection.receive_data(b"\x10" + struct.pack("!H", len(payload)) + payload)
        warnings += [number for event in connection.events() if event == MislabelledG711()]
    assert len(warnings) <= 1
    return warnings[0] if warnings else None


def split_into_payloads(data: bytes, size: int = 160) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.parametrize("encoder", [ulaw_encode, alaw_encode])
@pytest.mark.parametrize("level_db", [-60, -40, -20, -6])
@pytest.mark.parametrize("signal", [voice, white_noise, dtmf_tone])
def test_g711_labelled_as_16_bit_audio_is_detected_within_100_ms(
    encoder: Encoder, level_db: float, signal: Callable[[float], bytes]
) -> None:
    assert messages_until_g711(split_into_payloads(encoder(signal(level_db)))) == 5


@pytest.mark.parametrize("level_db", [-60, -40, -20, -12])
@pytest.mark.parametrize("signal", [voice, white_noise, dtmf_tone])
def test_16_bit_audio_in_messages_of_10_ms_is_not_detected_as_g711(
    level_db: float, signal: Callable[[float], bytes]
) -> None:
    assert messages_until_g711(split_into_payloads(signal(level_db))) is None


@pytest.mark.parametrize("silence", [b"\xff", b"\x7f", b"\xd5", b"\x55"])
def test_g711_silence_of_both_laws_is_detected(silence: bytes) -> None:
    assert messages_until_g711([silence * 160] * 10) == 5


def test_16_bit_silence_is_not_detected_as_g711() -> None:
    assert messages_until_g711([bytes(160)] * 100) is None
    comfort_noise = np.random.default_rng(5).integers(-2, 2, 8_000).astype("<i2").tobytes()
    assert messages_until_g711(split_into_payloads(comfort_noise)) is None


def test_g711_is_detected_after_leading_silence() -> None:
    silence_then_voice = [bytes(160)] * 50 + split_into_payloads(ulaw_encode(voice(-20)))
    assert messages_until_g711(silence_then_voice) == 55


def test_a_message_of_another_length_or_rate_ends_the_detection() -> None:
    companded = split_into_payloads(ulaw_encode(voice(-20)))
    assert messages_until_g711([*companded[:4], PAYLOAD, *companded]) is None
    connection = open_call()
    connection.receive_data(b"\x11\x00\xa0" + companded[0])
    connection.receive_data(b"".join(b"\x10\x00\xa0" + payload for payload in companded[:20]))
    assert MislabelledG711() not in list(connection.events())


def test_five_messages_of_16_bit_audio_end_the_detection() -> None:
    companded = split_into_payloads(ulaw_encode(voice(-20)))
    assert messages_until_g711(split_into_payloads(voice(-20))[:5] + companded) is None
    assert messages_until_g711(split_into_payloads(voice(-20))[:4] + companded) == 4 + 4 + 5


def test_dtmf_digits_do_not_affect_the_detection() -> None:
    connection = open_call()
    companded = b"".join(
        b"\x10\x00\xa0" + payload for payload in split_into_payloads(ulaw_encode(voice(-20)))[:5]
    )
    connection.receive_data(companded[: 163 * 3] + DTMF_MESSAGE + companded[163 * 3 :])
    events = list(connection.events())
    assert [type(event) for event in events] == [AudioSocketAudio] * 3 + [Dtmf] + [AudioSocketAudio] * 2 + [
        MislabelledG711
    ]


def test_a_caller_does_not_detect_g711() -> None:
    connection = AudioSocketConnection(AudioSocketRole.CALLER)
    connection.receive_data((b"\x10\x00\xa0" + b"\xff" * 160) * 20)
    assert MislabelledG711() not in list(connection.events())


def test_the_advice_names_the_setting_to_change() -> None:
    assert "c(slin)" in MislabelledG711().advice
    assert "160-byte" in MislabelledG711().advice


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
