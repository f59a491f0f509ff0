"""Audio and digits of AudioSocket calls in both directions, with real Pipecat pipelines over loopback."""

import asyncio
import warnings

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Pipecat imports its own deprecated classes
    pytest.importorskip(
        "pipecat.services.tts_service", reason="needs the extra: make test EXTRAS=dev,stt,pipecat"
    )

from loguru import logger
from pipecat.frames.frames import (
    ClientConnectedFrame,
    InputAudioRawFrame,
    InputDTMFFrame,
    InterruptionFrame,
    OutputAudioRawFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)

from shared.audio.tones import pitch_of, tone
from shared.calls.audiosocket_bot import PACKET_BYTES, SPEECH, Bot, Phone, open_call
from shared.event_loop import in_loop
from vivavoce.adapters.audio.input_resampler import make_input_resampler
from vivavoce.adapters.audiosocket.protocol import (
    AudioSocketAudio,
    Dtmf,
)
from vivavoce.adapters.pipecat import (
    AudioSocketParams,
    AudioSocketTransport,
    BackgroundSounds,
    PipecatAudioSocketServer,
)

# Audio to the caller


@in_loop
async def test_silence_is_sent_from_the_start_of_the_call_while_the_bot_starts() -> None:
    """Asterisk ends a call after two seconds without audio, and a bot may start more slowly."""

    async def starting(transport: AudioSocketTransport) -> None:
        await asyncio.sleep(3600)

    async with PipecatAudioSocketServer(starting, port=0, media_processes=0) as server:
        phone = await Phone.dial(server.port)
        await phone.until(lambda: len(phone.received) >= 5)
        assert {audio for audio in phone.received} == {AudioSocketAudio(8_000, bytes(PACKET_BYTES))}
        await phone.hang_up()
        for bot in server._bots:
            bot.cancel()


@in_loop
async def test_speech_arrives_complete_in_packets_of_20_ms() -> None:
    async with open_call() as (bot, phone, _):
        await bot.play(7)
        await phone.until(lambda: len(phone.speech) == 7)
        assert {len(audio.payload) for audio in phone.received} == {PACKET_BYTES}
        assert b"".join(audio.payload for audio in phone.speech) == SPEECH * 7
        await phone.until(lambda: len(phone.received) > 20)


@in_loop
async def test_queued_speech_is_sent_in_real_time() -> None:
    async with open_call() as (bot, phone, _):
        await bot.play(100)
        await phone.until(lambda: len(phone.speech) >= 5)
        assert len(phone.speech) < 50
        assert bot.transports[0]._audiosocket_handler.lead_s() <= 1.1


@in_loop
async def test_a_thinking_sound_is_heard_until_the_bot_or_the_caller_speaks() -> None:
    sounds = BackgroundSounds(thinking=b"\x00\x01" * 24_000, thinking_after_s=0.1)
    async with open_call(sounds=sounds) as (bot, phone, _):
        thought = AudioSocketAudio(8_000, b"\x00\x01" * 160)
        await phone.until(lambda: thought in phone.received)
        await bot.workers[0].queue_frame(UserStartedSpeakingFrame())
        await phone.until(lambda: phone.received[-1] == AudioSocketAudio(8_000, bytes(PACKET_BYTES)))
        before = len(phone.received)
        await phone.until(lambda: len(phone.received) > before + 10)
        assert thought not in phone.received[before:]
        await bot.workers[0].queue_frame(UserStoppedSpeakingFrame())
        await phone.until(lambda: phone.received[-1] == thought)
        await bot.play(10)
        await phone.until(lambda: phone.received[-1].payload == SPEECH)


@in_loop
async def test_the_call_may_run_at_24_khz() -> None:
    bot = Bot(rate_out=24_000)
    params = {"params": lambda: AudioSocketParams(audio_out_sample_rate=24_000)}
    async with open_call(bot, **params) as (bot, phone, _):
        await bot.workers[0].queue_frame(OutputAudioRawFrame(SPEECH * 9, 24_000, 1))
        await phone.until(lambda: len(phone.speech) == 3)
        assert {(audio.sample_rate, len(audio.payload)) for audio in phone.received} == {(24_000, 960)}


def test_a_rate_whose_packets_exceed_one_tcp_segment_is_refused() -> None:
    with pytest.raises(ValueError, match="got 48000 Hz; allowed: 8000, 12000, 16000, 24000, 32000"):
        AudioSocketParams(audio_out_sample_rate=48_000)


def test_the_default_parameters_are_those_of_an_8_khz_call() -> None:
    params = AudioSocketParams()
    assert params.audio_in_enabled and params.audio_out_enabled
    assert (params.audio_out_10ms_chunks, params.audio_out_end_silence_secs) == (2, 0)
    assert params.audio_out_sample_rate == 8_000


@in_loop
async def test_a_pipeline_with_another_output_rate_logs_a_warning() -> None:
    warnings_logged: list[str] = []
    handler = logger.add(lambda message: warnings_logged.append(str(message)), level="WARNING")
    try:
        async with open_call(Bot(rate_out=24_000)):
            pass
    finally:
        logger.remove(handler)
    assert any("PipelineParams(audio_out_sample_rate=8000)" in line for line in warnings_logged)


