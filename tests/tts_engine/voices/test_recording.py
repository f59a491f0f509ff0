"""Tests of reading recordings: formats, refusals with their messages, and bounded cost."""

import io
import math
import os
import struct
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from shared.audio.sound_files import encoded
from vivavoce.tts_engine.errors import BadRequest
from vivavoce.tts_engine.voices import recording as recording_module
from vivavoce.tts_engine.voices import recording_decoder
from vivavoce.tts_engine.voices.recording import (
    Recording,
    RecordingLimits,
    check_transcript,
    read_recording,
    read_sound_file,
)
from vivavoce.tts_engine.voices.recording_decoder import RecordingRefused, decode

LIMITS = RecordingLimits()


def tone(seconds: float, sample_rate: int, channels: int = 1, level: float = 0.5) -> NDArray[np.float32]:
    time_s = np.arange(round(seconds * sample_rate)) / sample_rate
    one = level * np.sin(2 * np.pi * 440 * time_s)
    return np.repeat(one[None].astype(np.float32), channels, axis=0)


def wav(samples: NDArray[np.float32], sample_rate: int, codec: str = "pcm_s16le") -> bytes:
    return encoded(samples, sample_rate, "wav", codec)


KINDS = {
    "wav": ("wav", "pcm_s16le", 44_100),
    "wav of 24 bits": ("wav", "pcm_s24le", 48_000),
    "wav of floats": ("wav", "pcm_f32le", 16_000),
    "wav of 8 bits": ("wav", "pcm_u8", 22_050),
    "aiff": ("aiff", "pcm_s16be", 44_100),
    "flac": ("flac", "flac", 24_000),
    "mp3": ("mp3", "libmp3lame", 44_100),
    "ogg opus": ("ogg", "libopus", 48_000),
    "m4a": ("ipod", "aac", 44_100),
    "aac": ("adts", "aac", 44_100),
    "webm": ("webm", "libopus", 48_000),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_supported_format_is_read(kind: str) -> None:
    container, codec, sample_rate = KINDS[kind]
    samples, rate = decode(encoded(tone(4, sample_rate), sample_rate, container, codec), LIMITS)
    assert rate == sample_rate
    assert len(samples) / rate == pytest.approx(4, abs=0.06)
    middle = samples[rate : 2 * rate]
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(rate)))
    assert np.argmax(spectrum) == 440
    assert np.abs(middle).max() == pytest.approx(0.5, abs=0.03)  # LAME leaves some room


def test_the_decoding_process_returns_the_exact_samples() -> None:
    samples = tone(3.5, 16_000)
    recording = read_recording(wav(samples, 16_000, "pcm_f32le"))
    assert np.array_equal(recording.samples, samples[0])
    assert recording.sample_rate == 16_000
    assert recording.duration_s == 3.5


def test_two_channels_are_averaged() -> None:
    both = np.stack([tone(3, 16_000)[0], np.zeros(48_000, np.float32)])
    samples, _ = decode(wav(both, 16_000, "pcm_f32le"), LIMITS)
    assert np.allclose(samples, both[0] / 2)


@pytest.mark.parametrize("quieter", [1.0, 0.8])
def test_of_two_channels_that_cancel_each_other_the_louder_one_counts(quieter: float) -> None:
    voice = tone(3, 16_000)[0]
    samples, _ = decode(wav(np.stack([-quieter * voice, voice]), 16_000, "pcm_f32le"), LIMITS)
    assert np.allclose(np.abs(samples), np.abs(voice))


@pytest.mark.parametrize(("container", "pictures"), [("mp4", "libx264"), ("webm", "libvpx")])
def test_the_sound_of_a_video_is_read(container: str, pictures: str) -> None:
    codec = "aac" if container == "mp4" else "libopus"
    samples, rate = decode(encoded(tone(4, 48_000), 48_000, container, codec, pictures), LIMITS)
    assert len(samples) / rate == pytest.approx(4, abs=0.06)


