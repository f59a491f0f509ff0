"""SSML in real pipelines of Pipecat: the service with an engine of its own speaks it as a server does."""

import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Pipecat imports its own deprecated classes
    pytest.importorskip(
        "pipecat.services.tts_service", reason="needs the extra: make test EXTRAS=dev,stt,pipecat"
    )

from pipecat.frames.frames import (
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    TTSSpeakFrame,
    TTSTextFrame,
)

from shared.engine.standin_backend import WORD_S
from shared.event_loop import in_loop
from shared.gateways.pipecat_pipeline import open_engine, reply, run_pipeline, tokens, unpaced_service

DOCUMENT = '<speak>One <break time="500ms"/><sub alias="two three">2x3</sub> four.</speak>'
FINAL_SILENCE_S = 0.02


@pytest.mark.parametrize("size", [1, 7, 200])
def test_a_document_in_the_tokens_of_a_reply_is_spoken_without_its_markup(size: int) -> None:
    @in_loop
    async def test() -> None:
        async with open_engine() as engine, run_pipeline(unpaced_service(engine)) as pipeline:
            frames = [LLMFullResponseStartFrame(), *tokens(DOCUMENT, size), LLMFullResponseEndFrame()]
            await pipeline.send(*frames)
            await pipeline.until(LLMFullResponseEndFrame)
            assert pipeline.words[:3] == ["One", "2x3", "four"]  # Pipecat adds the rest that is not spoken
            seconds = len(pipeline.audio) / 2 / 24_000
            assert seconds == pytest.approx(4 * WORD_S + 0.5 + FINAL_SILENCE_S, abs=0.001)

    test()


@in_loop
async def test_a_document_without_end_is_an_error_frame_and_the_next_text_is_spoken() -> None:
    async with open_engine() as engine, run_pipeline(unpaced_service(engine)) as pipeline:
        await pipeline.send(LLMFullResponseStartFrame(), *tokens("<speak>One <s>two"))
        await pipeline.send(LLMFullResponseEndFrame())
        await pipeline.until_error()
        assert "SSML" in pipeline.errors[0].error
        await pipeline.send(TTSSpeakFrame("<speak>Three <x>four.</speak>"))
        await pipeline.until_error(2)
        await pipeline.send(*reply("Five."))
        await pipeline.until(TTSTextFrame)
        assert pipeline.words == ["Five"]
