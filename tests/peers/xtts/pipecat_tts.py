"""Pipecat's XTTS service, a client of coqui's server, against ``../server.py``: prints passed cases as JSON.

``python pipecat_tts.py URL KEY POOR_KEY``. The service sends no key: its session does.
"""

import sys

import aiohttp
from pipecat.frames.frames import Frame, InterruptionFrame
from pipecat.services.xtts.tts import XTTSService
from pipecat.tests.utils import SleepFrame

from peers.client_cases import run_cases
from peers.pipecat_speech import TEXT, after_interruption, check_length, errors_in, frames_of, tokens

URL, KEY, _ = sys.argv[1:4]


async def heard(frames: list[Frame], key: str = KEY, voice: str = "tone-330") -> list[Frame]:
    """Send frames to a service; return all of its own."""
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as session:
        settings = XTTSService.Settings(voice=voice)
        return await frames_of(XTTSService(base_url=URL, aiohttp_session=session, settings=settings), frames)


async def sentences_are_spoken() -> None:
    check_length(await heard(tokens()))


async def an_interruption_does_not_reach_the_next_answer() -> None:
    interrupted = [*tokens(TEXT * 10), SleepFrame(sleep=0.3), InterruptionFrame(), *tokens()]
    check_length(after_interruption(await heard(interrupted)))


async def a_wrong_key_and_an_unknown_voice_are_error_frames() -> None:
    assert errors_in(await heard(tokens(), key="wrong"))
    assert errors_in(await heard(tokens(), voice="nobody"))


if __name__ == "__main__":
    run_cases(
        "pipecat-ai",
        sentences_are_spoken,
        an_interruption_does_not_reach_the_next_answer,
        a_wrong_key_and_an_unknown_voice_are_error_frames,
    )
