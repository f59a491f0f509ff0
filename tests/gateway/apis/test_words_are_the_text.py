"""The words, or characters, of every API joined are the text as it was written, once."""

import asyncio
import base64
import json
import random
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from vivavoce.gateway.apis.dialects.dashscope.socket_api import PATH as DASHSCOPE_PATH

# Punctuation of twelve languages, markdown, emoji, quotes, sums, and what a voice for English cannot read.
PIECES = (
    "Well, (yes!) it is",
    "**Bold** and _so_ `on`",
    "2 + 2 = 4, 5 > 3",
    "Great 😀 news! 🎉",
    "“Quoted” — ‘single’ …",
    "well-known and/or e.g. this",
    '"Straight," he\'s said;',
    "¿Qué tal? ¡Bien!",
    "« Bonjour » l'ami :",
    "„Guten Tag“, ‚sagt‘ er.",
    "L'amico è qui?",
    "Olá, está [bem]",
    "'s Avonds, zo'n kop",
    "„Tak”, mówi.",
    "«Привет», — сказал он.",
    "İyi 'günler' dedi",
    "你好，世界。（再见）",
    "「こんにちは」と言った。",
    "안녕, “세계”!",
    "# Head\n- one\n* two ***",
    "$5 a day; 10:30 - 11:00",
    "a@b.com & http://x.org/y?z=1",
    "#1 / @you ~ 100%",
    "<b>tag</b> {set} |bar|",
)


def make_text(seed: int) -> str:
    """Return some of the pieces, with blanks between them and perhaps around them."""
    chance = random.Random(seed)
    blanks = ("", " ", "  ", "\n", " \n\n ")
    pieces = chance.sample(PIECES, chance.randint(1, 5))
    if not any(piece.isascii() for piece in pieces):
        pieces.append("one")
    inside = "".join(piece + chance.choice(blanks[1:]) for piece in pieces).rstrip()
    return (
        chance.choice(blanks)
        + inside
        + chance.choice((".", "!", "", "?”", " 😀", " -"))
        + chance.choice(blanks)
    )


def parts_of(text: str, seed: int) -> list[str]:
    """Cut a text anywhere."""
    chance = random.Random(seed)
    cuts = sorted({0, len(text), *(chance.randint(0, len(text)) for _ in range(chance.randint(0, 8)))})
    return [text[start:stop] for start, stop in pairwise(cuts)]


async def over_socket(
    served: Any, path: str, messages: list[dict[str, Any]], is_last: Callable[[dict[str, Any]], bool]
) -> list[dict[str, Any]]:
    """Send messages; return the answers in JSON up to the last one."""
    host, port = served.address
    async with connect(f"ws://{host}:{port}{path}", proxy=None, max_size=None) as socket:
        for message in messages:
            await socket.send(json.dumps(message))
        return await answers_of(socket, is_last)


async def answers_of(
    socket: ClientConnection, is_last: Callable[[dict[str, Any]], bool]
) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = []
    while not answers or not is_last(answers[-1]):
        data = await socket.recv()
        if isinstance(data, str):
            answers.append(json.loads(data))
            assert "error" not in str(answers[-1].get("type", "")), answers[-1]
    return answers


async def post(served: Any, path: str, **body: Any) -> str:
    answer = await served.client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    text: str = answer.text
    return text


def spaced(words: list[str]) -> str:
    """Join words as clients do that get no blanks."""
    return " ".join(words)


# Each returns what its clients put together.


async def cartesia_socket(served: Any, parts: list[str]) -> str:
    raw = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
    fields = {"model_id": "sonic", "voice": {"mode": "id", "id": "tone-440"}, "output_format": raw}
    fields |= {"context_id": "a", "add_timestamps": True, "continue": True}
    messages = [{**fields, "transcript": part} for part in parts]
    messages.append({**fields, "transcript": "", "continue": False})
    answers = await over_socket(served, "/tts/websocket", messages, lambda one: one["type"] == "done")
    times = [one["word_timestamps"] for one in answers if one["type"] == "timestamps"]
    return spaced([word for one in times for word in one["words"]])


