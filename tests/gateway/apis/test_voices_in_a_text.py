"""Several voices in one text: their order, one timeline of words, unknown names, keys, and their bounds."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared.audio.tones import pitch_of
from shared.engine.standin_backend import WORD_S, StandInBackend
from shared.event_loop import until
from vivavoce.gateway.access.access_control import AccessControl, Grant
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.apis.shell.speech import EncodedChunk, EncodedStream, SynthesisOptions
from vivavoce.gateway.voice_registry import VoiceRegistry
from vivavoce.tts_engine.chunk import SAMPLE_RATE
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.errors import BadText, UnknownVoice
from vivavoce.tts_engine.metrics import Metrics
from vivavoce.tts_engine.voices import voice_sequence
from vivavoce.tts_engine.voices.voice_sequence import CHANGE_PAUSE_S

PLAIN = "One two. [voice:tone-330]Three four.[/voice] Five six."
SSML = '<speak>One two. <voice name="tone-330">Three four.</voice> Five six.</speak>'
SPOKEN = "One two. Three four. Five six."


class OnePlaceBackend(StandInBackend):
    """Counts the most places that were taken at once."""

    most = 0

    def open_slot(self, request: Any) -> int:
        slot = super().open_slot(request)
        self.most = max(self.most, self.open_slots)
        return slot


async def speak(
    *parts: str, pitches_hz: tuple[int, ...] = (440, 330), **options: Any
) -> tuple[list[EncodedChunk], str, int]:
    """Return the pieces of a text, the text without markup, and the most places taken at once."""
    backend = OnePlaceBackend(pitches_hz=pitches_hz)
    async with Engine(backend, EngineConfig(), Metrics()) as engine:
        async with EncodedStream(engine, SynthesisOptions(voice="tone-440", **options)) as utterance:
            for part in parts:
                utterance.push_text(part)
            utterance.end_input()
            chunks = [chunk async for chunk in utterance]
        return chunks, utterance.text, backend.most


def pitches_of(chunks: list[EncodedChunk]) -> list[tuple[str, int]]:
    """Return each word and the pitch in which it is heard."""
    pcm = np.frombuffer(b"".join(chunk.audio for chunk in chunks), "<i2")
    found = []
    for word in (word for chunk in chunks for word in chunk.words):
        samples = pcm[round(word.start_s * SAMPLE_RATE) : round(word.stop_s * SAMPLE_RATE)]
        found.append((word.text, round(pitch_of(samples.tobytes()) / 110) * 110))
    return found


@pytest.mark.parametrize(
    "parts", [(PLAIN,), tuple(PLAIN), (SSML,), tuple(SSML)], ids="plain plain-split ssml ssml-split".split()
)
def test_each_word_is_heard_in_its_voice_and_all_are_on_one_timeline(parts: tuple[str, ...]) -> None:
    chunks, text, most = asyncio.run(speak(*parts))
    assert text == SPOKEN and most == 1
    words = [("One", 440), ("two", 440), ("Three", 330), ("four", 330), ("Five", 440), ("six", 440)]
    assert pitches_of(chunks) == words
    spoken = [word for chunk in chunks for word in chunk.words]
    assert all(text[word.text_start : word.text_stop] == word.text for word in spoken)
    assert all(one.stop_s <= two.start_s + 1e-9 for one, two in pairwise(spoken))
    assert "".join(word.text for chunk in chunks for word in chunk.written_words) == SPOKEN.replace(" ", "")
    assert [chunk.final for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert all(one.samples[1] == two.samples[0] for one, two in pairwise(chunks))
    pause_s = spoken[2].start_s - spoken[1].stop_s
    assert CHANGE_PAUSE_S <= pause_s <= CHANGE_PAUSE_S + 0.1


def test_a_text_may_begin_and_end_in_another_voice() -> None:
    chunks, text, _ = asyncio.run(speak("[voice:tone-330]One.[/voice]"))
    assert (pitches_of(chunks), text) == ([("One", 330)], "One.")
    assert chunks[-1].samples[1] / SAMPLE_RATE == pytest.approx(WORD_S + 0.02, abs=0.01)


def test_marks_and_rates_go_with_their_words() -> None:
    document = (
        '<speak>One.<voice name="tone-330"><mark name="m"/>Two <prosody rate="50%">three</prosody>.</voice>'
        "</speak>"
    )
    chunks, _, _ = asyncio.run(speak(document))
    (mark,) = (mark for chunk in chunks for mark in chunk.marks)
    spoken = {word.text: word for chunk in chunks for word in chunk.words}
    assert mark.at_s == pytest.approx(spoken["Two"].start_s, abs=0.01)


def test_an_unknown_voice_ends_the_utterance_with_its_name() -> None:
    with pytest.raises(UnknownVoice, match="nobody"):
        asyncio.run(speak("One two. [voice:nobody]Three.[/voice]"))


def test_changes_and_waiting_text_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voice_sequence, "MAX_CHANGES", 3)
    with pytest.raises(BadText, match="3 changes"):
        asyncio.run(speak("a [voice:tone-330]b[/voice] " * 3))
    monkeypatch.setattr(voice_sequence, "MAX_WAITING_CHARACTERS", 5)
    with pytest.raises(BadText, match="5 characters wait"):
        asyncio.run(speak("a [voice:tone-330]One two.[/voice]"))


async def post(served: Any, text: str, key: str = "") -> Any:
    body = {"model": "tts-1", "voice": "tone-440", "input": text, "response_format": "pcm"}
    headers = {"Authorization": f"Bearer {key or 'any'}"}
    return await served.client.post("/v1/audio/speech", json=body, headers=headers)


@pytest.mark.parametrize("text", [PLAIN, SSML], ids=["plain", "ssml"])
def test_openais_api_speaks_several_voices_and_names_an_unknown_one(run_every_api: Any, text: str) -> None:
    async def test(served: Any) -> None:
        answer = await post(served, text)
        assert answer.status_code == 200
        assert len(answer.content) / 48_000 >= 6 * WORD_S + 2 * CHANGE_PAUSE_S
        refused = await post(served, text.replace("tone-330", "nobody"))
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "voice_not_found"
        await until(lambda: served.backend.open_slots == 0)

    run_every_api(test)


def test_a_key_names_no_voice_of_another_key(
    run_every_api: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    owner, other = (keys.add(name, (Scope.SPEAK,), KeyLimits()) for name in ("owner", "other"))
    resolve = VoiceRegistry.resolve

    def resolve_for_owner(
        voices: VoiceRegistry, name: str | None, grant: Grant, default: str | None = None
    ) -> str:
        if name == "tone-330" and grant.key_name != "owner":
            raise UnknownVoice(f"no voice {name!r}")
        return resolve(voices, name, grant, default)

    monkeypatch.setattr(VoiceRegistry, "resolve", resolve_for_owner)

    async def test(served: Any) -> None:
        answers = [await post(served, PLAIN, key) for key in (owner, other)]
        assert [answer.status_code for answer in answers] == [200, 400]

    run_every_api(test, access=AccessControl(keys))
