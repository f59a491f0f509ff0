"""Phoneme times of the packaged voice: what the sounds are, and that they are where they are heard."""

import asyncio
from itertools import pairwise
from typing import Any

import numpy as np

from shared.audio.sounds_in_place import TEXT, check_sounds_in_place, words_of
from vivavoce.adapters.subtitles import make_cues
from vivavoce.tts_engine.chunk import SAMPLE_RATE, AudioChunk
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.hibari.backend import HibariBackend


async def speak(engine: Engine, text: str, split: int = 1_000, **how: Any) -> list[AudioChunk]:
    async with engine.stream(**how) as stream:
        for start in range(0, len(text), split):
            stream.push_text(text[start : start + split])
        stream.end_input()
        return [chunk async for chunk in stream]


def spoken(*texts: tuple[str, dict[str, Any]]) -> list[list[AudioChunk]]:
    async def run() -> list[list[AudioChunk]]:
        async with await Engine.open(backend=HibariBackend.load()) as engine:
            return [await speak(engine, text, **how) for text, how in texts]

    return asyncio.run(asyncio.wait_for(run(), 60))


def test_hisses_are_heard_in_the_times_of_their_phonemes_and_vowels_in_theirs() -> None:
    for chunks in spoken(*((TEXT, {"speed": speed}) for speed in (0.7, 1.0, 1.6))):
        check_sounds_in_place(chunks, 0.8)


def test_phonemes_are_those_of_the_words_and_lie_in_them_in_order() -> None:
    whole, split = spoken((TEXT, {}), (TEXT, {"split": 3}))
    assert words_of(whole) == words_of(split)
    sounds = {word.text: [phoneme.ipa for phoneme in word.phonemes] for word in words_of(whole)}
    assert sounds["sea"] == ["s", "i"]
    assert sounds["shells"] == ["ʃ", "ɛ", "l", "z"]
    assert sounds["July"][-2:] == ["l", "aɪ"]
    assert len(sounds["16th"]) >= 7  # one word as written, of which several sounds are spoken
    for word in words_of(whole):
        times = [time for phoneme in word.phonemes for time in (phoneme.start_s, phoneme.stop_s)]
        assert times == sorted(times) and (times[0], times[-1]) == (word.start_s, word.stop_s)
        assert all(earlier.stop_s == later.start_s for earlier, later in pairwise(word.phonemes)) or (
            word.text == "16th"
        )


def test_subtitles_of_minutes_begin_and_end_with_what_is_heard() -> None:
    text = " ".join(
        f"Room {number} is free at {number % 12 + 1} o'clock. Please come in." for number in range(60)
    )
    (chunks,) = spoken((text, {}))
    pcm = np.frombuffer(b"".join(chunk.pcm for chunk in chunks), "<i2").astype(float) / 32_768
    assert len(pcm) > 150 * SAMPLE_RATE
    window = SAMPLE_RATE // 500  # 2 ms
    level = np.sqrt(np.square(pcm[: len(pcm) // window * window].reshape(-1, window)).mean(1))
    loud = level > 10 ** (-37 / 20) * np.percentile(level, 90)
    cues = make_cues(text, words_of(chunks))
    assert " ".join(cue.text for cue in cues) == text
    for cue, after in pairwise(cues):  # each ends with a sentence, before a pause
        begin, stop = (
            round((time_s + add) * 500) for time_s, add in ((cue.stop_s, -0.12), (after.start_s, 0.06))
        )
        places = begin + np.flatnonzero(loud[begin:stop])
        gap = int(np.argmax(np.diff(places)))
        heard_stop_s, heard_start_s = (places[gap] + 1) / 500, places[gap + 1] / 500
        assert abs(heard_start_s - after.start_s) <= 0.05
        assert abs(heard_stop_s - cue.stop_s) <= 0.08