async def cartesia_events(served: Any, parts: list[str]) -> str:
    raw = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
    voice = {"mode": "id", "id": "tone-440"}
    fields = {"model_id": "sonic", "voice": voice, "output_format": raw, "add_timestamps": True}
    lines = (await post(served, "/tts/sse", transcript="".join(parts), **fields)).splitlines()
    events = [json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:")]
    times = [event["word_timestamps"] for event in events if event["type"] == "timestamps"]
    return spaced([word for one in times for word in one["words"]])


async def elevenlabs_contexts(served: Any, parts: list[str]) -> str:
    messages: list[dict[str, Any]] = [{"text": part, "context_id": "a"} for part in parts]
    messages += [{"context_id": "a", "flush": True}, {"context_id": "a", "close_context": True}]
    path = "/v1/text-to-speech/tone-440/multi-stream-input?output_format=pcm_24000"
    answers = await over_socket(served, path, messages, lambda one: bool(one.get("isFinal")))
    return "".join(
        character for one in answers if "alignment" in one for character in one["alignment"]["chars"]
    )


async def elevenlabs_single(served: Any, parts: list[str]) -> str:
    messages = [{"text": part} for part in [*parts, ""]]
    path = "/v1/text-to-speech/tone-440/stream-input?output_format=pcm_24000"
    answers = await over_socket(served, path, messages, lambda one: bool(one.get("isFinal")))
    return "".join(
        character for one in answers if "alignment" in one for character in one["alignment"]["chars"]
    )


async def elevenlabs_http(served: Any, parts: list[str]) -> str:
    answer = json.loads(
        await post(served, "/v1/text-to-speech/tone-440/with-timestamps", text="".join(parts))
    )
    return "".join(answer["alignment"]["characters"])


async def elevenlabs_lines(served: Any, parts: list[str]) -> str:
    path = "/v1/text-to-speech/tone-440/stream/with-timestamps"
    lines = (await post(served, path, text="".join(parts))).splitlines()
    alignments = [json.loads(line).get("alignment") for line in lines if line]
    return "".join(character for one in alignments if one for character in one["characters"])


async def inworld_socket(served: Any, parts: list[str]) -> str:
    config = {"voiceId": "tone-440", "modelId": "inworld-tts-2", "timestampType": "WORD"}
    sound = {"audioEncoding": "PCM", "sampleRateHertz": 24_000}
    messages: list[dict[str, Any]] = [{"create": {**config, "audioConfig": sound}, "contextId": "a"}]
    messages += [{"send_text": {"text": part}, "contextId": "a"} for part in parts]
    messages += [{"flush_context": {}, "contextId": "a"}, {"close_context": {}, "contextId": "a"}]
    path = "/tts/v1/voice:streamBidirectional"
    answers = await over_socket(served, path, messages, lambda one: "contextClosed" in one["result"])
    chunks = [one["result"].get("audioChunk", {}) for one in answers]
    return "".join(inworld_words(chunks))


async def inworld_http(served: Any, parts: list[str]) -> str:
    fields = {"voiceId": "tone-440", "modelId": "inworld-tts-2", "timestampType": "WORD"}
    return "".join(
        inworld_words([json.loads(await post(served, "/tts/v1/voice", text="".join(parts), **fields))])
    )


async def inworld_lines(served: Any, parts: list[str]) -> str:
    fields = {"voiceId": "tone-440", "modelId": "inworld-tts-2", "timestampType": "WORD"}
    lines = (await post(served, "/tts/v1/voice:stream", text="".join(parts), **fields)).splitlines()
    return "".join(inworld_words([json.loads(line)["result"] for line in lines]))


def inworld_words(chunks: list[dict[str, Any]]) -> list[str]:
    times = [chunk.get("timestampInfo") for chunk in chunks]
    return [word for one in times if one for word in one["wordAlignment"]["words"]]


async def native_stream(served: Any, parts: list[str]) -> str:
    config = {"type": "session.config", "voice": "tone-440", "response_format": "pcm", "word_times": True}
    messages = [config, *({"type": "input.text", "text": part} for part in parts), {"type": "input.done"}]
    path = "/v1/audio/speech/stream"
    answers = await over_socket(served, path, messages, lambda one: one["type"] == "session.done")
    words = [word for one in answers if one["type"] == "audio.words" for word in one["words"]]
    text = "".join(parts)
    assert [text[word["text_start"] : word["text_end"]] for word in words] == [word["word"] for word in words]
    return spaced([word["word"] for word in words])


async def dashscope_socket(served: Any, parts: list[str]) -> str:
    header = {"task_id": "t", "streaming": "duplex"}
    run = {"task_group": "audio", "task": "tts", "function": "SpeechSynthesizer", "model": "cosyvoice-v2"}
    parameters = {"voice": "tone-440", "format": "pcm", "word_timestamp_enabled": True}
    first = {
        "header": {**header, "action": "run-task"},
        "payload": {**run, "input": {}, "parameters": parameters},
    }
    texts = [
        {"header": {**header, "action": "continue-task"}, "payload": {"input": {"text": part}}}
        for part in parts
    ]
    last = {"header": {**header, "action": "finish-task"}, "payload": {"input": {}}}
    answers = await over_socket(
        served, DASHSCOPE_PATH, [first, *texts, last], lambda one: one["header"]["event"] == "task-finished"
    )
    outputs = [one["payload"].get("output", {}) for one in answers]
    ends = [output for output in outputs if output.get("type") == "sentence-end"]
    words = []
    for end in ends:
        sentence = end["original_text"]
        for word in end["sentence"]["words"]:
            assert sentence[word["begin_index"] : word["end_index"]] == word["text"]
            words.append(word["text"])
    return spaced(words)


async def kokoro_captions(served: Any, parts: list[str]) -> str:
    fields = {"model": "tts-1", "voice": "tone-440", "response_format": "pcm"}
    lines = (await post(served, "/dev/captioned_speech", input="".join(parts), **fields)).splitlines()
    pieces = [json.loads(line) for line in lines if line]
    assert all(base64.b64decode(piece["audio"]) or piece["timestamps"] for piece in pieces)
    return spaced([word["word"] for piece in pieces for word in piece["timestamps"]])


async def realtime(served: Any, parts: list[str]) -> str:
    response = {"instructions": "".join(parts)}
    messages = [{"type": "response.create", "response": response}]
    answers = await over_socket(served, "/v1/realtime", messages, lambda one: one["type"] == "response.done")
    kind = "response.output_audio_transcript.delta"
    return "".join(one["delta"] for one in answers if one["type"] == kind)


KEEPING_BLANKS = (
    realtime,
    elevenlabs_contexts,
    elevenlabs_single,
    elevenlabs_http,
    elevenlabs_lines,
    inworld_socket,
    inworld_http,
    inworld_lines,
)
SPLIT_AT_BLANKS = (cartesia_socket, cartesia_events, native_stream, dashscope_socket, kokoro_captions)


@pytest.mark.parametrize("read", (*KEEPING_BLANKS, *SPLIT_AT_BLANKS), ids=lambda read: read.__name__)
def test_words_joined_are_the_text_as_it_was_written(
    run_every_api: Any, read: Callable[[Any, list[str]], Awaitable[str]]
) -> None:
    async def check(served: Any, seed: int) -> None:
        text = make_text(seed)
        expected = text if read in KEEPING_BLANKS else spaced(text.split())
        got = await read(served, parts_of(text, seed))
        assert got == expected or spaced(got.split()) == expected, (text, parts_of(text, seed))

    async def test(served: Any) -> None:
        for first in range(0, 24, 8):
            await asyncio.gather(*(check(served, seed) for seed in range(first, first + 8)))

    run_every_api(test)
