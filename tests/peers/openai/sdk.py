"""OpenAI's Python SDK, 1.x or 3.x, against ``../server.py``: prints the cases that passed, as JSON.

``python sdk.py URL KEY POOR_KEY``; a failed case ends the program with a traceback.
"""

import asyncio
import base64
import io
import json
import math
import struct
import sys
import wave
from collections.abc import Callable
from itertools import pairwise

import openai

from peers.client_cases import run_cases

URL, KEY, POOR_KEY = sys.argv[1:4]
TEXT = "One two three four five six."
PCM_BYTES = round((6 * 0.2 + 0.02) * 48_000)
MAGIC = {
    "mp3": b"\xff\xf3",
    "opus": b"OggS",
    "aac": b"\xff\xf1",
    "flac": b"fLaC",
    "wav": b"RIFF",
    "pcm": b"\0\0",
}
TYPES = {"mp3": "audio/mpeg", "opus": "audio/ogg"}
NAMES = "alloy ash ballad coral echo fable onyx nova sage shimmer verse marin cedar".split()
client = openai.OpenAI(api_key=KEY, base_url=f"{URL}/v1", max_retries=0)


def pitch_of(pcm: bytes) -> int:
    """Return 440, 330 or 220 Hz, whichever is nearest to the rate of zero crossings."""
    samples = struct.unpack(f"<{len(pcm) // 2}h", pcm)
    rises = sum(a < 0 <= b for a, b in pairwise(samples))
    return min((440, 330, 220), key=lambda pitch: abs(pitch - rises * 24_000 / len(samples)))


def every_format() -> None:
    for name, magic in MAGIC.items():
        answer = client.audio.speech.create(model="tts-1", voice="alloy", input=TEXT, response_format=name)
        assert answer.content.startswith(magic), (name, answer.content[:8])
        assert answer.response.headers["content-type"] == TYPES.get(name, f"audio/{name}")


def mp3_is_the_default() -> None:
    assert client.audio.speech.create(model="tts-1", voice="alloy", input=TEXT).content.startswith(
        b"\xff\xf3"
    )


def streaming_with_a_request_id() -> None:
    with client.audio.speech.with_streaming_response.create(
        model="gpt-4o-mini-tts", voice="alloy", input=TEXT, response_format="pcm"
    ) as answer:
        assert answer.headers["x-request-id"].startswith("req_")
        assert sum(len(piece) for piece in answer.iter_bytes(1_024)) == PCM_BYTES


def server_sent_events() -> None:
    with client.audio.speech.with_streaming_response.create(
        model="gpt-4o-mini-tts", voice="alloy", input=TEXT, response_format="pcm", stream_format="sse"
    ) as answer:
        events = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: ")]
    assert events[-1]["type"] == "speech.audio.done"
    assert events[-1]["usage"]["total_tokens"] > 0
    assert sum(len(base64.b64decode(event["audio"])) for event in events[:-1]) == PCM_BYTES


def disconnecting_mid_stream() -> None:
    with client.audio.speech.with_streaming_response.create(
        model="tts-1", voice="alloy", input="word " * 800, response_format="pcm"
    ) as answer:
        next(answer.iter_bytes(1_024))


def every_voice_name() -> None:
    for name in NAMES:
        pcm = client.audio.speech.create(model="tts-1", voice=name, input="Hi there.", response_format="pcm")
        assert pitch_of(pcm.content) == (330 if name == "ash" else 440), name


def a_voice_by_id() -> None:
    pcm = client.audio.speech.create(
        model="tts-1", voice={"id": "tone-330"}, input=TEXT, response_format="pcm"
    )
    assert pitch_of(pcm.content) == 330


def speed_and_instructions() -> None:
    for speed in (0.25, 4.0):
        answer = client.audio.speech.create(
            model="gpt-4o-mini-tts",
            voice="alloy",
            input=TEXT,
            response_format="pcm",
            speed=speed,
            instructions="Cheerfully.",
        )
        assert math.isclose(len(answer.content), PCM_BYTES * (2 if speed < 1 else 0.5), rel_tol=0.1)


