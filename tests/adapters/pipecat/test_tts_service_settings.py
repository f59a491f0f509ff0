"""The engine's Pipecat service in real pipelines: voice, speed and language settings."""

import asyncio
import warnings
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Pipecat imports its own deprecated classes
    pytest.importorskip(
        "pipecat.services.tts_service", reason="needs the extra: make test EXTRAS=dev,stt,pipecat"
    )

from loguru import logger
from pipecat.frames.frames import (
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    TTSStoppedFrame,
    TTSUpdateSettingsFrame,
)

from shared.audio.tones import pitch_of
from shared.engine.standin_backend import StandInBackend
from shared.event_loop import in_loop
from shared.gateways.pipecat_pipeline import open_engine, reply, run_pipeline, tokens, unpaced_service
from vivavoce.adapters.pipecat.engine_tts_service import VivavoceTTSService
from vivavoce.tts_engine.backends.base import SlotRequest
from vivavoce.tts_engine.voices.voices import MULTIPLE_LANGUAGES, Voice, Voices


@in_loop
async def test_every_setting_has_an_initial_value() -> None:
    async with open_engine() as engine:
        settings = VivavoceTTSService(engine=engine).settings
        assert settings.given_fields() == {
            "model": "default",
            "voice": "tone-440",
            "language": "zxx",
            "speed": 1.0,
        }


@in_loop
async def test_a_new_voice_is_used_from_the_next_turn() -> None:
    async with open_engine() as engine, run_pipeline(unpaced_service(engine)) as pipeline:
        await pipeline.turn("One two three.")
        before = len(pipeline.audio)
        await pipeline.send(TTSUpdateSettingsFrame(delta=VivavoceTTSService.Settings(voice="tone-660")))
        await pipeline.turn("One two three.")
        assert pitch_of(pipeline.audio[:before]) == pytest.approx(440, abs=5)
        assert pitch_of(pipeline.audio[before:]) == pytest.approx(660, abs=5)


@in_loop
async def test_a_new_voice_is_used_in_a_turn_that_is_open_but_has_no_text() -> None:
    async with open_engine() as engine, run_pipeline(unpaced_service(engine)) as pipeline:
        await pipeline.send(
            LLMFullResponseStartFrame(),
            TTSUpdateSettingsFrame(delta=VivavoceTTSService.Settings(voice="tone-660")),
            *tokens("One two three."),
            LLMFullResponseEndFrame(),
        )
        await pipeline.until(TTSStoppedFrame)
        assert pitch_of(pipeline.audio) == pytest.approx(660, abs=5)


@pytest.mark.parametrize(
    ("invalid", "message"),
    [({"voice": "unknown"}, "no voice 'unknown'"), ({"speed": 9.0}, "got speed 9.0; it must be 0.5 to 2.0")],
)
def test_invalid_settings_are_refused_and_the_old_ones_stay(invalid: Any, message: str) -> None:
    async def change() -> None:
        async with open_engine() as engine:
            service = unpaced_service(engine)
            async with run_pipeline(service) as pipeline:
                await pipeline.send(TTSUpdateSettingsFrame(delta=VivavoceTTSService.Settings(**invalid)))
                await pipeline.until_error()
                assert message in pipeline.errors[0].error
                assert service.settings.voice == "tone-440"
                assert service.is_usable
                await pipeline.turn("As before.")
                assert pipeline.words == ["As", "before"]

    asyncio.run(change())


@in_loop
async def test_an_unknown_voice_is_reported_at_the_first_reply() -> None:
    async with open_engine() as engine:
        service = unpaced_service(engine, settings=VivavoceTTSService.Settings(voice="unknown"))
        async with run_pipeline(service) as pipeline:
            await pipeline.send(*reply("Hello."))
            await pipeline.until_error()
            assert "no voice 'unknown'; loaded: tone-440, tone-660" in pipeline.errors[0].error
            assert not service.is_usable


async def warnings_for(backend: StandInBackend, language: str) -> list[str]:
    """The warnings logged when a service with that language is constructed."""
    logged: list[str] = []
    handler = logger.add(lambda message: logged.append(str(message)), level="WARNING")
    logger.enable("vivavoce")
    try:
        async with open_engine(backend) as engine:
            VivavoceTTSService(engine=engine, settings=VivavoceTTSService.Settings(language=language))
    finally:
        logger.remove(handler)
    return logged


class MultilingualBackend(StandInBackend):
    """Has a multilingual voice; records the language of every slot that is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.voices = Voices((Voice("tone-440", MULTIPLE_LANGUAGES, "a tone"),))
        self.languages: list[str | None] = []

    def open_slot(self, request: SlotRequest) -> int:
        self.languages.append(request.delivery.language)
        return super().open_slot(request)


@in_loop
async def test_a_language_that_the_voice_does_not_speak_logs_a_warning() -> None:
    (warning,) = await warnings_for(StandInBackend(), "de-DE")
    assert "speaks zxx, not de-DE" in warning


@in_loop
async def test_a_language_without_number_rules_logs_a_warning_for_a_multilingual_voice() -> None:
    assert await warnings_for(MultilingualBackend(), "de-DE") == []
    (warning,) = await warnings_for(MultilingualBackend(), "sv-SE")
    assert "numbers in sv-SE will be read as in English" in warning


@in_loop
async def test_the_engine_gets_the_language_of_the_settings() -> None:
    for language, expected in (("de-DE", "de-DE"), ("sv-SE", MULTIPLE_LANGUAGES), (None, MULTIPLE_LANGUAGES)):
        backend = MultilingualBackend()
        settings = VivavoceTTSService.Settings(language=language)
        async with (
            open_engine(backend) as engine,
            run_pipeline(unpaced_service(engine, settings=settings)) as pipeline,
        ):
            await pipeline.turn("One two three.")
        assert set(backend.languages[1:]) == {expected}  # the engine's warm-up opens the first slot
