"""Ambience, thinking sound and hold music under the packets of a call."""

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray

from shared.audio.playout_speech import chunk, speech
from vivavoce.adapters.media.call_media import CallerAudioOptions
from vivavoce.adapters.media.paced_media import ActivityChange, PacedMedia
from vivavoce.adapters.media_streams.peer_playout import PeerClear, PeerCommand, PeerMedia, PeerPlayout
from vivavoce.adapters.playback.background import (
    Awaited,
    BackgroundLoops,
    BackgroundMixer,
    BackgroundSounds,
    make_loop,
)
from vivavoce.adapters.playback.playout import Playout

RATE = 8_000
PACKET = RATE // 50
SILENCE = bytes(2 * PACKET)
SPEECH = np.full(PACKET, 4_000, "<i2").tobytes()


def constant(level: int, seconds: float = 2.0) -> bytes:
    return np.full(round(24_000 * seconds), level, "<i2").tobytes()


def tone(hz: float, seconds: float, amplitude: float = 3_000) -> bytes:
    time_s = np.arange(round(24_000 * seconds)) / 24_000
    return np.rint(amplitude * np.sin(2 * np.pi * hz * time_s)).astype("<i2").tobytes()


def mixer(**sounds: bytes) -> BackgroundMixer:
    made = BackgroundLoops(BackgroundSounds(thinking_after_s=0.2, **sounds)).mixer(RATE)
    assert made is not None
    return made


def samples(packets: list[bytes]) -> NDArray[np.float64]:
    return np.frombuffer(b"".join(packets), "<i2").astype(np.float64)


