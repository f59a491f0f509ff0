"""Prosody of a part of a text as the packaged voice says it: speed, pitch, range; and volume of any voice."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from statistics import median

import numpy as np
import pytest

from benches.voices.packaged_voice import Rendering, render, segments_of
from shared.engine.standin_backend import StandInBackend
from vivavoce.adapters.ssml.input import parse_ssml, push_document
from vivavoce.adapters.ssml.markups.ssml.prosody import emphasis
from vivavoce.tts_engine.chunk import AudioChunk
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.hibari.backend import HibariBackend
from vivavoce.tts_engine.reading.prosody import NEUTRAL_PROSODY, Prosody

VOICED_HZ = 60.0


@pytest.fixture(scope="module")
def backend() -> Iterator[HibariBackend]:
    backend = HibariBackend.load()
    yield backend
    backend.close()


def rendered(backend: HibariBackend, prosody: Prosody) -> Rendering:
    (segment,) = segments_of("The parcel arrived yesterday evening.")
    return render(backend, [replace(segment, prosody=prosody)])


def pitch(rendering: Rendering) -> tuple[float, float]:
    """The median in semitones, and the standard deviation."""
    (line,) = rendering.lines
    semitones = 12 * np.log2(line.f0[line.f0 > VOICED_HZ])
    return float(np.median(semitones)), float(np.std(semitones))


@pytest.mark.parametrize("semitones", [-4, -2, 2, 4])
def test_the_pitch_of_a_part_is_higher_by_its_factor(backend: HibariBackend, semitones: int) -> None:
    usual, _ = pitch(rendered(backend, NEUTRAL_PROSODY))
    moved, _ = pitch(rendered(backend, Prosody(pitch=2 ** (semitones / 12))))
    assert moved - usual == pytest.approx(semitones, abs=0.1)


def test_no_pitch_is_moved_by_more_than_seven_semitones(backend: HibariBackend) -> None:
    usual, _ = pitch(rendered(backend, NEUTRAL_PROSODY))
    for factor, sign in ((0.0, -1), (50.0, 1)):
        moved, _ = pitch(rendered(backend, Prosody(pitch=factor)))
        assert sign * (moved - usual) == pytest.approx(7.02, abs=0.1)


def test_a_range_makes_the_pitch_move_more_or_less(backend: HibariBackend) -> None:
    deviations = [pitch(rendered(backend, Prosody(range=factor)))[1] for factor in (0.0, 0.7, 1.0, 1.3)]
    assert deviations == sorted(deviations) and deviations[-1] > 1.2 * deviations[1]


@pytest.mark.parametrize("level", ["strong", "moderate"])
def test_emphasis_is_longer_and_higher_and_reduced_is_neither(backend: HibariBackend, level: str) -> None:
    usual, strong, reduced = (
        rendered(backend, said) for said in (NEUTRAL_PROSODY, emphasis(level), emphasis("reduced"))
    )
    assert len(strong.samples) > 1.05 * len(usual.samples) and len(reduced.samples) < 0.95 * len(
        usual.samples
    )
    assert pitch(strong)[0] > pitch(usual)[0] + 0.4 and pitch(reduced)[0] < pitch(usual)[0]
    assert pitch(strong)[1] > 1.05 * pitch(usual)[1] > 1.1 * pitch(reduced)[1]


def levels(chunks: list[AudioChunk]) -> list[float]:
    """The level of each chunk that has words."""
    return [
        float(np.sqrt(np.mean(np.frombuffer(chunk.pcm, "<i2").astype(float) ** 2)))
        for chunk in chunks
        if chunk.words
    ]


def test_a_volume_is_that_of_its_part_with_any_voice() -> None:
    async def speak(ssml: str) -> list[AudioChunk]:
        async with await Engine.open(backend=StandInBackend()) as engine, engine.stream() as stream:
            push_document(stream, parse_ssml(ssml))
            stream.end_input()
            return [chunk async for chunk in stream]

    chunks = asyncio.run(
        speak(
            '<speak>One two <prosody volume="-6dB">three four</prosody> five <emphasis>six</emphasis></speak>'
        )
    )
    one, two, three, four, five, six = levels(chunks)
    assert one == two == five == median((one, two, five))
    assert three / one == pytest.approx(0.501, abs=0.01) and four == three
    assert six / one == pytest.approx(1.22, abs=0.01)
    assert [word.text for chunk in chunks for word in chunk.words] == "One two three four five six".split()


def test_a_loud_part_stays_below_full_scale() -> None:
    async def speak() -> list[AudioChunk]:
        async with await Engine.open(backend=StandInBackend()) as engine, engine.stream() as stream:
            stream.set_prosody(Prosody(volume=1e9))
            stream.push_text("One.")
            stream.end_input()
            return [chunk async for chunk in stream]

    loudest = max(int(np.abs(np.frombuffer(chunk.pcm, "<i2")).max()) for chunk in asyncio.run(speak()))
    assert 32_000 < loudest <= 32_767
