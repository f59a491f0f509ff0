"""Cloning scenarios: speech with the voice of a recording, which the server has as a voice or gets each time.

    fast            at most 10 characters, a recording of at most 5 s
    cross-lingual   Chinese and English mixed, an English recording
    natural         a long Chinese text, a Chinese recording

Without a recording of the user, the packaged voice speaks one in English; for ``natural`` it gets a Chinese
transcript, which is what the first packet depends on. A recording of the user has its own transcript in every
scenario. Requests go over the OpenAI API.
"""

import asyncio
import io
import time
import wave
from base64 import b64encode
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol

import httpx
import numpy as np
import soxr
from numpy.typing import NDArray

from .....tts_engine.chunk import SAMPLE_RATE
from .....tts_engine.voices.recording import read_recording, read_sound_file
from ..report import BenchFailed, BenchFigure
from ..trace import percentile

MAX_REFERENCE_S: Final = 5.0
_MAX_NOISE: Final = 8  # s16, -72 dBFS
MIN_SAVED_PERCENT: Final = 40.0  # of the first packet, by a voice that the server has
_TIMEOUT_S: Final = 600.0
_SPOKEN: Final = "The boats came in before the sun was up."  # by the packaged voice, as the recording
_NAMES: Final = {True: "cached voice", False: "recording sent"}


class CloningScenario(StrEnum):
    """What is spoken, and by whom."""

    FAST = "fast"
    CROSS_LINGUAL = "cross-lingual"
    NATURAL = "natural"


# Text and transcript of the recording.
SCENARIO_TEXTS: Final = {
    CloningScenario.FAST: ("你好，很高兴见到你。", _SPOKEN),
    CloningScenario.CROSS_LINGUAL: ("今天的 meeting 改到下午三点，请把 final report 发给 Anna。", _SPOKEN),
    CloningScenario.NATURAL: (
        "清晨的港口还在沉睡，第一批渔船已经回来了。没有人说话，只有海水的声音，远处的钟响了两下。"
        "老人把灯提在手里，慢慢走上台阶，写下这一天的第一行字。",
        "太阳还没有升起，渔船就回来了。",
    ),
}
# Where the target applies: a request that is short, and one that is usual.
_TARGETS: Final = (CloningScenario.FAST, CloningScenario.NATURAL)


@dataclass(frozen=True, slots=True)
class Reference:
    """A recording to speak like. samples: s16le of one channel at 24 kHz. name: for the report."""

    samples: NDArray[np.int16]
    transcript: str | None = None  # None: that of the scenario
    name: str = "of the packaged voice, English"

    def wav(self, number: int) -> bytes:
        """A sound file with noise of its own, so that no cache has the voice of another number."""
        draw = np.random.default_rng(number)
        noise = draw.integers(-_MAX_NOISE, _MAX_NOISE, self.samples.shape, endpoint=True)
        samples = (self.samples + noise).clip(-32_768, 32_767).astype("<i2")
        content = io.BytesIO()
        with wave.open(content, "wb") as file:
            file.setparams((1, 2, SAMPLE_RATE, 0, "NONE", ""))
            file.writeframes(samples.tobytes())
        return content.getvalue()


@dataclass(frozen=True, slots=True)
class ScenarioLoad:
    """How often each scenario is asked for."""

    requests: int  # of each measurement
    concurrency: int  # the most requests at once; powers of two before it are measured too

    @property
    def levels(self) -> tuple[int, ...]:
        """Requests at once, of each measurement."""
        powers = (2**power for power in range(self.concurrency.bit_length()))
        return tuple(sorted({*powers, self.concurrency} & set(range(1, self.concurrency + 1))))


@dataclass(frozen=True, slots=True)
class ScenarioAnswer:
    """The times of one request, in seconds."""

    first_packet_s: float
    took_s: float
    audio_s: float


class ScenarioSpeaker(Protocol):
    """Sends the text of a scenario to one server."""

    async def speak(self, is_cached: bool) -> ScenarioAnswer:
        """Speak the text once, with the voice that the server has or with a recording. Raises BenchFailed."""


async def packaged_reference() -> Reference:
    """What the packaged voice says as the recording."""
    from .....tts_engine.engine import Engine

    engine = await Engine.open("default")
    try:
        async with engine.stream() as stream:
            stream.push_text(_SPOKEN)
            stream.end_input()
            pcm = b"".join([chunk.pcm async for chunk in stream])
    finally:
        await engine.aclose()
    samples = np.frombuffer(pcm, "<i2").astype(np.int16)
    shortest = np.zeros(max(0, 3 * SAMPLE_RATE - len(samples) + 1), np.int16)  # the server takes from 3 s on
    return Reference(np.concatenate([samples, shortest])[: round(MAX_REFERENCE_S * SAMPLE_RATE)])


