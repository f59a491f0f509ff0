"""The voice pipeline of OpenAI's Agents SDK against ``../server.py``, only the base URL changed.

``python agents_voice.py URL KEY POOR_KEY`` prints the passed cases as JSON. What the user said and what a
language model answers are given; the speech is the SDK's own model over HTTP.
"""

import sys
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import openai
from agents import set_tracing_disabled
from agents.voice import AudioInput, STTModel, VoicePipeline, VoicePipelineConfig, VoiceWorkflowBase
from agents.voice.models.openai_model_provider import OpenAIVoiceModelProvider

from peers.client_cases import run_cases

URL, KEY, _ = sys.argv[1:4]
TEXT = "One two three four five six. One two three four five six. "
set_tracing_disabled(True)  # it would be sent to OpenAI


class GivenText(STTModel):
    """A speech recogniser that hears one text."""

    model_name = "given"

    async def transcribe(self, *_: Any) -> str:
        return "Count, please."

    async def create_session(self, *_: Any) -> Any:
        raise NotImplementedError


class Workflow(VoiceWorkflowBase):
    """A language model that writes a text word by word."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def run(self, transcription: str) -> AsyncIterator[str]:
        for word in self.text.split():
            yield word + " "


async def make_result(text: str = TEXT, api_key: str = KEY) -> Any:
    """Start an answer; ``stream()`` of it has the audio."""
    client = openai.AsyncOpenAI(api_key=api_key, base_url=f"{URL}/v1")
    provider = OpenAIVoiceModelProvider(openai_client=client)
    config = VoicePipelineConfig(model_provider=provider, tracing_disabled=True)
    pipeline = VoicePipeline(workflow=Workflow(text), stt_model=GivenText(), config=config)
    return await pipeline.run(AudioInput(buffer=np.zeros(2_400, np.int16)))


async def seconds_of(text: str) -> float:
    samples = 0
    async for event in (await make_result(text)).stream():
        if event.type == "voice_stream_event_audio":
            samples += len(event.data)
    return samples / 24_000


async def an_answer_is_spoken_as_it_is_written() -> None:
    seconds = await seconds_of(TEXT)
    assert 2.2 < seconds < 3.0, seconds


async def twenty_turns_are_spoken() -> None:
    for _ in range(20):
        seconds = await seconds_of("One two.")
        assert 0.3 < seconds < 0.9, seconds


async def an_interruption_does_not_reach_the_next_answer() -> None:
    stream = (await make_result(TEXT * 10)).stream()
    async for event in stream:
        if event.type == "voice_stream_event_audio":
            break
    await stream.aclose()
    assert 2.2 < await seconds_of(TEXT) < 3.0


async def an_error_is_openais_own() -> None:
    try:
        async for _ in (await make_result(api_key="wrong")).stream():
            pass
    except openai.AuthenticationError as error:
        assert error.status_code == 401
        return
    raise AssertionError("a wrong key was accepted")


if __name__ == "__main__":
    run_cases(
        "openai-agents",
        an_answer_is_spoken_as_it_is_written,
        twenty_turns_are_spoken,
        an_interruption_does_not_reach_the_next_answer,
        an_error_is_openais_own,
    )
