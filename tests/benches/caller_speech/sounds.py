"""Sounds on a telephone line that are no caller's speech: noise, an office, breath, clicks, tones, music."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from benches.caller_speech.callers import LINE_NOISE_DBFS, RATE, Samples, noise

_TONES_HZ: Final = (
    (425,),
    (440, 480),
    (480, 620),
    (697, 1_209),
    (770, 1_336),
    (941, 1_477),
    (1_000,),
    (2_100,),
)
_SCALE: Final = (0, 2, 4, 5, 7, 9, 11, 12)  # semitones


def sounds(
    seconds: float, talkers: Sequence[Samples], numbers: np.random.Generator
) -> Mapping[str, list[Samples]]:
    """Each kind of sound at some levels; ``talkers`` are the voices of an office."""
    maker = _SoundMaker(round(seconds * RATE), numbers)
    return {
        "silence": [np.zeros(maker.samples)],
        "line noise": [maker.white(dbfs) for dbfs in (-60, -50, -45, -40, -30)],
        "coloured noise": [maker.coloured(slope, dbfs) for slope in (0.5, 1.0) for dbfs in (-45, -35, -25)],
        "office": [maker.office(talkers, dbfs) for dbfs in (-55, -50, -45, -40)],
        "keyboard": [maker.on_line(maker.keyboard(dbfs)) for dbfs in (-35, -25, -15)],
        "breath": [maker.on_line(maker.breath(dbfs)) for dbfs in (-45, -38, -30)],
        "clicks": [maker.on_line(maker.clicks(dbfs)) for dbfs in (-35, -25, -15)],
        "coughs": [maker.on_line(maker.coughs(dbfs)) for dbfs in (-35, -25, -18)],
        "tones": [maker.on_line(maker.tones(dbfs)) for dbfs in (-30, -18, -10)],
        "music on hold": [
            maker.on_line(maker.music(decay, vibrato, dbfs))
            for decay, vibrato in ((3.0, 0.0), (0.5, 0.006), (0.5, 0.0))
            for dbfs in (-40, -30, -22)
        ],
    }


def office(samples: int, talkers: Sequence[Samples], dbfs: float, numbers: np.random.Generator) -> Samples:
    """An office that a caller sits in."""
    return _SoundMaker(samples, numbers).office(talkers, dbfs)


class _SoundMaker:
    """Makes sounds of one length.

    Args:
        samples: of each sound, at 8 kHz.
        numbers: draws what varies.
    """

    def __init__(self, samples: int, numbers: np.random.Generator) -> None:
        self.samples = samples
        self._draw = numbers

    def white(self, dbfs: float) -> Samples:
        return noise(self.samples, dbfs, self._draw)

    def on_line(self, sound: Samples) -> Samples:
        """With the noise of a line."""
        return sound + self.white(LINE_NOISE_DBFS)

    def coloured(self, slope: float, dbfs: float) -> Samples:
        """Noise whose amplitude falls with the frequency to that power."""
        spectrum = np.fft.rfft(self._draw.normal(size=self.samples))
        spectrum /= np.maximum(np.fft.rfftfreq(self.samples, 1 / RATE), 30) ** slope
        return _at(np.fft.irfft(spectrum, self.samples), dbfs)

    def office(self, talkers: Sequence[Samples], dbfs: float) -> Samples:
        """Eight talkers in a room with a long tail, the air, and keys 12 dB above."""
        babble = np.zeros(self.samples)
        for _ in range(8):
            at = 0
            while at < self.samples:
                talker = talkers[int(self._draw.integers(len(talkers)))][: self.samples - at]
                babble[at : at + len(talker)] += talker
                at += len(talker) + int(self._draw.uniform(0, 0.4) * RATE)
        room = self._draw.normal(size=2_400) * np.exp(-np.arange(2_400) / 700)
        babble = np.convolve(babble, room)[: self.samples]
        return _at(_at(babble, 0) + self.coloured(0.5, -3), dbfs) + self.keyboard(dbfs + 12)

    def keyboard(self, peak_dbfs: float) -> Samples:
        keys = np.zeros(self.samples)
        for at in self._moments(0.07, 0.5, 160):
            tail = np.exp(-np.arange(160) / self._draw.uniform(8, 40))
            keys[at : at + 160] += self._draw.normal(size=160) * tail * self._draw.uniform(0.3, 1)
        return _band(keys, 300, 3_400) * 10 ** (peak_dbfs / 20)

    def breath(self, dbfs: float) -> Samples:
        breath = np.zeros(self.samples)
        for at in self._moments(1.0, 2.5, 7_200):
            length = int(self._draw.uniform(0.3, 0.9) * RATE)
            air = _band(
                self._draw.normal(size=length), self._draw.uniform(250, 800), self._draw.uniform(1_800, 3_400)
            )
            breath[at : at + length] += (
                1.6 * _at(air, dbfs) * np.hanning(length) ** self._draw.uniform(0.4, 1.5)
            )
        return breath

    def clicks(self, dbfs: float) -> Samples:
        """Clicks and knocks of 0.5 to 50 ms, half of them ringing."""
        clicks = np.zeros(self.samples)
        for at in self._moments(0.2, 1.2, 400):
            length = int(self._draw.uniform(4, 400))
            ringing = np.sin(2 * np.pi * self._draw.uniform(200, 3_000) * np.arange(length) / RATE)
            body = ringing if self._draw.random() < 0.5 else self._draw.normal(size=length)
            clicks[at : at + length] += body * np.exp(-4 * np.arange(length) / length)
        return clicks * 10 ** ((dbfs + 10) / 20)

    def coughs(self, dbfs: float) -> Samples:
        """Bursts of breath without a voice in them."""
        coughs = np.zeros(self.samples)
        for at in self._moments(0.4, 1.8, 2_800):
            length = int(self._draw.uniform(0.12, 0.35) * RATE)
            air = _band(self._draw.normal(size=length), 300, 2_500)
            air *= np.exp(-np.arange(length) / RATE * self._draw.uniform(8, 20))
            coughs[at : at + length] += _at(air, dbfs)
        return coughs

    def tones(self, dbfs: float) -> Samples:
        """Keys, ringing and busy tones, beeps."""
        tones = np.zeros(self.samples)
        for at in self._moments(1.1, 2.0, 8_000):
            time_s = np.arange(round(self._draw.choice([0.1, 0.25, 1.0]) * RATE)) / RATE
            pair = _TONES_HZ[self._draw.integers(len(_TONES_HZ))]
            tones[at : at + len(time_s)] += sum(np.sin(2 * np.pi * each * time_s) for each in pair) / len(
                pair
            )
        return tones * 10 ** (dbfs / 20)

    def music(self, decay: float, vibrato: float, dbfs: float) -> Samples:
        """Chords with eight harmonics, or a lead that sings if it has vibrato, and a drum."""
        music = np.zeros(self.samples)
        for at in self._moments(0.25, 0.5, 8_000):
            root = self._draw.choice(_SCALE)
            time_s = np.arange(int(self._draw.choice([0.25, 0.5, 1.0]) * RATE)) / RATE
            envelope = np.exp(-decay * time_s) * np.minimum(1, time_s / 0.01)
            for semitones in (root + 12,) if vibrato else (root, root + 4, root + 7):
                pitch = 220 * 2 ** (semitones / 12) * (1 + vibrato * np.sin(2 * np.pi * 5.5 * time_s))
                phase = 2 * np.pi * np.cumsum(pitch) / RATE
                harmonics = sum(np.sin(n * phase + self._draw.uniform(0, 6)) / n for n in range(1, 9))
                music[at : at + len(time_s)] += envelope * harmonics
            music[at : at + 1_200] += self._draw.normal(size=1_200) * np.exp(-np.arange(1_200) / 250)
        return _at(_band(music, 200, 3_500), dbfs)

    def _moments(self, shortest_s: float, longest_s: float, room: int) -> Iterator[int]:
        """Samples at which sounds of at most ``room`` samples begin."""
        at = int(0.3 * RATE)
        while at < self.samples - room:
            yield at
            at += int(self._draw.uniform(shortest_s, longest_s) * RATE)


def _at(sound: Samples, dbfs: float) -> Samples:
    scaled: Samples = sound / np.sqrt(np.mean(sound**2)) * 10 ** (dbfs / 20)
    return scaled


def _band(sound: Samples, low_hz: float, high_hz: float) -> Samples:
    spectrum = np.fft.rfft(sound)
    frequencies = np.fft.rfftfreq(len(sound), 1 / RATE)
    spectrum[(frequencies < low_hz) | (frequencies > high_hz)] = 0
    filtered: Samples = np.fft.irfft(spectrum, len(sound))
    return filtered