def refused(error: type[openai.APIStatusError], code: str, **fields: object) -> openai.APIStatusError:
    defaults = {"model": "tts-1", "voice": "alloy", "input": TEXT}
    try:
        client.audio.speech.create(**{**defaults, **fields})
    except error as raised:
        assert (raised.code, raised.request_id[:4]) == (code, "req_"), raised
        return raised
    raise AssertionError(f"{fields} was not refused")


def errors_are_the_sdks_own() -> None:
    assert refused(openai.BadRequestError, "voice_not_found", voice="unknown").param == "voice"
    assert refused(openai.BadRequestError, "string_above_max_length", input="a" * 4_097).param == "input"
    assert refused(openai.BadRequestError, "string_below_min_length", input="").param == "input"
    assert refused(openai.BadRequestError, "invalid_value", response_format="amr")
    assert refused(openai.BadRequestError, "decimal_above_max_value", speed=4.1).param == "speed"


def a_wrong_key() -> None:
    try:
        client.with_options(api_key="wrong").models.list()
    except openai.AuthenticationError as raised:
        assert raised.code == "invalid_api_key"
        return
    raise AssertionError("a wrong key was accepted")


def a_rate_limit() -> None:
    poor = client.with_options(api_key=POOR_KEY)
    try:
        for _ in range(2):  # one request a minute is allowed, and another program may have used it
            poor.audio.speech.create(model="tts-1", voice="alloy", input="Hi.")
    except openai.RateLimitError as raised:
        assert raised.code == "rate_limit_exceeded"
        assert int(raised.response.headers["retry-after"]) >= 1
        return
    raise AssertionError("the limit was not applied")


def models() -> None:
    assert {"tts-1", "tts-1-hd", "gpt-4o-mini-tts"} <= {model.id for model in client.models.list()}
    assert client.models.retrieve("tts-1").owned_by == "vivavoce"


def many_at_once() -> None:
    async def request_all() -> None:
        async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{URL}/v1") as many_clients:
            voices = ["tone-440", "tone-330"] * 8
            answers = await asyncio.gather(
                *(
                    many_clients.audio.speech.create(
                        model="tts-1", voice=name, input=TEXT, response_format="pcm"
                    )
                    for name in voices
                )
            )
        pitches = [pitch_of(answer.content) for answer in answers]
        assert pitches == [int(name.removeprefix("tone-")) for name in voices]

    asyncio.run(request_all())


def custom_voices() -> None:
    voices = client.audio.voices
    recording = io.BytesIO()
    with wave.open(recording, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(
            b"".join(struct.pack("<h", round(9_000 * math.sin(step / 10))) for step in range(56_000))
        )
    created = voices.create(
        audio_sample=("anna.wav", recording.getvalue(), "audio/wav"), consent="cons_1", name="Anna"
    )
    assert (created.object, created.type, created.name) == ("audio.voice", "audio_sample", "Anna")
    pcm = client.audio.speech.create(
        model="tts-1", voice={"id": created.id}, input=TEXT, response_format="pcm"
    )
    assert pitch_of(pcm.content) == 220
    assert voices.delete(created.id).deleted
    assert refused(openai.BadRequestError, "voice_not_found", voice={"id": created.id})
    try:
        voices.delete(created.id)
    except openai.NotFoundError:
        return
    raise AssertionError("a voice was deleted twice")


if __name__ == "__main__":
    cases: list[Callable[[], None]] = [
        every_format,
        mp3_is_the_default,
        streaming_with_a_request_id,
        server_sent_events,
        disconnecting_mid_stream,
        every_voice_name,
        a_voice_by_id,
        speed_and_instructions,
        errors_are_the_sdks_own,
        a_wrong_key,
        a_rate_limit,
        models,
        many_at_once,
    ]
    if hasattr(client.audio, "voices"):
        cases.append(custom_voices)
    run_cases("openai", *cases)