def test_overshoot_of_a_lossy_codec_is_scaled_to_full_scale() -> None:
    square = np.sign(tone(4, 44_100)) * np.float32(0.98)
    samples, _ = decode(encoded(square, 44_100, "mp3", "libmp3lame"), LIMITS)
    assert np.abs(samples).max() == 1


def test_a_streamed_wav_of_unknown_length_is_read_to_its_end() -> None:
    file = bytearray(wav(tone(4, 16_000), 16_000))
    place = file.index(b"data") + 4
    file[4:8] = file[place : place + 4] = b"\xff" * 4
    assert len(decode(bytes(file), LIMITS)[0]) == 64_000


def test_a_wav_is_read_to_the_length_in_its_header() -> None:
    file = bytearray(wav(tone(40, 16_000), 16_000))
    place = file.index(b"data") + 4
    file[place : place + 4] = struct.pack("<I", 2 * 16_000 * 5)
    assert len(decode(bytes(file), LIMITS)[0]) == 80_000


def with_nan() -> bytes:
    samples = tone(4, 16_000)
    samples[0, 777] = np.nan
    return wav(samples, 16_000, "pcm_f32le")


REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "short": (lambda: wav(tone(2.9, 16_000), 16_000), "2.9 s long; at least 3 s"),
    "long": (lambda: encoded(tone(301, 16_000), 16_000, "flac", "flac"), "longer than 300 s"),
    "low": (lambda: wav(tone(4, 7_999), 7_999), "7,999 Hz; 8,000 to 192,000 Hz"),
    "nan": (with_nan, "NaN or infinite"),
    "unscaled": (lambda: wav(tone(4, 16_000, level=9_000), 16_000, "pcm_f32le"), r"reaches 9000; numbers"),
    "no samples": (lambda: wav(tone(1, 16_000), 16_000)[:78], "0.0 s long"),
    "text": (lambda: b"<html>not found</html>" * 50, "no recording that can be read; WAV"),
    "zeros": (lambda: bytes(100_000), "no recording that can be read"),
    "playlist": (
        lambda: b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n",
        "no recording that can be read",
    ),
    "concatenation": (lambda: b"ffconcat version 1.0\nfile /etc/passwd\n", "no recording that can be read"),
    "matroska of ac3": (
        lambda: encoded(tone(4, 48_000), 48_000, "matroska", "ac3"),
        "codec that is not read",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_unusable_file_is_refused_with_the_limit(case: str) -> None:
    make, sentence = REFUSED[case]
    with pytest.raises(RecordingRefused, match=sentence):
        decode(make(), LIMITS)


def test_playlists_never_open_the_files_that_they_name(tmp_path: Path) -> None:
    secret = tmp_path / "secret.wav"
    secret.write_bytes(wav(tone(4, 16_000), 16_000))
    for text in (
        f"ffconcat version 1.0\nfile {secret}\n",
        f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{secret.as_uri()}\n#EXT-X-ENDLIST\n",
        f'<?xml version="1.0"?><MPD type="static"><BaseURL>{secret.as_uri()}</BaseURL></MPD>',
        f"v=0\nc=IN IP4 127.0.0.1\na={secret.as_uri()}\n",
    ):
        with pytest.raises(RecordingRefused, match="no recording"):
            decode(text.encode(), LIMITS)


def test_a_long_recording_is_refused_after_its_first_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    minutes = encoded(np.zeros((1, 300 * 16_000), np.float32), 16_000, "flac", "flac")
    decoded = []
    mono = recording_decoder._mono
    monkeypatch.setattr(
        recording_decoder, "_mono", lambda frame: decoded.append(frame.samples) or mono(frame)
    )
    with pytest.raises(RecordingRefused, match="longer than 30 s"):
        decode(minutes, replace(LIMITS, max_excerpted_s=0))
    assert sum(decoded) <= 31 * 16_000


def test_more_channels_than_are_allowed_are_refused() -> None:
    with pytest.raises(RecordingRefused, match="6 channels; 1 to 2"):
        decode(wav(tone(4, 16_000, 6), 16_000), replace(LIMITS, max_channels=2))


def test_of_surround_sound_the_channels_with_speech_are_averaged() -> None:
    channels = np.zeros((6, 4 * 16_000), np.float32)
    channels[2] = tone(4, 16_000)[0]
    samples, _ = decode(wav(channels, 16_000), LIMITS)
    assert np.abs(samples - channels[2]).max() < 1e-3


def test_of_a_long_recording_an_excerpt_is_used_and_said(decoded_in_this_process: None) -> None:
    recording = read_recording(wav(tone(60, 8_000), 8_000))
    assert 10 <= recording.duration_s <= 25
    telephone, used = recording.remarks
    assert telephone == "8,000 Hz: it sounds as on a telephone"
    assert used.startswith("seconds ") and used.endswith(" of 60.0 are used")


def test_a_transcript_of_more_than_what_is_used_is_refused() -> None:
    recording = Recording(np.zeros(16_000, np.float32), 16_000)
    check_transcript([recording], "A word or two, said fast.")
    with pytest.raises(BadRequest, match=r"36 letters, too many for the 1\.0 s"):
        check_transcript([recording], 36 * "a")


def test_a_file_over_the_size_limit_is_refused_without_decoding() -> None:
    with pytest.raises(BadRequest, match="has 1,001 bytes; at most 1,000"):
        read_recording(bytes(1001), RecordingLimits(max_bytes=1000))


def test_an_empty_file_is_refused() -> None:
    with pytest.raises(BadRequest, match="empty"):
        read_recording(b"")


def test_damage_in_the_middle_is_reported_with_its_time() -> None:
    file = bytearray(encoded(tone(8, 44_100), 44_100, "mp3", "libmp3lame"))
    file[30_000:31_000] = np.random.default_rng(1).bytes(1000)
    with pytest.raises(RecordingRefused, match=r"damaged \d\.\d s from its beginning"):
        decode(bytes(file), LIMITS)


def test_metadata_that_is_not_unicode_is_ignored() -> None:
    file = wav(tone(4, 16_000), 16_000)
    title = (
        b"LIST" + struct.pack("<I", 20) + b"INFOINAM" + struct.pack("<I", 8) + b"\xe9t\xe9 \xff\xfe\xe9\x00"
    )
    at = file.index(b"data")
    assert len(decode(file[:at] + title + file[at:], LIMITS)[0]) == 64_000


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux confines a process's memory")
def test_a_compressed_header_of_a_gigabyte_is_refused() -> None:
    def box(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I4s", 8 + len(content), name) + content

    packed = zlib.compress(bytes(1 << 24), 9)
    header = box(b"cmov", box(b"dcom", b"zlib") + box(b"cmvd", struct.pack(">I", 1 << 30) + packed))
    file = box(b"ftyp", b"qt  \0\0\0\0qt  ") + box(b"moov", header) + box(b"mdat", bytes(100))
    with pytest.raises(BadRequest, match="more memory to decode"):
        read_recording(file)


def test_a_crash_of_the_decoder_is_a_refusal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    dying = tmp_path / "decoder.py"
    dying.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    monkeypatch.setattr("vivavoce.tts_engine.voices.recording._DECODER", dying)
    with pytest.raises(BadRequest, match="crashes the decoder"):
        read_recording(wav(tone(4, 16_000), 16_000))


def test_a_file_is_read_by_path_and_the_error_names_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "anna.wav").write_bytes(wav(tone(4, 16_000), 16_000))
    assert read_recording(read_sound_file(tmp_path / "anna.wav")).duration_s == 4
    with pytest.raises(BadRequest, match=r"nobody\.wav: No such file"):
        read_sound_file(tmp_path / "nobody.wav")


SEEDS = tuple(
    encoded(
        tone(3.2, 16_000 if container == "wav" else 48_000),
        16_000 if container == "wav" else 48_000,
        container,
        codec,
    )
    for container, codec in (("wav", "pcm_s16le"), ("mp3", "libmp3lame"), ("ogg", "libopus"), ("ipod", "aac"))
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_damaged_files_give_samples_or_a_refusal(data: st.DataObject) -> None:
    file = bytearray(data.draw(st.sampled_from(SEEDS)))
    for _ in range(data.draw(st.integers(1, 20))):
        # Headers decide most; damage falls on them more often.
        place = min(len(file) - 1, math.floor(len(file) * data.draw(st.floats(0, 1)) ** 4))
        file[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(file)))
    try:
        samples, rate = decode(bytes(file[:cut]), LIMITS)
    except RecordingRefused:
        return
    assert samples.ndim == 1
    assert LIMITS.min_duration_s <= len(samples) / rate <= LIMITS.max_duration_s
    assert np.abs(samples).max() <= 1


def adts_headers(count: int, payload: int = 0) -> bytes:
    """Headers of AAC frames (ISO/IEC 13818-7, 6.2) with that many bytes of zeros after each."""
    length = 7 + payload
    header = 0xFFF1 << 40 | 1 << 38 | 4 << 34 | 1 << 30 | length << 13 | 0x7FF << 2
    return (header.to_bytes(7, "big") + bytes(payload)) * count


def id3_picture(size: int) -> bytes:
    """An ID3v2.3 tag with one picture of that many bytes."""

    def syncsafe(number: int) -> bytes:
        return bytes((number >> shift) & 0x7F for shift in (21, 14, 7, 0))

    png = b"\x89PNG\r\n\x1a\n" + np.random.default_rng(0).bytes(size)
    content = b"\0image/png\0\x03\0" + png
    frame = b"APIC" + struct.pack(">I", len(content)) + b"\0\0" + content
    return b"ID3\x03\0\0" + syncsafe(len(frame)) + frame


class ReadCounter(io.BytesIO):
    """A file that counts the bytes read from it."""

    bytes_read = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.bytes_read += len(data)
        return data


HOSTILE: dict[str, Callable[[], bytes]] = {
    "headers": lambda: adts_headers(1_490_000),
    "headers and zeros": lambda: adts_headers(600_000, 10),
    "a tag and headers": lambda: id3_picture(1_000_000) + adts_headers(1_200_000),
    "sound and headers": lambda: encoded(tone(4, 44_100), 44_100, "adts", "aac") + adts_headers(1_300_000),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_file_of_frames_without_sound_is_given_up_after_a_bounded_part(case: str) -> None:
    file = HOSTILE[case]()
    assert 9e6 < len(file) <= RecordingLimits().max_bytes
    read = ReadCounter(file)
    with pytest.raises(RecordingRefused, match=r"no sound|without sound|damaged"):
        recording_decoder.decode_file(read, LIMITS)
    assert read.bytes_read < 4e6


@pytest.mark.parametrize("picture_bytes", [300_000, 3_000_000, 8_000_000])
def test_a_picture_in_front_of_the_sound_is_skipped(picture_bytes: int) -> None:
    file = id3_picture(picture_bytes) + encoded(tone(4, 44_100), 44_100, "mp3", "libmp3lame")
    samples, rate = decode(file, LIMITS)
    assert len(samples) / rate == pytest.approx(4, abs=0.06)


@pytest.mark.parametrize("kind", ["mp3", "flac", "aac", "ogg opus", "m4a"])
def test_a_long_silence_before_the_speech_is_part_of_the_recording(kind: str) -> None:
    container, codec, sample_rate = KINDS[kind]
    silence = np.zeros((1, 20 * sample_rate), np.float32)
    both = np.concatenate([silence, tone(4, sample_rate)], axis=1)
    samples, rate = decode(encoded(both, sample_rate, container, codec), LIMITS)
    assert len(samples) / rate == pytest.approx(24, abs=0.1)


def test_control_c_in_a_terminal_does_not_reach_the_decoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "decoder.py"
    program.write_text("import json, os\nprint(json.dumps({'sample_rate': os.getpgid(0)}))")
    monkeypatch.setattr(recording_module, "_DECODER", program)
    assert read_recording(b"a sound").sample_rate != os.getpgid(0)
