"""Phoneme times of the packaged voice: what the sounds are, and that they are where they are heard."""

import asyncio
from itertools import pairwise
from typing import Any

from shared.audio.sounds_in_place import TEXT, check_sounds_in_place, words_of
from vivavoce.tts_engine.chunk import AudioChunk
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
