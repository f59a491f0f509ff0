"""Encoders: fidelity, length, delay, split independence, bit rates and headers."""

import gc
import io
from itertools import pairwise
from typing import get_args

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from vivavoce.adapters.audio.encoders import AUDIO_FORMATS, SAMPLE_RATES, AudioFormat, Codec, open_encoder
from vivavoce.adapters.audio.format_kind import AudioLayout
from vivavoce.adapters.audio.formats import g711
from vivavoce.adapters.audio.formats.opus import ogg_head
from vivavoce.adapters.audio.pcm import wav_stream_header
from vivavoce.tts_engine.errors import BadRequest

CODECS = get_args(Codec)
LOSSY = ("mp3", "opus", "webm", "aac", "m4a")
CONTAINERS = {
    "wav": "wav",
    "mp3": "mp3",
    "opus": "ogg",
    "webm": "webm",
    "aac": "aac",
    "m4a": "mp4",
    "flac": "flac",
}
FEED = 480  # samples at 24 kHz, 20 ms
# Objects of a closed encoder that are left to the garbage collector. From PyAV 19 on, the filters of an
# encoder's own resampler refer to their graph.
MAX_COLLECTED = 0 if int(av.__version__.partition(".")[0]) < 19 else 16


def test_the_formats_are_those_of_the_type() -> None:
    assert tuple(kind.name for kind in AUDIO_FORMATS) == CODECS


def voiced(seconds: float) -> NDArray[np.int16]:
    """A vowel-like signal with moving pitch and loudness, s16 at 24 kHz."""
    time = np.arange(round(seconds * 24_000)) / 24_000
    phase = 2 * np.pi * np.cumsum(120 + 20 * np.sin(2 * np.pi * 1.5 * time)) / 24_000
    wave = sum(np.sin(harmonic * phase) / harmonic for harmonic in range(1, 15))
    return (6_000 * wave * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * time))).astype("<i2")


def encoded(audio: AudioFormat, samples: NDArray[np.int16], feed: int = FEED) -> bytes:
    encoder = open_encoder(audio)
    pushed = [encoder.push(samples[at : at + feed].tobytes()) for at in range(0, len(samples), feed)]
    return b"".join([*pushed, encoder.finish()])


def decoded(audio: AudioFormat, data: bytes) -> tuple[NDArray[np.float64], int]:
    """Samples in [-1, 1] and their rate."""
    match audio.codec:
        case "pcm":
            pcm = data[: len(data) // 2 * 2]
        case "ulaw":
            pcm = g711.ulaw_decode(data)
        case "alaw":
            pcm = g711.alaw_decode(data)
        case _:
            return _decoded_container(data, CONTAINERS[audio.codec])
    return np.frombuffer(pcm, "<i2") / 32_768, audio.sample_rate


def _decoded_container(data: bytes, container: str) -> tuple[NDArray[np.float64], int]:
    with av.open(io.BytesIO(data), format=container) as file:
        rate = file.streams.audio[0].rate
        as_float = av.AudioResampler(format="fltp", layout="mono", rate=rate)
        parts = [out.to_ndarray()[0] for frame in file.decode(audio=0) for out in as_float.resample(frame)]
    return np.concatenate(parts or [np.zeros(0)]).astype(np.float64), rate


def lag_and_likeness(
    heard: NDArray[np.float64], rate: int, samples: NDArray[np.int16]
) -> tuple[float, float]:
    """Delay of ``heard`` in milliseconds, and its correlation with the input when aligned."""
    time = np.arange(round(len(samples) * rate / 24_000)) * 24_000 / rate
    source = np.interp(time, np.arange(len(samples)), samples)
    size = 2 ** int(np.ceil(np.log2(len(heard) + len(source))))
    across = np.fft.irfft(np.fft.rfft(heard, size) * np.conj(np.fft.rfft(source, size)), size)
    lag = int(np.argmax(across))
    length = min(len(source), len(heard) - lag)
    return 1_000 * lag / rate, float(np.corrcoef(heard[lag : lag + length], source[:length])[0, 1])


@pytest.mark.parametrize("codec", CODECS)
def test_the_decoded_speech_correlates_with_the_input(codec: Codec) -> None:
    samples = voiced(2.0)
    for rate in (8_000, 16_000, 24_000, 48_000):
        audio = AudioFormat(codec, rate)
        heard, rate_out = decoded(audio, encoded(audio, samples))
        lag_ms, likeness = lag_and_likeness(heard, rate_out, samples)
        assert rate_out == (48_000 if codec in ("opus", "webm") else rate)
        assert likeness > 0.98, (rate, lag_ms, likeness)
        longest_lag = {"mp3": 1_106, "aac": 1_025}.get(codec, 0) / rate * 1_000
        assert lag_ms <= longest_lag + 0.2, (rate, lag_ms)


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec not in ("mp3", "aac", "m4a")])
@pytest.mark.parametrize("rate", SAMPLE_RATES)
def test_lossless_formats_and_opus_keep_the_exact_length(codec: Codec, rate: int) -> None:
    audio = AudioFormat(codec, rate)
    samples = voiced(1.0)[:-7]
    heard, rate_out = decoded(audio, encoded(audio, samples))
    assert abs(len(heard) - len(samples) * rate_out / 24_000) <= 2


