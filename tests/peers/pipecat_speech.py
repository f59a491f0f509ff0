"""What the programs with Pipecat's services share: the frames of a spoken answer, their sound and words."""

import warnings

warnings.simplefilter("ignore", DeprecationWarning)
from loguru import logger  # noqa: E402
from pipecat.frames.frames import (  # noqa: E402
    ErrorFrame,
    Frame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSTextFrame,
)
from pipecat.pipeline.worker import PipelineParams  # noqa: E402
from pipecat.services.tts_service import TTSService  # noqa: E402
from pipecat.tests.utils import SleepFrame, run_test  # noqa: E402

from peers.client_cases import IDLE_S  # noqa: E402

TEXT = "One two three four five six. Seven eight nine."

logger.disable("pipecat")


def tokens(text: str = TEXT) -> list[Frame]:
    """The frames of a language model that writes a text word by word."""
    written = [LLMTextFrame(word + " ") for word in text.split()]
    return [LLMFullResponseStartFrame(), *written, LLMFullResponseEndFrame()]


async def frames_of(service: TTSService, frames: list[Frame], wait_s: float = 2.5) -> list[Frame]:
    """Send frames to a service and return all of its own after ``wait_s``."""
    waiting = [SleepFrame(sleep=wait_s)] if wait_s else []
    down, up = await run_test(
        service,
        frames_to_send=[*frames, *waiting],
        pipeline_params=PipelineParams(audio_out_sample_rate=24_000),
        start_timeout=30.0,
    )
    return [*down, *up]


async def speak_twenty_turns(service: TTSService) -> None:
    """Assert that a service speaks twenty answers on its connection, one after another."""
    turns = [frame for _ in range(20) for frame in (*tokens("One two."), SleepFrame(sleep=0.3))]
    frames = await frames_of(service, turns)
    assert errors_in(frames) == [], errors_in(frames)
    assert 20 * 0.3 < seconds_in(frames) < 20 * 1.0, seconds_in(frames)


async def speak_after_idling(service: TTSService) -> None:
    """Assert that a service speaks again on a connection that was idle."""
    turns = [*tokens("One two."), SleepFrame(sleep=0.5 + IDLE_S), *tokens("One two.")]
    frames = await frames_of(service, turns)
    assert errors_in(frames) == [], errors_in(frames)
    assert 2 * 0.3 < seconds_in(frames) < 2 * 1.0, seconds_in(frames)


def after_interruption(frames: list[Frame]) -> list[Frame]:
    """The frames from the first interruption on."""
    return frames[[isinstance(frame, InterruptionFrame) for frame in frames].index(True) :]


def seconds_in(frames: list[Frame]) -> float:
    """The length of the sound."""
    return sum(len(frame.audio) for frame in frames if isinstance(frame, TTSAudioRawFrame)) / 48_000


def words_in(frames: list[Frame]) -> list[str]:
    """The words that were heard."""
    return " ".join(frame.text for frame in frames if isinstance(frame, TTSTextFrame)).split()


def check_length(frames: list[Frame]) -> None:
    """Assert that the text was spoken whole, once, and without an error."""
    assert errors_in(frames) == [], frames
    assert 1.7 < seconds_in(frames) < 3.0, seconds_in(frames)


def check_spoken(frames: list[Frame]) -> None:
    """Assert that the text was spoken with its words."""
    check_length(frames)
    assert words_in(frames) == TEXT.split(), words_in(frames)


def errors_in(frames: list[Frame]) -> list[str]:
    """The messages of the error frames."""
    return [frame.error for frame in frames if isinstance(frame, ErrorFrame)]
