"""Several voices in one utterance on a call: their order, one timeline of words, unknown names."""

import logging

import numpy as np
import pytest

from shared.audio.tones import pitch_of
from shared.calls.call_server import Phone, call_server, run, send_utterance, until, words
from shared.engine.standin_backend import WORD_S, StandInBackend

PLAIN = "One two. [voice:tone-330]Three four.[/voice] Five six."
SSML = '<speak>One two. <voice name="tone-330">Three four.</voice> Five six.</speak>'
RATE = 8_000


def pitches_heard(phone: Phone) -> list[int]:
    """The pitches of the stand-in voices that a phone has heard, one after another, each once."""
    pitches: list[int] = []
    length = RATE // 20
    for start in range(0, len(phone.heard) // 2 - length, length):
        window = bytes(phone.heard[2 * start : 2 * (start + length)])
        if np.count_nonzero(np.abs(np.frombuffer(window, "<i2").astype(int)) > 500) < length // 2:
            continue
        pitch = min((440, 330), key=lambda each: abs(each - pitch_of(window, RATE)))
        if pitches[-1:] != [pitch]:
            pitches.append(pitch)
    return pitches


@pytest.mark.parametrize("text", [PLAIN, SSML], ids=["tags", "SSML"])
def test_a_caller_hears_a_part_in_the_voice_that_the_text_names(text: str) -> None:
    async def test() -> None:
        async with call_server(backend=StandInBackend(pitches_hz=(440, 330))) as server:
            phone = await server.phone()
            async with server.socket(phone.call_id, "?events=all") as socket:
                await send_utterance(socket, text[:9], text[9:20], text[20:])
                received = await until(socket, "speech_finished")
            assert pitches_heard(phone) == [440, 330, 440]
            assert words(received) == "One two Three four Five six".split()
            times = [message["start_s"] for message in received if message["type"] == "word"]
            assert times == sorted(times) and times[-1] > 5 * WORD_S
            written = [message["text"] for message in received if message["type"] == "utterance"]
            assert "".join(written) == "One two. Three four. Five six."

    run(test())


def test_an_unknown_voice_loses_no_words(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        backend = StandInBackend(pitches_hz=(440, 330))
        async with call_server(backend=backend) as server, server.http() as http:
            phone = await server.phone()
            answer = await http.post(f"/{phone.call_id}/speech", content=PLAIN.replace("tone-330", "nobody"))
            assert answer.json()["outcome"] == "spoken"
            assert pitches_heard(phone) == [440]

    with caplog.at_level(logging.WARNING):
        run(test())
    assert "the voice stays: " in caplog.text and "nobody" in caplog.text
