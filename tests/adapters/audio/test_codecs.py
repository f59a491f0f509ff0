"""Codecs against the formulas and the digital milliwatt of G.711; WAV against the ``wave`` module."""

import io
import struct
import wave
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivavoce.adapters.audio.formats.call_packets import l16_decode, l16_encode
from vivavoce.adapters.audio.formats.g711 import alaw_decode, alaw_encode, ulaw_decode, ulaw_encode
from vivavoce.adapters.audio.pcm import require_whole_samples, wav_file, wav_header, wav_stream_header

Codec = Callable[[bytes], bytes]

EVERY_BYTE = bytes(range(256))
EVERY_SAMPLE = np.arange(-32_768, 32_768)


def ulaw_value(code: int) -> int:
    """G.711 table 2: all bits inverted; 8 segments of 16 steps, with a bias of 132."""
    code = ~code & 0xFF
    magnitude = (((code & 0x0F) * 8 + 132) << (code >> 4 & 7)) - 132
    return -magnitude if code & 0x80 else magnitude


def alaw_value(code: int) -> int:
    """G.711 table 1: even bits inverted; the first two segments have the same step."""
    code ^= 0x55
    segment, step = code >> 4 & 7, code & 0x0F
    magnitude = step * 16 + 8 if segment == 0 else (step * 16 + 264) << (segment - 1)
    return magnitude if code & 0x80 else -magnitude


def samples(pcm: bytes) -> list[int]:
    return np.frombuffer(pcm, "<i2").tolist()


def pcm(values: npt.ArrayLike) -> bytes:
    return np.asarray(values).astype("<i2").tobytes()


def test_every_ulaw_byte_decodes_to_the_value_of_the_formula() -> None:
    assert samples(ulaw_decode(EVERY_BYTE)) == [ulaw_value(code) for code in EVERY_BYTE]


def test_every_alaw_byte_decodes_to_the_value_of_the_formula() -> None:
    assert samples(alaw_decode(EVERY_BYTE)) == [alaw_value(code) for code in EVERY_BYTE]


def test_every_ulaw_byte_survives_a_round_trip() -> None:
    returned = ulaw_encode(ulaw_decode(EVERY_BYTE))
    assert returned == EVERY_BYTE.replace(b"\x7f", b"\xff")  # both codes mean zero; the encoder sends +0


def test_every_alaw_byte_survives_a_round_trip() -> None:
    assert alaw_encode(alaw_decode(EVERY_BYTE)) == EVERY_BYTE


@pytest.mark.parametrize(
    ("encode", "value", "max_level"), [(ulaw_encode, ulaw_value, 32_124), (alaw_encode, alaw_value, 32_256)]
)
def test_every_sample_is_encoded_to_an_adjacent_code(
    encode: Codec, value: Callable[[int], int], max_level: int
) -> None:
    codes = encode(pcm(EVERY_SAMPLE))
    decoded = np.array([value(code) for code in codes])
    within = np.abs(EVERY_SAMPLE) <= max_level  # both laws saturate above
    error = np.abs(decoded - EVERY_SAMPLE)
    # Half a step is at most 1/33 of the level, and both laws first truncate 16 bits to 14 or 13.
    assert (error <= np.abs(EVERY_SAMPLE) / 32 + 8)[within].all()
    assert (np.diff(decoded) >= 0).all()


@pytest.mark.parametrize(
    ("decode", "milliwatt"),
    [(ulaw_decode, "1e0b0b1e9e8b8b9e"), (alaw_decode, "34212134b4a1a1b4")],
)
def test_the_digital_milliwatt_is_a_1_khz_tone_at_0_dbm0(decode: Codec, milliwatt: str) -> None:
    tone = np.frombuffer(decode(bytes.fromhex(milliwatt) * 100), "<i2") / 32_768
    rms_db = 20 * np.log10(np.sqrt(np.mean(tone**2)))
    # G.711 section 4: full scale of a sine is +3.17 dBm0 in µ-law and +3.14 in A-law.
    assert rms_db == pytest.approx(-3.01 - 3.155, abs=0.1)
    spectrum = np.abs(np.fft.rfft(tone))
    assert np.argmax(spectrum) == len(tone) // 8  # 1 kHz of 8


@pytest.mark.parametrize(
    ("sample", "ulaw", "alaw"), [(0, 0xFF, 0xD5), (32_767, 0x80, 0xAA), (-32_768, 0x00, 0x2A)]
)
def test_silence_and_full_scale_have_the_codes_of_g711(sample: int, ulaw: int, alaw: int) -> None:
    assert ulaw_encode(pcm([sample])) == bytes([ulaw])
    assert alaw_encode(pcm([sample])) == bytes([alaw])


def test_l16_is_network_byte_order() -> None:
    assert l16_encode(pcm([1, -2])) == struct.pack("!hh", 1, -2)
    assert l16_decode(struct.pack("!hh", 1, -2)) == pcm([1, -2])


@settings(deadline=None)
@given(st.binary())
def test_l16_survives_a_round_trip(data: bytes) -> None:
    even = data[: len(data) // 2 * 2]
    assert l16_decode(l16_encode(even)) == even


@pytest.mark.parametrize("encode", [ulaw_encode, alaw_encode, l16_encode, l16_decode, require_whole_samples])
def test_an_odd_number_of_bytes_is_refused(encode: Codec) -> None:
    with pytest.raises(ValueError, match="got 3 bytes of 16-bit samples; the number must be even"):
        encode(b"abc")


def test_the_standard_library_reads_a_wav_file() -> None:
    speech = pcm([1, -1, 300])
    with wave.open(io.BytesIO(wav_file(speech, 8_000))) as reader:
        assert (reader.getnchannels(), reader.getsampwidth(), reader.getframerate()) == (1, 2, 8_000)
        assert reader.readframes(10) == speech


def test_a_wav_file_equals_the_file_that_the_standard_library_writes() -> None:
    speech = pcm(range(100))
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(24_000)
        writer.writeframes(speech)
    assert wav_file(speech, 24_000) == file.getvalue()


def test_a_wav_file_may_hold_no_samples() -> None:
    with wave.open(io.BytesIO(wav_file(b"", 8_000))) as reader:
        assert (reader.getframerate(), reader.getnframes()) == (8_000, 0)


def test_a_stream_header_gives_an_unknown_length() -> None:
    header = wav_stream_header(8_000)
    assert len(header) == 44
    assert header[4:8] == header[40:44] == b"\xff\xff\xff\xff"
    assert header[:4] + header[8:40] == wav_header(8_000, 0)[:4] + wav_header(8_000, 0)[8:40]


@pytest.mark.parametrize("pcm_bytes", [-1, 2**32 - 1 - 43])
def test_a_length_outside_the_range_of_a_wav_header_is_refused(pcm_bytes: int) -> None:
    with pytest.raises(ValueError, match=f"got {pcm_bytes} bytes of speech"):
        wav_header(8_000, pcm_bytes)


def test_the_maximum_length_of_a_wav_header_is_written() -> None:
    assert struct.unpack("<I", wav_header(8_000, 2**32 - 1 - 44)[40:])[0] == 2**32 - 45