@pytest.mark.parametrize("codec", ["mp3", "aac", "m4a"])
@pytest.mark.parametrize("rate", SAMPLE_RATES)
def test_mp3_and_aac_add_little_more_than_two_frames_and_drop_nothing(codec: Codec, rate: int) -> None:
    audio = AudioFormat(codec, rate)
    samples = voiced(1.0)
    heard, _ = decoded(audio, encoded(audio, samples))
    frame = 1_152 if codec == "mp3" and rate >= 32_000 else 576 if codec == "mp3" else 1_024
    delay = {"mp3": 1_105, "aac": 1_024, "m4a": 0}[codec]
    assert rate <= len(heard) <= rate + delay + 2 * frame


@pytest.mark.parametrize("codec", CODECS)
def test_any_split_of_the_input_gives_the_same_samples(codec: Codec) -> None:
    samples = voiced(0.7)
    audio = AudioFormat(codec, 16_000)
    expected, _ = decoded(audio, encoded(audio, samples, len(samples)))
    for feed in (1, 333, 5_000):
        heard, _ = decoded(audio, encoded(audio, samples if feed > 1 else samples[:999], feed))
        if feed > 1:
            assert np.array_equal(heard, expected), feed


@pytest.mark.parametrize(
    ("codec", "rate", "max_ms"),
    [
        *[
            (codec, rate, 60)
            for codec in CODECS
            if codec not in ("mp3", "aac", "m4a")
            for rate in SAMPLE_RATES
        ],
        *[("mp3", rate, 120) for rate in (22_050, 24_000, 44_100, 48_000)],
        *[("aac", rate, 120) for rate in SAMPLE_RATES if rate >= 22_050],
        *[("mp3", rate, 300) for rate in (8_000, 16_000, 32_000)],  # limited by their frame length
        *[("aac", rate, 260) for rate in (8_000, 16_000)],
        *[("m4a", rate, 200) for rate in SAMPLE_RATES if rate >= 22_050],
        *[("m4a", rate, 520) for rate in (8_000, 16_000)],
    ],
)
def test_the_first_decodable_sample_comes_within_the_limit(codec: Codec, rate: int, max_ms: int) -> None:
    assert first_decodable_ms(AudioFormat(codec, rate)) <= max_ms


def first_decodable_ms(audio: AudioFormat) -> float:
    """Milliseconds of speech, pushed 20 at a time, until a decoder returns a sample."""
    encoder, data, samples = open_encoder(audio), b"", voiced(1.0)
    for start, stop in pairwise(range(0, len(samples) + 1, FEED)):
        data += encoder.push(samples[start:stop].tobytes())
        if data and decodes(audio, data):
            return stop / 24
    raise AssertionError("nothing in a second")


def decodes(audio: AudioFormat, data: bytes) -> bool:
    try:
        samples, _ = decoded(audio, data)
    except av.FFmpegError:
        return False
    return len(samples) > 0


