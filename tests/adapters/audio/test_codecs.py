"""Codecs against G.711's own formulas, its digital milliwatt, and the standard library's WAV reader."""

import contextlib
import io
import struct
import wave
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivavoce.adapters.audio.codecs import (
    WavAudio,
    alaw_decode,
    alaw_encode,
    l16_decode,
    l16_encode,
    read_wav,
    require_whole_samples,
    ulaw_decode,
    ulaw_encode,
    wav_file,
    wav_header,
    wav_stream_header,
)

Codec = Callable[[bytes], bytes]

EVERY_BYTE = bytes(range(256))
EVERY_SAMPLE = np.arange(-32_768, 32_768)


def ulaw_value(code: int) -> int:
    """G.711 table 2: all bits inverted; 8 segments of 16 steps, 132 added before and taken off after."""
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


def test_every_ulaw_byte_means_what_the_formula_says() -> None:
    assert samples(ulaw_decode(EVERY_BYTE)) == [ulaw_value(code) for code in EVERY_BYTE]


def test_every_alaw_byte_means_what_the_formula_says() -> None:
    assert samples(alaw_decode(EVERY_BYTE)) == [alaw_value(code) for code in EVERY_BYTE]


def test_every_ulaw_byte_survives_the_way_there_and_back() -> None:
    returned = ulaw_encode(ulaw_decode(EVERY_BYTE))
    assert returned == EVERY_BYTE.replace(b"\x7f", b"\xff")  # both are zero, and plus is the one sent


def test_every_alaw_byte_survives_the_way_there_and_back() -> None:
    assert alaw_encode(alaw_decode(EVERY_BYTE)) == EVERY_BYTE


@pytest.mark.parametrize(
    ("encode", "value", "loudest"), [(ulaw_encode, ulaw_value, 32_124), (alaw_encode, alaw_value, 32_256)]
)
def test_every_sample_is_encoded_to_a_code_next_to_it(
    encode: Codec, value: Callable[[int], int], loudest: int
) -> None:
    codes = encode(pcm(EVERY_SAMPLE))
    decoded = np.array([value(code) for code in codes])
    within = np.abs(EVERY_SAMPLE) <= loudest  # above, both laws saturate
    error = np.abs(decoded - EVERY_SAMPLE)
    # Half a step is 1/33 of the level at most, and both laws first cut 16 bits to 14 or 13.
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
def test_silence_and_full_scale_have_their_well_known_codes(sample: int, ulaw: int, alaw: int) -> None:
    assert ulaw_encode(pcm([sample])) == bytes([ulaw])
    assert alaw_encode(pcm([sample])) == bytes([alaw])


def test_l16_is_network_byte_order() -> None:
    assert l16_encode(pcm([1, -2])) == struct.pack("!hh", 1, -2)
    assert l16_decode(struct.pack("!hh", 1, -2)) == pcm([1, -2])