def recorded_reference(file: Path, transcript: str) -> Reference:
    """A recording of the user. Raises BadRequest for a file that cannot be read or is no such recording."""
    recording = read_recording(read_sound_file(file))
    samples = soxr.resample(recording.samples, recording.sample_rate, SAMPLE_RATE)
    return Reference((samples.clip(-1, 1) * 32_767).astype(np.int16), transcript, file.name)


async def scenario_figures(
    url: str, scenario: CloningScenario, reference: Reference, load: ScenarioLoad
) -> list[BenchFigure]:
    """First packet and real-time factor at each concurrency. Raises BenchFailed for a refused request."""
    async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S) as client:
        speaker = _Speaker(client, scenario, reference)
        await speaker.enroll()
        medians: dict[bool, float] = {}
        figures: list[BenchFigure] = []
        for is_cached in (True, False):
            found, medians[is_cached] = await figures_of_levels(speaker, scenario, is_cached, load)
            figures += found
        saved = 100 * (1 - medians[True] / medians[False])
        target = MIN_SAVED_PERCENT if scenario in _TARGETS else None
        name = f"{scenario}: first packet saved by a cached voice"
        figures.append(BenchFigure(name, saved, "%", at_least=target))
        await speaker.delete()
    return figures


class _Speaker:
    def __init__(self, client: httpx.AsyncClient, scenario: CloningScenario, reference: Reference) -> None:
        self._client, self._reference = client, reference
        self._text, transcript = SCENARIO_TEXTS[scenario]
        self._transcript = reference.transcript or transcript
        self._sent = 0
        self._voice = ""

    async def enroll(self) -> None:
        answer = await self._client.post(
            "/v1/audio/voices",
            data={
                "name": "bench",
                "ref_text": self._transcript,
                "consent": f"For a measurement: {self._reference.name}.",
            },
            files={"audio_sample": ("bench.wav", self._reference.wav(0), "audio/wav")},
        )
        _require_ok(answer.status_code, answer.text)
        self._voice = answer.json()["id"]

    async def delete(self) -> None:
        await self._client.delete(f"/v1/audio/voices/{self._voice}")

    async def speak(self, is_cached: bool) -> ScenarioAnswer:
        body: dict[str, Any] = {"input": self._text, "response_format": "pcm"}
        if is_cached:
            body["voice"] = self._voice
        else:
            self._sent += 1
            sound = b64encode(self._reference.wav(self._sent)).decode()
            body |= {"ref_audio": f"data:audio/wav;base64,{sound}", "ref_text": self._transcript}
        return await receive_speech(self._client.stream("POST", "/v1/audio/speech", json=body))


def _require_ok(status: int, text: str) -> None:
    if status != 200:
        raise BenchFailed(f"the server answered {status}: {text[:300]}")


async def figures_of_levels(
    speaker: ScenarioSpeaker, scenario: CloningScenario, is_cached: bool, load: ScenarioLoad
) -> tuple[list[BenchFigure], float]:
    """The figures at each concurrency, and the median of the first packet at the lowest one, s."""
    await speaker.speak(is_cached)  # what is made at the first request is not measured
    figures: list[BenchFigure] = []
    medians = []
    for level in load.levels:
        answers = await _ask(speaker, is_cached, load.requests, level)
        figures += _figures(f"{scenario}, {_NAMES[is_cached]}, {level} at once", answers)
        medians.append(percentile([one.first_packet_s for one in answers], 50))
    return figures, medians[0]


async def receive_speech(request: AbstractAsyncContextManager[httpx.Response]) -> ScenarioAnswer:
    """Receive s16le at 24 kHz to its end. Raises BenchFailed for a refusal."""
    asked_at, first_at, received = time.monotonic(), None, 0
    async with request as answer:
        if answer.status_code != 200:
            _require_ok(answer.status_code, (await answer.aread()).decode())
        async for piece in answer.aiter_bytes():
            first_at = first_at or time.monotonic()
            received += len(piece)
    if first_at is None:
        raise BenchFailed("the server sent no audio")
    return ScenarioAnswer(first_at - asked_at, time.monotonic() - asked_at, received / 2 / SAMPLE_RATE)


async def _ask(
    speaker: ScenarioSpeaker, is_cached: bool, requests: int, at_once: int
) -> list[ScenarioAnswer]:
    places = asyncio.Semaphore(at_once)

    async def one() -> ScenarioAnswer:
        async with places:
            return await speaker.speak(is_cached)

    return await asyncio.gather(*(one() for _ in range(max(requests, at_once))))


def _figures(name: str, answers: Sequence[ScenarioAnswer]) -> list[BenchFigure]:
    firsts = [1_000 * one.first_packet_s for one in answers]
    factor = percentile([one.took_s / one.audio_s for one in answers], 50)
    audio_s = percentile([one.audio_s for one in answers], 50)
    waits = [
        BenchFigure(f"{name}: first packet, p{percent}", percentile(firsts, percent), "ms")
        for percent in (50, 95)
    ]
    return [
        *waits,
        BenchFigure(f"{name}: real-time factor, p50", factor, ""),
        BenchFigure(f"{name}: audio of a request, p50", audio_s, "s"),
    ]