@pytest.mark.parametrize("codec", LOSSY)
def test_the_requested_bit_rate_is_kept(codec: Codec) -> None:
    samples = voiced(2.0)
    for bit_rate in (32_000, 64_000):
        bits = 8 * len(encoded(AudioFormat(codec, 24_000, bit_rate), samples)) / 2.0
        # The headers of 50 Ogg pages or WebM clusters, or of 23 MP4 fragments, a second
        headers = {"opus": 12_000, "webm": 12_000, "m4a": 36_000}.get(codec, 0)
        assert 0.7 * bit_rate < bits - headers < 1.4 * bit_rate


@pytest.mark.parametrize("codec", LOSSY)
def test_the_bit_rate_limits_are_encoded_and_rates_beyond_them_refused(codec: Codec) -> None:
    name = {"webm": "opus", "m4a": "aac"}.get(codec, codec)
    edges = {
        "mp3": {8_000: (8_000, 64_000), 24_000: (8_000, 160_000), 48_000: (32_000, 320_000)},
        "aac": {8_000: (8_000, 48_000), 24_000: (8_000, 144_000), 48_000: (8_000, 288_000)},
        "opus": dict.fromkeys((8_000, 24_000, 48_000), (6_000, 256_000)),
    }[name]
    for rate, (least, most) in edges.items():
        for bit_rate in (least, most):
            audio = AudioFormat(codec, rate, bit_rate)
            assert len(decoded(audio, encoded(audio, voiced(0.5)))[0])
        for bit_rate in (least - 1, most + 1):
            with pytest.raises(BadRequest, match=rf"got a bit rate of {bit_rate} .* {least} to {most}"):
                AudioFormat(codec, rate, bit_rate)


def test_formats_without_a_bit_rate_ignore_it() -> None:
    assert AudioFormat("pcm", bit_rate=1).bit_rate == 1


@pytest.mark.parametrize("rate", [0, -1, 7_999, 23_999, 96_000])
def test_an_unsupported_sample_rate_is_refused(rate: int) -> None:
    with pytest.raises(BadRequest, match=f"got a sample rate of {rate} Hz; allowed are 8000, .*, 48000"):
        AudioFormat("wav", rate)


def test_an_unsupported_format_is_refused() -> None:
    with pytest.raises(BadRequest, match="got format 'ogg'; allowed are pcm, wav, mp3"):
        AudioFormat("ogg")  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", CODECS)
def test_an_odd_number_of_bytes_is_refused(codec: Codec) -> None:
    with pytest.raises(ValueError, match="must be even"):
        open_encoder(AudioFormat(codec)).push(b"\0\0\0")


@pytest.mark.parametrize("codec", CODECS)
def test_an_empty_utterance_is_a_header_or_empty(codec: Codec) -> None:
    encoder = open_encoder(AudioFormat(codec))
    assert encoder.push(b"") + encoder.finish() == encoded(AudioFormat(codec), voiced(0))
    assert len(encoded(AudioFormat(codec), voiced(0))) < 100


@pytest.mark.parametrize("layout", AudioLayout)
@pytest.mark.parametrize("codec", CODECS)
def test_hardly_any_sound_is_encoded_at_every_rate(codec: Codec, layout: AudioLayout) -> None:
    for rate in SAMPLE_RATES:
        for samples in (0, 1, 2, 480):
            data = encoded(AudioFormat(codec, rate, layout=layout), voiced(samples / 24_000))
            assert data or samples < 480  # at a lower rate, one sample may become none


@pytest.mark.parametrize("codec", CODECS)
def test_an_encoder_may_be_abandoned_at_any_time(codec: Codec) -> None:
    open_encoder(AudioFormat(codec))
    encoder = open_encoder(AudioFormat(codec))
    encoder.push(bytes(9_600))
    del encoder


@pytest.mark.parametrize("is_finished", [False, True])
@pytest.mark.parametrize("layout", AudioLayout)
@pytest.mark.parametrize("codec", CODECS)
def test_a_closed_encoder_leaves_nothing_to_the_garbage_collector(
    codec: Codec, layout: AudioLayout, is_finished: bool
) -> None:
    gc.collect()
    gc.disable()
    try:
        encoder = open_encoder(AudioFormat(codec, layout=layout))
        encoder.push(bytes(9_600))
        if is_finished:
            encoder.finish()
        encoder.close()
        encoder.close()
        del encoder
        assert gc.collect() <= MAX_COLLECTED
    finally:
        gc.enable()