@settings(deadline=None)
@given(st.binary())
def test_l16_there_and_back_changes_nothing(data: bytes) -> None:
    even = data[: len(data) // 2 * 2]
    assert l16_decode(l16_encode(even)) == even


@pytest.mark.parametrize("encode", [ulaw_encode, alaw_encode, l16_encode, l16_decode, require_whole_samples])
def test_half_a_sample_is_refused(encode: Codec) -> None:
    with pytest.raises(ValueError, match="got 3 bytes of 16-bit samples; the number must be even"):
        encode(b"abc")


def test_a_wav_file_is_what_the_standard_library_reads() -> None:
    speech = pcm([1, -1, 300])
    with wave.open(io.BytesIO(wav_file(speech, 8_000))) as reader:
        assert (reader.getnchannels(), reader.getsampwidth(), reader.getframerate()) == (1, 2, 8_000)
        assert reader.readframes(10) == speech


def test_a_wav_file_is_byte_for_byte_what_the_standard_library_writes() -> None:
    speech = pcm(range(100))
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(24_000)
        writer.writeframes(speech)
    assert wav_file(speech, 24_000) == file.getvalue()
    assert read_wav(file.getvalue()) == WavAudio(24_000, speech)


def test_a_wav_file_of_no_speech_is_a_wav_file() -> None:
    assert read_wav(wav_file(b"", 8_000)) == WavAudio(8_000, b"")


def test_a_header_for_a_pipe_lets_speech_of_any_length_follow() -> None:
    header = wav_stream_header(8_000)
    assert len(header) == 44
    assert header[4:8] == header[40:44] == b"\xff\xff\xff\xff"
    assert read_wav(header + pcm([5, 6, 7])) == WavAudio(8_000, pcm([5, 6, 7]))


def test_other_chunks_of_a_wav_file_are_passed_over() -> None:
    file = wav_file(pcm([9]), 8_000)
    odd = b"LIST" + struct.pack("<I", 3) + b"abc\0"  # padded to an even place
    assert read_wav(file[:12] + odd + file[12:36] + odd + file[36:]) == WavAudio(8_000, pcm([9]))


@pytest.mark.parametrize("pcm_bytes", [-1, 2**32 - 1 - 43])
def test_a_length_that_no_wav_header_holds_is_refused(pcm_bytes: int) -> None:
    with pytest.raises(ValueError, match=f"got {pcm_bytes} bytes of speech"):
        wav_header(8_000, pcm_bytes)


def test_the_longest_length_that_a_wav_header_holds_is_written() -> None:
    assert struct.unpack("<I", wav_header(8_000, 2**32 - 1 - 44)[40:])[0] == 2**32 - 45


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "got 0 bytes"),
        (b"RIFF\0\0\0\0WAV", "got 11 bytes"),
        (b"ID3\0" + bytes(40), "begins with b'ID3"),
        (b"RIFF\0\0\0\0AVI " + bytes(40), "begins with b'RIFF"),
        (wav_file(b"", 8_000)[:36], "without a fmt chunk and a data chunk"),
        (wav_file(b"", 8_000)[:12] + wav_file(b"ab", 8_000)[36:], "without a fmt chunk and a data chunk"),
        (wav_file(pcm([1, 2]), 8_000)[:-1], "got 3 of the 4 bytes of the WAV file's b'data' chunk"),
        (wav_stream_header(8_000) + b"abc", "got 3 bytes of 16-bit samples"),
    ],
)
def test_a_damaged_wav_file_is_refused_with_a_sentence(data: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_wav(data)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ((7, 1, 8_000, 8_000, 1, 8), "got format 7 with 1 channels of 8 bits at 8000 Hz"),
        ((1, 2, 8_000, 32_000, 4, 16), "got format 1 with 2 channels of 16 bits"),
        ((1, 1, 8_000, 24_000, 3, 24), "got format 1 with 1 channels of 24 bits"),
        ((1, 1, 0, 0, 2, 16), "at 0 Hz"),
    ],
)
def test_a_wav_file_of_another_format_is_refused(fields: tuple[int, ...], sentence: str) -> None:
    file = wav_file(pcm([1]), 8_000)
    with pytest.raises(ValueError, match=sentence):
        read_wav(file[:20] + struct.pack("<HHIIHH", *fields) + file[36:])


def test_a_wav_file_with_a_short_format_is_refused() -> None:
    with pytest.raises(ValueError, match="got a fmt chunk of 4 bytes; it has at least 16"):
        read_wav(b"RIFF\0\0\0\0WAVEfmt \4\0\0\0abcd")


@settings(deadline=None)
@given(st.binary(max_size=80))
def test_garbage_after_a_wav_header_is_read_or_refused(data: bytes) -> None:
    file = wav_file(b"", 8_000)[:12] + data
    with contextlib.suppress(ValueError):
        assert len(read_wav(file).pcm) <= len(data)
