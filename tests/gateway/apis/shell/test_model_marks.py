"""Marks of fine-grained control over the APIs of a server whose bundle has them: in place, and not spoken."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from shared.gateways.made_settings import make_settings

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from shared.voices.cosyvoice_bundles import write_random_bundle
from shared.voices.tiny_cosyvoice import BRIEF
from vivavoce.adapters.client import SpeechClient, SpeechOptions
from vivavoce.gateway.serve import Gateway
from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend
from vivavoce.tts_engine.cosyvoice.sentence import SpokenSentence, TextPiece
from vivavoce.tts_engine.engine import Engine

TEXT = "Ha [laughter] <strong>so</strong>[AY1] it[breath] is."
WRITTEN = ["Ha", "[laughter]", "<strong>so</strong>[AY1]", "it[breath]", "is."]


class ServerWithBundle:
    """A gateway that speaks with a bundle of version 3, and the text that its model was given."""

    def __init__(self, url: str, model_text: list[str]) -> None:
        self.url, self._model_text = url, model_text
        self.http = httpx.AsyncClient(base_url=url, trust_env=False, timeout=60.0)

    def take_model_text(self) -> str:
        taken = "".join(self._model_text)
        self._model_text.clear()
        return taken


@asynccontextmanager
async def server_with_bundle(folder: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[ServerWithBundle]:
    write_random_bundle(folder, 3, "tiny", 1)
    backend = CosyVoiceBackend.load(folder, BRIEF)
    tokenizer, given = open_bundle(folder).text_tokenizer(), list[str]()
    add_text = SpokenSentence.add_text

    def recorded(sentence: SpokenSentence, piece: TextPiece) -> None:
        given.extend(
            f"{{{tokenizer.decode([id])}}}" for id in piece.text_ids if tokenizer.decode([id])[0] in "[<"
        )
        add_text(sentence, piece)

    patch.setattr(SpokenSentence, "add_text", recorded)
    settings = make_settings(http_port=0, audiosocket_port=0, agents_default="none")
    async with (
        await Engine.open(backend=backend) as engine,
        aclosing(await Gateway.open(settings, engine=engine)) as gateway,
    ):
        given.clear()
        host, port = gateway.addresses.http
        server = ServerWithBundle(f"http://{host}:{port}", given)
        async with server.http:
            yield server


async def captions(server: ServerWithBundle) -> list[str]:
    answer = await server.http.post("/dev/captioned_speech", json={"input": TEXT, "response_format": "pcm"})
    lines = [json.loads(line) for line in answer.raise_for_status().text.splitlines()]
    return [word["word"] for line in lines for word in line["timestamps"]]


async def dashscope_words(server: ServerWithBundle) -> list[str]:
    fields = {"text": TEXT, "voice": "nobody", "word_timestamp_enabled": True}
    answer = await server.http.post(
        "/api/v1/services/audio/tts/SpeechSynthesizer",
        json={"model": "cosyvoice-v3", "input": fields},
        headers={"X-DashScope-SSE": "enable"},
    )
    events: list[dict[str, Any]] = [
        json.loads(line.removeprefix("data:"))
        for line in answer.raise_for_status().text.splitlines()
        if line.startswith("data:")
    ]
    ends = [event["output"]["sentence"] for event in events if event["output"].get("type") == "sentence-end"]
    return [word["text"] for end in ends for word in end["words"]]


async def native_words(server: ServerWithBundle) -> list[str]:
    async with (
        SpeechClient(server.url) as client,
        client.utterance(SpeechOptions(voice="nobody")) as utterance,
    ):
        for part in (TEXT[:6], TEXT[6:20], TEXT[20:]):  # marks are split
            await utterance.push_text(part)
        await utterance.end_input()
        return [word.text async for piece in utterance for word in piece.words]


def test_marks_reach_the_model_in_place_and_the_words_are_the_text_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with server_with_bundle(tmp_path, monkeypatch) as server:
            for speak in (captions, dashscope_words, native_words):
                assert await speak(server) == WRITTEN
                assert server.take_model_text() == "{[laughter]}{<strong>}{</strong>}{[AY1]}{[breath]}"

    asyncio.run(asyncio.wait_for(test(), 240))
