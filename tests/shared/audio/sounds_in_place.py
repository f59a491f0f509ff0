"""Whether hisses and vowels are heard at the times of their phonemes."""

import numpy as np

from vivavoce.tts_engine.chunk import SAMPLE_RATE, AudioChunk, Word

TEXT = "She sells sea shells, and the shells she sells are sea shells. So she says on Sunday, July 16th."
HISSES = ("s", "ʃ", "z", "tʃ", "ʒ", "dʒ")
VOWELS = ("i", "ɛ", "ɑ", "ʌ", "oʊ", "aɪ", "ɪ", "æ", "eɪ", "u", "ʊ", "ə", "ɔ", "aʊ", "iː", "uː", "ɔː", "ɑː")
WINDOW = 240  # samples, 10 ms


def words_of(chunks: list[AudioChunk]) -> list[Word]:
    """The words of all chunks."""
    return [word for chunk in chunks for word in chunk.words]


def share_heard_in_place(chunks: list[AudioChunk], later_s: float = 0.0) -> float:
    """Of the loud windows of 10 ms in hisses and vowels, the share that sounds as its phoneme should.

    later_s: by which the sound is taken to be later than it is.
    """
    samples = np.frombuffer(b"".join(chunk.pcm for chunk in chunks), "<i2").astype(np.float64)
    windows = samples[: len(samples) // WINDOW * WINDOW].reshape(-1, WINDOW) * np.hanning(WINDOW)
    power = np.abs(np.fft.rfft(windows, axis=1)) ** 2
    high = power[:, np.fft.rfftfreq(WINDOW, 1 / SAMPLE_RATE) > 3_000].sum(axis=1)
    is_loud, is_hiss = power.sum(axis=1) > 1e7, high > 0.5 * power.sum(axis=1)
    hits = []
    for phoneme in (phoneme for word in words_of(chunks) for phoneme in word.phonemes):
        if phoneme.ipa not in (*HISSES, *VOWELS):
            continue
        first, stop = (
            int((time - later_s) * SAMPLE_RATE / WINDOW) for time in (phoneme.start_s, phoneme.stop_s)
        )
        place = slice(max(0, first), max(0, stop))
        hits += list(is_hiss[place][is_loud[place]] == (phoneme.ipa in HISSES))
    assert len(hits) > 100
    return float(np.mean(hits))


def check_sounds_in_place(chunks: list[AudioChunk], least: float) -> None:
    """Assert that more than this share is heard in place, and less of it if times are 40 ms off."""
    in_place = share_heard_in_place(chunks)
    assert in_place > least
    assert in_place > max(share_heard_in_place(chunks, later_s) for later_s in (-0.04, 0.04))