# Interruptions


@in_loop
async def test_an_interruption_stops_the_speech_at_once() -> None:
    async with open_call() as (bot, phone, _):
        await bot.play(200)
        await phone.until(lambda: len(phone.speech) >= 10)
        await bot.workers[0].queue_frame(InterruptionFrame())
        await bot.recorders[0].until(lambda: bool(bot.recorders[0].of(InterruptionFrame)))
        before, total = len(phone.speech), len(phone.received)
        await phone.until(lambda: len(phone.received) > total + 10)
        assert len(phone.speech) - before <= 4  # two in flight, and two sent to catch up after a stall
        before = len(phone.speech)
        await bot.play(3)
        await phone.until(lambda: len(phone.speech) == before + 3)


@in_loop
async def test_an_interruption_before_any_speech_has_no_effect() -> None:
    async with open_call() as (bot, phone, _):
        await bot.workers[0].queue_frame(InterruptionFrame())
        await bot.recorders[0].until(lambda: bool(bot.recorders[0].of(InterruptionFrame)))
        await bot.play(4)
        await phone.until(lambda: len(phone.speech) == 4)


@in_loop
async def test_uninterruptible_speech_is_played_to_its_end() -> None:
    async with open_call() as (bot, phone, _):
        await bot.play(12, interruptible=False)
        await phone.until(lambda: len(phone.speech) >= 3)
        await bot.workers[0].queue_frame(InterruptionFrame())
        await phone.until(lambda: len(phone.speech) == 12)
        assert b"".join(audio.payload for audio in phone.speech) == SPEECH * 12


# Audio and digits to the bot


@in_loop
async def test_the_bot_receives_the_caller_s_audio_unchanged() -> None:
    async with open_call() as (bot, phone, _):
        packets = [np.arange(start, start + 160, dtype="<i2").tobytes() for start in range(1, 801, 160)]
        for pcm in packets:
            phone.send(AudioSocketAudio(8_000, pcm))
        recorder = bot.recorders[0]
        await recorder.until(lambda: len(recorder.of(InputAudioRawFrame)) == 5)
        assert [frame.audio for frame in recorder.of(InputAudioRawFrame)] == packets
        assert {(f.sample_rate, f.num_channels) for f in recorder.of(InputAudioRawFrame)} == {(8_000, 1)}
        assert recorder.of(ClientConnectedFrame)


@in_loop
async def test_the_caller_s_audio_is_resampled_to_the_pipeline_s_rate() -> None:
    async with open_call(Bot(rate_in=16_000)) as (bot, phone, _):
        for start in range(0, 4_000, 160):
            phone.send(AudioSocketAudio(8_000, tone(1_000, 8_000, start, 160)))
        recorder = bot.recorders[0]
        await recorder.until(lambda: len(recorder.of(InputAudioRawFrame)) == 25)
        pcm = b"".join(frame.audio for frame in recorder.of(InputAudioRawFrame))
        assert len(pcm) == 2 * 8_000
        assert pitch_of(pcm, 16_000) == pytest.approx(1_000, abs=3)


@in_loop
async def test_dtmf_digits_become_frames_and_digits_unknown_to_pipecat_are_dropped() -> None:
    async with open_call() as (bot, phone, _):
        for digit in "1A!*D#0":
            phone.send(Dtmf(digit))
        recorder = bot.recorders[0]
        await recorder.until(lambda: len(recorder.of(InputDTMFFrame)) == 4)
        assert [frame.button.value for frame in recorder.of(InputDTMFFrame)] == ["1", "*", "#", "0"]


@in_loop
async def test_digits_sent_before_the_bot_starts_are_kept_and_audio_is_dropped() -> None:
    may_start = asyncio.Event()
    bot = Bot()

    async def starting(transport: AudioSocketTransport) -> None:
        await may_start.wait()
        await bot(transport)

    async with PipecatAudioSocketServer(starting, port=0, media_processes=0) as server:
        phone = await Phone.dial(server.port)
        phone.send(Dtmf("7"))
        phone.send(AudioSocketAudio(8_000, SPEECH))
        await phone.until(lambda: len(phone.received) > 3)
        may_start.set()
        await bot.until_connected()
        await bot.recorders[0].until(lambda: bool(bot.recorders[0].of(InputDTMFFrame)))
        assert bot.recorders[0].of(InputAudioRawFrame) == []
        await phone.hang_up()


# Resampling


def test_the_input_resampler_converts_12_khz_to_16_khz() -> None:
    resampler = make_input_resampler(12_000, 16_000)
    pcm = b"".join(resampler.push(tone(1_000, 12_000, start, 240)) for start in range(0, 12_000, 240))
    assert len(pcm) > 30_000 * 0.9
    assert pitch_of(pcm, 16_000) == pytest.approx(1_000, abs=3)