def test_a_wav_stream_header_has_an_unknown_length() -> None:
    data = encoded(AudioFormat("wav", 8_000), voiced(0.1))
    assert data[:44] == wav_stream_header(8_000)
    assert decoded(AudioFormat("wav", 8_000), data)[1] == 8_000


def test_an_mp3_begins_with_a_frame_and_an_aac_with_an_adts_header() -> None:
    assert encoded(AudioFormat("mp3"), voiced(0.2))[:2] == b"\xff\xf3"  # MPEG-2 Layer III, no tag before it
    assert encoded(AudioFormat("aac"), voiced(0.2))[:2] == b"\xff\xf1"


def test_each_format_has_its_media_type() -> None:
    assert {codec: AudioFormat(codec, 8_000).content_type for codec in CODECS} == {
        "pcm": "audio/pcm",
        "wav": "audio/wav",
        "mp3": "audio/mpeg",
        "opus": "audio/ogg",
        "webm": "audio/webm",
        "m4a": "audio/mp4",
        "aac": "audio/aac",
        "flac": "audio/flac",
        "ulaw": "audio/PCMU;rate=8000",
        "alaw": "audio/PCMA;rate=8000",
    }


def test_bytes_per_second_approximates_the_encoder_output() -> None:
    pcm = (8_000 * np.sin(np.arange(96_000) / 20)).astype("<i2").tobytes()
    for codec in set(CODECS) - {"flac"}:
        audio = AudioFormat(codec, 8_000 if codec in ("ulaw", "alaw") else 24_000)
        encoder = open_encoder(audio)
        size = len(encoder.push(pcm) + encoder.finish())
        assert 0.4 < size / 4 / audio.bytes_per_second < 1.6, codec


@pytest.mark.parametrize("rate", SAMPLE_RATES)
def test_the_head_of_ogg_opus_has_the_input_rate_that_was_asked_for(rate: int) -> None:
    data = encoded(AudioFormat("opus", rate), voiced(0.1))
    assert data[28:36] == b"OpusHead"
    assert int.from_bytes(data[40:44], "little") == rate
    stated = int.from_bytes(data[22:26], "little")
    assert ogg_head.page_checksum(data[:22] + bytes(4) + data[26:47]) == stated
    # The checksum of FFmpeg's own second page shows that the function is right.
    tags = data[47 : data.index(b"OggS", 48)]
    assert ogg_head.page_checksum(tags[:22] + bytes(4) + tags[26:]) == int.from_bytes(tags[22:26], "little")
    heard, _ = decoded(AudioFormat("opus", rate), data)
    assert abs(len(heard) - 4_800) <= 2


def test_a_page_that_is_no_opus_head_is_refused() -> None:
    with pytest.raises(ValueError, match="the page of an Opus header is needed"):
        ogg_head.with_input_rate(b"OggS" + bytes(60), 16_000)


@pytest.mark.parametrize("rate", SAMPLE_RATES)
@pytest.mark.parametrize("codec", ["wav", "flac", "mp3"])
def test_a_file_comes_at_its_end_and_states_its_length(codec: Codec, rate: int) -> None:
    audio = AudioFormat(codec, rate, layout=AudioLayout.FILE)
    encoder = open_encoder(audio)
    samples = voiced(1.0)[:-7]
    assert encoder.push(samples[:12_000].tobytes()) + encoder.push(samples[12_000:].tobytes()) == b""
    data = encoder.finish()
    with av.open(io.BytesIO(data)) as file:
        assert file.duration is not None
        stated_s = file.duration / av.time_base
    heard, _ = decoded(audio, data)
    assert stated_s == pytest.approx(len(heard) / rate, abs=0.03 if codec == "mp3" else 2e-6)
    assert stated_s == pytest.approx(len(samples) / 24_000, abs=0.2 if codec == "mp3" else 3 / rate)


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec not in ("wav", "flac", "mp3")])
def test_a_file_of_the_other_formats_is_what_is_streamed(codec: Codec) -> None:
    samples, audio = voiced(0.5), AudioFormat(codec, layout=AudioLayout.FILE)
    heard, _ = decoded(audio, encoded(audio, samples))
    streamed, _ = decoded(AudioFormat(codec), encoded(AudioFormat(codec), samples))
    assert np.array_equal(heard, streamed)
