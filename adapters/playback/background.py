"""Sounds under the speech of a call: ambience, a thinking sound, hold music.

    speech       |  #####   ###              ####
    ambience     |~~-----~~~---~~~~~~~~~~~~~~----~~    lower while there is speech
    thinking     |              .  t t t t t            from N ms of silence to the first word

They are loops, mixed into the packets of a playout. A packet of speech is sent when it is due, and the sounds
fade within it. No clock and no file: samples in, samples out.

Source: ITU-T P.800, annex B (Hoth noise, of comfort noise); G.100.1 (dBm0).
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...tts_engine.chunk import SAMPLE_RATE
from ..audio.resample import resampler_to

Samples = NDArray[np.int16]

CALL_RATES: Final = (8_000, 16_000, 24_000)  # Hz, at which calls are
_DUCKED: Final = 10 ** (-10 / 20)  # ambience under speech
_DUCKED_S: Final = 0.4  # after the last speech; else it would rise between words
_DUCK_S: Final = 0.02  # from full level to silence
_RISE_S: Final = 0.5  # and back
_FADE_S: Final = 0.02  # of the other sounds, to silence and back
JOINT_S: Final = 0.05  # over which the end of a loop fades into its beginning
MIN_LOOP_S: Final = 2 * JOINT_S
# Comfort noise
_NOISE_S: Final = 10  # then it repeats
_NOISE_HZ: Final = (100.0, 3_400.0)  # the same level on a telephone as in a browser
_NOISE_SLOPE: Final = -5 / 20 / np.log10(2)  # exponent of the amplitude: -5 dB an octave, as a room (Hoth)
_NOISE_SEED: Final = 3389  # the same noise in every process
_FULL_SCALE_DBM0: Final = 3.14  # of a sine whose peak is 32,768, ITU-T G.711 (A-law)


class Awaited(Enum):
    """Cause of a silence on a call."""

    CALLER = "caller"  # or nobody: no sound is needed
    PROGRAM = "program"  # that is attached
    TRANSFER = "transfer"  # that is under way


@dataclass(frozen=True, slots=True)
class BackgroundSounds:
    """The sounds of a server's calls: s16le mono at 24 kHz, at the level at which they are heard.

    A sound of less than ``MIN_LOOP_S``, such as b"", is none.
    """

    ambience: bytes = b""
    thinking: bytes = b""
    thinking_after_s: float = 1.0  # of silence
    hold: bytes = b""


def comfort_noise(level_dbm0: float) -> bytes:
    """Return a quiet noise as a sound of ``BackgroundSounds``, so that a silent line does not seem dead.

    level_dbm0: of its mean power. For the root of the mean square relative to 32,768, dBFS, subtract 6.15.
    """
    count = _NOISE_S * SAMPLE_RATE
    frequencies = np.fft.rfftfreq(count, 1 / SAMPLE_RATE)
    inside = (frequencies >= _NOISE_HZ[0]) & (frequencies <= _NOISE_HZ[1])
    amplitudes = np.zeros(len(frequencies))
    amplitudes[inside] = frequencies[inside] ** _NOISE_SLOPE
    phases = np.random.default_rng(_NOISE_SEED).uniform(0, 2 * np.pi, len(frequencies))
    noise = np.fft.irfft(amplitudes * np.exp(1j * phases), count)
    rms = 32_768 / np.sqrt(2) * 10 ** ((level_dbm0 - _FULL_SCALE_DBM0) / 20)
    samples = np.rint(noise * (rms / np.sqrt(np.mean(noise**2)))).astype("<i2")
    # Its beginning once more at its end, so that the joint of its loop joins what is equal.
    return np.concatenate([samples, samples[: round(JOINT_S * SAMPLE_RATE)]]).tobytes()


class BackgroundLoops:
    """The sounds at the rates of calls. The loops of all calls of a process are the same memory."""

    def __init__(self, sounds: BackgroundSounds) -> None:
        self.thinking_after_s = sounds.thinking_after_s
        self._sounds = sounds
        self._by_rate = {rate: self._at_rate(rate) for rate in CALL_RATES}

    def mixer(self, sample_rate: int) -> "BackgroundMixer | None":
        """Return what mixes the sounds into the packets of a call; None if there are no sounds."""
        if (loops := self._by_rate.get(sample_rate)) is None:
            loops = self._by_rate[sample_rate] = self._at_rate(sample_rate)
        return BackgroundMixer(loops, sample_rate, self.thinking_after_s) if any(map(len, loops)) else None

    def _at_rate(self, sample_rate: int) -> tuple[Samples, Samples, Samples]:
        sounds = self._sounds
        return (
            make_loop(sounds.ambience, sample_rate),
            make_loop(sounds.thinking, sample_rate),
            make_loop(sounds.hold, sample_rate),
        )


def make_loop(pcm: bytes, sample_rate: int) -> Samples:
    """Return a loop of s16le at 24 kHz at another rate, its end faded into its beginning; (0,) if short."""
    if len(pcm) < 2 * MIN_LOOP_S * SAMPLE_RATE:
        return np.zeros(0, np.int16)
    resampler = resampler_to(sample_rate)
    samples = np.frombuffer(resampler.push(pcm) + resampler.drain(), "<i2").astype(np.float64)
    joint = round(JOINT_S * sample_rate)
    rising = np.linspace(0, 1, joint)
    body, tail = samples[:-joint], samples[-joint:]
    body[:joint] = body[:joint] * rising + tail * rising[::-1]
    return np.rint(body).astype(np.int16)


class BackgroundMixer:
    """Mixes the loops into the packets of one call, in order. Not thread-safe.

    Args:
        loops: ambience, thinking sound and hold music at ``sample_rate``; an empty one is not heard.
        thinking_after_s: silence before the thinking sound.
    """

    def __init__(
        self, loops: tuple[Samples, Samples, Samples], sample_rate: int, thinking_after_s: float
    ) -> None:
        ambience, thinking, hold = loops
        self._ambience = _LoopPlayer(ambience, round(_DUCK_S * sample_rate), round(_RISE_S * sample_rate))
        fade = round(_FADE_S * sample_rate)
        self._thinking = _LoopPlayer(thinking, fade, fade)
        self._hold = _LoopPlayer(hold, fade, fade)
        self._ducked_samples = round(_DUCKED_S * sample_rate)
        self._thinking_after = round(thinking_after_s * sample_rate)
        self._ducked_left = 0  # samples until the ambience rises
        self._silent = 0  # samples since the last speech of either side, or since a program was attached
        self._awaited = Awaited.CALLER
        self._caller_speaks = False

    def set_awaited(self, awaited: Awaited) -> None:
        """Set the cause of the next silence; it is counted from now."""
        self._awaited = awaited
        self._silent = 0

    def set_caller_speaks(self, speaks: bool) -> None:
        """Take that the caller began or stopped to speak."""
        self._caller_speaks = speaks
        self._silent = 0

    def mix(self, packet: bytes, *, is_held: bool = False) -> bytes:
        """Return a packet, s16le of any length, with the sounds in it.

        is_held: the listener put the call on hold; only hold music may be heard.
        """
        count = len(packet) // 2
        has_speech = packet != bytes(len(packet))
        self._ducked_left = self._ducked_samples if has_speech else max(0, self._ducked_left - count)
        thinks = self._thinks and not (has_speech or is_held)
        self._silent = 0 if has_speech else self._silent + count
        plays_hold = self._hold.length > 0 and (is_held or self._awaited is Awaited.TRANSFER)
        ambience_gain = _DUCKED if self._ducked_left else 1.0
        sounds = (
            self._ambience.take(count, 0.0 if plays_hold or is_held else ambience_gain),
            self._thinking.take(count, float(thinks)),
            self._hold.take(count, float(plays_hold and not self._ducked_left)),
        )
        parts = [sound for sound in sounds if sound is not None]
        if has_speech and parts:
            parts.append(np.frombuffer(packet, "<i2"))
        return _sum(parts) if parts else packet

    def rewind(self, samples: int) -> None:
        """Take that the last ``samples`` were dropped before they were heard."""
        for player in (self._ambience, self._thinking, self._hold):
            player.rewind(samples)

    @property
    def _thinks(self) -> bool:
        return (
            self._awaited is Awaited.PROGRAM
            and not self._caller_speaks
            and self._silent >= self._thinking_after
        )


class _LoopPlayer:
    """The place in a loop, and how loud it is. falls, rises: samples from full level to silence, and back."""

    def __init__(self, loop: Samples, falls: int, rises: int) -> None:
        self.length = len(loop)
        self._loop = loop
        self._falls = falls
        self._rises = rises
        self._position = 0
        self._gain = 0.0

    def take(self, count: int, target: float) -> NDArray[np.int16] | NDArray[np.float32] | None:
        """Return the next ``count`` samples on the way to the gain ``target``; None for silence."""
        gain = self._gain
        if not self.length or not (gain or target):
            return None
        begin, stop = self._position, self._position + count
        self._position = stop % self.length
        if stop <= self.length:
            samples = self._loop[begin:stop]
        else:
            samples = self._loop.take(range(begin, stop), mode="wrap")
        if gain == target:
            return samples if gain == 1.0 else samples * np.float32(gain)
        steps = np.arange(1, count + 1, dtype=np.float32)
        if target < gain:
            gains = np.maximum(np.float32(gain) - steps / self._falls, np.float32(target))
        else:
            gains = np.minimum(np.float32(gain) + steps / self._rises, np.float32(target))
        self._gain = target if gains[-1] == np.float32(target) else float(gains[-1])
        return samples * gains

    def rewind(self, samples: int) -> None:
        if self._gain:
            self._position = (self._position - samples) % self.length


def _sum(parts: "list[NDArray[np.int16] | NDArray[np.float32]]") -> bytes:
    if len(parts) == 1 and parts[0].dtype == np.int16:
        return parts[0].tobytes()
    total = parts[0].astype(np.float32)
    for part in parts[1:]:
        total += part
    np.rint(total, out=total)
    np.minimum(total, 32_767, out=total)
    np.maximum(total, -32_768, out=total)
    return total.astype("<i2").tobytes()