def middles(packets: list[bytes]) -> list[int]:
    return [int(samples([packet])[PACKET // 2]) for packet in packets]


def test_without_sounds_there_is_no_mixer() -> None:
    assert BackgroundLoops(BackgroundSounds()).mixer(RATE) is None
    assert BackgroundLoops(BackgroundSounds(ambience=constant(1, 0.09))).mixer(RATE) is None


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000, 48_000])
def test_a_loop_has_no_seam(rate: int) -> None:
    seconds = 1.0 + 0.05  # less the joint, 440 whole periods
    loop = make_loop(tone(440, seconds), rate).astype(np.float64)
    assert len(loop) == rate
    round_and_round = np.concatenate([loop, loop])
    steps = np.abs(np.diff(round_and_round))
    assert steps.max() <= 1.05 * 3_000 * 2 * np.pi * 440 / rate


def test_ambience_is_heard_in_silence_and_lower_under_speech() -> None:
    mixing = mixer(ambience=constant(1_000))
    sent = [mixing.mix(SILENCE) for _ in range(30)]
    assert middles(sent)[25:] == [1_000] * 5
    sent = [mixing.mix(SPEECH) for _ in range(3)]
    assert middles(sent)[1:] == [4_316] * 2
    sent = [mixing.mix(SILENCE) for _ in range(60)]
    assert middles(sent)[:19] == [316] * 19  # a pause between words
    assert middles(sent)[-1] == 1_000
    assert np.abs(np.diff(samples(sent))).max() <= 2


def test_the_thinking_sound_is_heard_from_some_silence_with_a_program_to_the_first_word() -> None:
    mixing = mixer(thinking=constant(1_000))
    assert middles([mixing.mix(SILENCE) for _ in range(30)]) == [0] * 30  # nobody is attached
    mixing.set_awaited(Awaited.PROGRAM)
    sent = middles([mixing.mix(SILENCE) for _ in range(15)])
    assert (sent[:10], sent[11:]) == ([0] * 10, [1_000] * 4)
    word = samples([mixing.mix(SPEECH)])
    assert word[0] == pytest.approx(5_000, abs=10) and word[-1] == 4_000
    assert np.abs(np.diff(word)).max() <= 8  # it fades, within the packet
    assert middles([mixing.mix(SPEECH), mixing.mix(SILENCE)]) == [4_000, 0]


def test_the_fade_into_the_first_word_makes_no_click() -> None:
    """What the fade adds outside the band of the sound stays below -50 dBFS, however the two meet."""
    mixing = mixer(thinking=tone(500, 2.0))
    mixing.set_awaited(Awaited.PROGRAM)
    before = [mixing.mix(SILENCE) for _ in range(20)]
    quiet_word = np.tile(np.array([1, -1], "<i2"), PACKET // 2).tobytes()
    sent = samples(before[-10:] + [mixing.mix(quiet_word) for _ in range(10)])
    spectrum = np.abs(np.fft.rfft(sent * np.hanning(len(sent)))) * 4 / len(sent)
    beyond = spectrum[round(1_000 * len(sent) / RATE) : -8]
    assert 20 * np.log10(np.sqrt(np.sum(np.square(beyond))) / 32_768) < -50


def test_the_thinking_sound_is_not_heard_while_the_caller_speaks_or_after() -> None:
    mixing = mixer(thinking=constant(1_000))
    mixing.set_awaited(Awaited.PROGRAM)
    mixing.set_caller_speaks(True)
    assert middles([mixing.mix(SILENCE) for _ in range(30)]) == [0] * 30
    mixing.set_caller_speaks(False)
    sent = middles([mixing.mix(SILENCE) for _ in range(15)])
    assert (sent[:10], sent[11:]) == ([0] * 10, [1_000] * 4)
    mixing.set_caller_speaks(True)
    assert middles([mixing.mix(SILENCE) for _ in range(3)])[1:] == [0, 0]
    mixing.set_caller_speaks(False)
    mixing.set_awaited(Awaited.CALLER)
    assert middles([mixing.mix(SILENCE) for _ in range(30)]) == [0] * 30


def test_hold_music_is_heard_on_hold_and_between_words_during_a_transfer_instead_of_the_others() -> None:
    mixing = mixer(ambience=constant(100), thinking=constant(1_000), hold=constant(2_000))
    mixing.set_awaited(Awaited.PROGRAM)
    held = middles([mixing.mix(SILENCE, is_held=True) for _ in range(30)])
    assert held[2:] == [2_000] * 28
    mixing.set_awaited(Awaited.TRANSFER)
    assert middles([mixing.mix(SILENCE) for _ in range(30)]) == [2_000] * 30
    assert middles([mixing.mix(SPEECH) for _ in range(3)])[1:] == [4_000] * 2
    assert middles([mixing.mix(SILENCE) for _ in range(30)])[-1] == 2_000
    mixing.set_awaited(Awaited.PROGRAM)
    assert middles([mixing.mix(SILENCE) for _ in range(40)])[-1] == 1_100


def test_without_hold_music_a_call_on_hold_has_no_sound() -> None:
    mixing = mixer(ambience=constant(100), thinking=constant(1_000))
    mixing.set_awaited(Awaited.PROGRAM)
    assert middles([mixing.mix(SILENCE, is_held=True) for _ in range(30)]) == [0] * 30


def test_a_sum_that_is_too_loud_is_limited() -> None:
    mixing = mixer(thinking=constant(30_000), ambience=constant(30_000))
    mixing.set_awaited(Awaited.PROGRAM)
    assert middles([mixing.mix(SILENCE) for _ in range(40)])[-1] == 32_767


def peer_commands(playout: PeerPlayout, seconds: float, start: float = 0.0) -> list[PeerCommand]:
    return [each for tick in range(round(50 * seconds)) for each in playout.due(start + tick / 50)]


def test_a_peer_that_paces_itself_gets_the_sounds_in_silence_which_it_drops_for_the_first_word() -> None:
    mixing = mixer(thinking=constant(1_000))
    playout = PeerPlayout(sample_rate=RATE, background=mixing)
    mixing.set_awaited(Awaited.PROGRAM)
    filled = [each for each in peer_commands(playout, 1.0) if isinstance(each, PeerMedia)]
    assert 8_000 <= sum(len(each.pcm) // 2 for each in filled) <= 9_600
    assert samples([filled[-1].pcm])[-1] == 1_000
    playout.push(chunk(speech(200)))
    clear, media, *_ = playout.due(1.0)
    assert clear == PeerClear()
    assert isinstance(media, PeerMedia)
    word = samples([media.pcm])
    assert word[0] == pytest.approx(1_000, abs=20)  # it goes on, and fades under the word
    assert word[160] == pytest.approx(160 * 3, abs=20)


def test_a_clear_of_the_queue_of_a_peer_takes_the_sounds_back_to_what_was_heard() -> None:
    ramp = np.arange(24_000, dtype="<i2")  # of a second: three of a sample at 8 kHz
    mixing = mixer(ambience=ramp.tobytes())
    playout = PeerPlayout(sample_rate=RATE, background=mixing)
    playout.push(chunk(bytes(48_000)))
    sent = [each.pcm for each in playout.due(0.0) if isinstance(each, PeerMedia)]
    playout.discard(0.3)
    after = next(each for each in playout.due(0.3) if isinstance(each, PeerMedia))
    assert len(b"".join(sent)) >= 1.8 * RATE
    assert samples([after.pcm])[0] == pytest.approx(make_loop(ramp.tobytes(), RATE)[2_400], abs=10)


def test_packets_may_be_longer_than_a_loop_and_dropped_ones_are_heard_again() -> None:
    ramp = np.arange(12_000, dtype="<i2")  # of 0.5 s
    mixing = mixer(ambience=ramp.tobytes())
    mixing.mix(bytes(2 * RATE))  # of 1 s
    first = mixing.mix(bytes(2 * RATE))
    mixing.rewind(RATE)
    assert mixing.mix(bytes(2 * RATE)) == first
    assert len(first) == 2 * RATE


class _Changes:
    """Detects speech in audio that begins with a byte over 0, and its end in other audio."""

    def push(self, pcm: bytes, sample_rate: int) -> Sequence[ActivityChange]:
        return [SimpleNamespace(speaking=pcm[0] > 0)]


def test_speech_of_the_caller_that_is_detected_ends_the_thinking_sound_and_the_recording_has_both() -> None:
    now = 0.0
    sent: list[bytes] = []
    recorded: list[bytes] = []
    playout = Playout(start=0.0, sample_rate=RATE, background=mixer(thinking=constant(1_000)))
    media = PacedMedia(playout, sent.append, now=lambda: now, detector=_Changes())
    media.set_listener(
        SimpleNamespace(  # type: ignore[arg-type]
            on_caller_speech=lambda speaking: None,
            on_report=lambda report: None,
            on_recorded=lambda audio: recorded.append(audio.pcm) if not audio.from_caller else None,
        )
    )
    media.set_caller_audio(CallerAudioOptions(detects_speech=True))
    media.set_recording(True)
    media.set_awaited(Awaited.PROGRAM)
    for number in range(40):
        now = number * 0.02 + 0.001
        if number in (20, 30):
            media.receive_audio(bytes([number == 20, 0]), RATE)
        media.tick(now)
    heard = middles(sent)
    assert heard[:10] + heard[22:40] == [0] * 28
    assert heard[12:20] == [1_000] * 8
    assert recorded == sent
