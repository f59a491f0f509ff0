"""Inworld's socket: contexts side by side, generations, times of words, limits, errors and the end."""

import asyncio
import base64
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from shared.engine.standin_backend import WORD_S
from shared.event_loop import until
from vivavoce.adapters import transcript_queue
from vivavoce.adapters.audio.pcm import WAV_HEADER_BYTES, wav_file
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.apis.dialects.inworld import context, socket_api
from vivavoce.gateway.apis.dialects.inworld.socket_api import PATH
from vivavoce.gateway.apis.kits.request_fields import MAX_MESSAGE_BYTES

WORD_BYTES = round(2 * 24_000 * WORD_S)
PCM = {"audioEncoding": "PCM", "sampleRateHertz": 24_000, "bitrate": 64_000, "speakingRate": 1.0}


class InworldClient:
    """A client that adds up times as Pipecat's service does; keeps audio and words by context."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.audio: defaultdict[str, bytes] = defaultdict(bytes)
        self.words: defaultdict[str, list[tuple[str, float, float]]] = defaultdict(list)
        self.flushes: defaultdict[str, int] = defaultdict(int)
        self.order: list[str] = []  # contexts of all audio
        self._generation_start_s: defaultdict[str, float] = defaultdict(float)

    async def send(self, kind: str, context: str | None = None, **fields: Any) -> None:
        named = {} if context is None else {"contextId": context}
        await self.socket.send(json.dumps({kind: fields} | named))

    async def create(self, context: str = "a", voice: str = "tone-440", **fields: Any) -> None:
        config = {"voiceId": voice, "modelId": "inworld-tts-2", "audioConfig": PCM, "timestampType": "WORD"}
        await self.send("create", context, **config | fields)

    async def say(self, text: str, context: str = "a") -> None:
        await self.send("send_text", context, text=text)

    async def end(self, context: str) -> None:
        """End the text of a context, as clients do."""
        await self.send("flush_context", context)
        await self.send("close_context", context)

    async def next(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(await self.socket.recv())["result"]
        context = result.get("contextId", "")
        start_s = self._generation_start_s[context]
        if chunk := result.get("audioChunk"):
            self.order.append(context)
            self.audio[context] += base64.b64decode(chunk["audioContent"])
            if times := chunk.get("timestampInfo"):
                for word, begin, end in zip(*times["wordAlignment"].values(), strict=True):
                    self.words[context].append((word, start_s + begin, start_s + end))
        if "flushCompleted" in result:
            self.flushes[context] += 1
            self._generation_start_s[context] = self.words[context][-1][2] if self.words[context] else 0.0
        return result

    async def receive(self, event: str, context: str = "a") -> dict[str, Any]:
        while event not in (result := await self.next()) or result.get("contextId") != context:
            assert result["status"]["code"] == 0, result
        return result

    async def error(self) -> tuple[int, str]:
        while (status := (await self.next())["status"])["code"] == 0:
            pass
        return status["code"], status["message"]

    def text(self, context: str = "a") -> str:
        return "".join(word for word, _, _ in self.words[context])

    def words_spoken(self, context: str = "a") -> int:
        return round(len(self.audio[context]) / WORD_BYTES)


@asynccontextmanager
async def open_socket(
    served: Any, headers: dict[str, str] | None = None, query: str = ""
) -> AsyncIterator[InworldClient]:
    host, port = served.address
    url = f"ws://{host}:{port}{PATH}{query}"
    async with connect(url, additional_headers=headers, proxy=None, max_size=None) as socket:
        yield InworldClient(socket)


async def closing_code(client: InworldClient) -> int:
    with pytest.raises(ConnectionClosed) as closed:
        while True:
            await client.next()
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code


def test_a_context_is_spoken_while_it_is_written_and_closed(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.create()
            created = await client.next()
            assert created["contextCreated"] == {"voiceId": "tone-440", "modelId": "inworld-tts-2"}
            assert created["status"] == {"code": 0, "message": "", "details": []}
            for token in ("One ", "two, ", "thr", "ee"):
                await client.say(token)
            await client.receive("audioChunk")
            await client.say(" four.")
            await client.end("a")
            await client.receive("contextClosed")
            assert client.flushes["a"] == 1 and client.words_spoken() >= 4
            assert client.text() == "One two, three four."
            starts = [start for word, start, _ in client.words["a"] if word[0].isalnum()]
            assert starts[:2] == pytest.approx([0.0, WORD_S], abs=0.002)
            assert starts[2] == pytest.approx(2 * WORD_S + 0.25, abs=0.02)  # the comma is 0.25 s
            assert served.backend.open_slots == 0

    run(test)


def test_a_flush_speaks_what_there_is_and_the_times_of_the_next_words_stay_true(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.create()
            starts, spoken_s = [], 0.0
            for text in ("One two.", "three four.", "five six."):
                await client.say(text)
                await client.send("flush_context", "a")
                await client.receive("flushCompleted")
                starts.append(spoken_s)
                spoken_s = len(client.audio["a"]) / 48_000
            await client.end("a")
            await client.receive("contextClosed")
            assert client.text() == "One two.three four.five six."
            first_words = [start for word, start, _ in client.words["a"] if word in ("One", "three", "five")]
            assert first_words == pytest.approx(starts, abs=0.01)

    run(test)


def test_a_flush_without_text_is_completed_and_one_may_come_with_the_text(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.create()
            await client.send("flush_context", "a")
            await client.receive("flushCompleted")
            await client.send("send_text", "a", text="One two", flush_context={})
            await client.receive("flushCompleted")
            assert client.words_spoken() >= 2

    run(test)


def test_text_is_spoken_after_the_buffer_delay_which_a_keep_alive_does_not_extend(run: Any) -> None:
    async def keep_alive(client: InworldClient) -> None:
        while True:
            await client.say("")
            await asyncio.sleep(0.02)

    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.create(maxBufferDelayMs=100)
            keeping = asyncio.create_task(keep_alive(client))
            for text in ("One two", " three"):
                await client.say(text)
                await client.receive("flushCompleted")
            keeping.cancel()
            await client.end("a")
            await client.receive("contextClosed")
            assert client.text().split() == ["One", "two", "three"]

    run(test)


def test_contexts_interleave_and_have_their_own_words(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            numbers = range(1, 9)
            for number in numbers:
                await client.create(str(number))
            for number in numbers:
                await client.say("word " * number * 4, str(number))
                await client.end(str(number))
            closed = 0
            while closed < len(numbers):
                closed += "contextClosed" in await client.next()
            for number in numbers:
                assert client.words_spoken(str(number)) == pytest.approx(4 * number, abs=1)
                assert client.text(str(number)).split() == ["word"] * number * 4
            switches = sum(one != other for one, other in zip(client.order, client.order[1:], strict=False))
            assert switches > 7  # as many as there are if one came after the other

    run(test, slots=16)


def test_a_closed_context_takes_no_more_text_and_a_keep_alive_does_no_harm(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.create()
            await client.say("One two three four five six. ")
            await client.end("a")
            await client.say("")
            await client.say("seven. ")
            assert await client.error() == (9, "context 'a' has been closed and takes no more text")
            await client.receive("contextClosed")
            assert client.words_spoken() >= 6
            await client.create()  # the name is free again
            await client.receive("contextCreated")

    run(test, step_s=0.02)


INTERRUPTIONS = {
    "cancelled": ("cancel_context",),
    "closed in the middle of its text": ("close_context",),
    "closed again": ("flush_context", "close_context", "close_context"),
}


@pytest.mark.parametrize("messages", INTERRUPTIONS.values(), ids=INTERRUPTIONS)
def test_an_interrupted_context_is_dropped(run: Any, messages: tuple[str, ...]) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.create("a")
            await client.create("b")
            await client.say("One two three four five six. " * 200, "a")
            await client.say("One two three. ", "b")
            while not client.audio["a"]:
                await client.next()
            for message in messages:
                await client.send(message, "a")
            await client.receive("contextClosed", "a")
            spoken = client.words_spoken("a")
            assert spoken < 600
            await client.end("b")
            await client.receive("contextClosed", "b")
            assert client.words_spoken("a") == spoken and client.text("b").strip() == "One two three."
            await until(lambda: not served.engine.active_streams)
            assert served.backend.steps < 600  # of 1,203 words

    run(test, step_s=0.005)


def test_a_context_is_rendered_at_the_pace_of_its_playout(
    run: Any, first_listener_plays_nothing: None
) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.create()
            await client.say("One two three four five six. " * 200)
            await client.end("a")
            while not client.words_spoken():
                await client.next()
            await client.create("b")
            await client.say("One two three four five six. " * 10, "b")
            await client.end("b")
            await client.receive("contextClosed", "b")
            assert client.words_spoken("b") >= 60
            assert client.words_spoken() <= 2, "it went on beside the other, though it was not played"
            await client.send("close_context", "a")
            await client.receive("contextClosed")

    run(test)


def test_a_message_without_a_context_is_of_the_only_one(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.send("send_text", text="")
            assert await client.error() == (3, "There is no open context on this connection")
            await client.create("a")
            await client.send("send_text", text="One two. ")
            await client.receive("audioChunk")
            await client.create("b")
            await client.send("flush_context")
            assert await client.error() == (3, "context_id is required: 2 contexts are open")
            await client.say("One.", "c")
            assert await client.error() == (5, "Context c not found")
            await client.create("a")
            assert await client.error() == (6, "Context a already exists")

    run(test)


def test_fields_may_be_in_either_spelling(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            audio = {"audio_encoding": "PCM", "sample_rate_hertz": 24_000}
            create = {"voice_id": "tone-440", "model_id": "inworld-tts-2", "audio_config": audio}
            for message in (
                {"create": create, "context_id": "a"},
                {"sendText": {"text": "One two."}, "context_id": "a"},
                {"flushContext": {}, "context_id": "a"},
                {"closeContext": {}, "context_id": "a"},
            ):
                await client.socket.send(json.dumps(message))
            await client.receive("contextClosed")
            assert client.words_spoken() >= 2 and not client.words["a"]  # no times were asked for

    run(test)


@pytest.mark.parametrize("encoding", ["LINEAR16", "WAV", "MULAW", "MP3", "OGG_OPUS", "FLAC"])
def test_every_encoding_has_the_length_of_the_speech(run: Any, encoding: str) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            rate = 8_000 if encoding == "MULAW" else 24_000
            await client.create(audioConfig={"audioEncoding": encoding, "sampleRateHertz": rate})
            await client.say("One two three. ")
            await client.end("a")
            pieces = []
            while "contextClosed" not in (result := await client.next()):
                if chunk := result.get("audioChunk"):
                    pieces.append(base64.b64decode(chunk["audioContent"]))
            if encoding == "LINEAR16":
                samples = [piece[WAV_HEADER_BYTES:] for piece in pieces]
                assert pieces == [wav_file(one, rate) for one in samples if one]
                assert len(b"".join(samples)) >= 3 * WORD_BYTES
            elif encoding == "MULAW":
                assert len(b"".join(pieces)) >= 3 * WORD_S * rate
            else:
                begin = {"WAV": b"RIFF", "MP3": b"\xff", "OGG_OPUS": b"OggS", "FLAC": b"fLaC"}[encoding]
                assert pieces[0].startswith(begin) and sum(piece[:4] == b"RIFF" for piece in pieces) <= 1

    run(test)


@pytest.mark.parametrize(
    ("message", "word"),
    [
        ("no JSON", "JSON"),
        ("[1]", "object"),
        ({}, "exactly one of create"),
        ({"send_text": {"text": "One."}, "flush_context": {}}, "exactly one of create"),
        ({"send_text": {"text": 5}}, "send_text.text"),
        ({"contextId": "\ud800", "flush_context": {}}, "contextId"),
        ({"flush_context": {"other": "x" * MAX_MESSAGE_BYTES}}, "longer"),
        ({"send_text": {"text": "x" * 40_001}}, "send_text.text"),
        ({"create": {}}, "voiceId"),
        ({"create": {"voiceId": "v", "audioConfig": {"audioEncoding": "AAC"}}}, "audioEncoding"),
        ({"create": {"voiceId": "v", "audioConfig": {"speakingRate": 9.0}}}, "speakingRate"),
        ({"create": {"voiceId": "v", "maxBufferDelayMs": -1}}, "maxBufferDelayMs"),
    ],
)
def test_a_wrong_message_is_an_error_and_ends_nothing(run: Any, message: Any, word: str) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.create()
            named = {"contextId": "a", **message} if isinstance(message, dict) else message
            await client.socket.send(json.dumps(named) if isinstance(named, dict) else named)
            code, text = await client.error()
            assert code == 3 and word in text
            await client.say("One. ")
            await client.end("a")
            await client.receive("contextClosed")

    run(test)


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"voice": "nobody"}, 5), ({"audioConfig": {"audioEncoding": "MP3", "sampleRateHertz": 7}}, 3)],
)
def test_a_context_that_cannot_be_created_is_reported_closed(
    run: Any, fields: dict[str, Any], code: int
) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.create(**fields)
            assert (await client.error())[0] == code
            await client.receive("contextClosed")

    run(test)


def test_a_context_that_fails_is_reported_closed(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.create("a", voice="Ashley")  # of Inworld's catalogue
            await client.say("\u4f60\u597d")
            await client.end("a")
            assert (await client.error())[0] == 3
            await client.receive("contextClosed")
            await client.create("b")
            await client.say("One. ", "b")
            await client.receive("audioChunk", "b")

    run(test)


def test_waiting_flushes_are_bounded(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript_queue, "MAX_WAITING_TRANSCRIPTS", 8)

    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.create()
            await client.say("One two three four five six.")
            for _ in range(10):
                await client.send("flush_context", "a")
            assert (await client.error())[0] == 8
            await client.send("close_context", "a")
            while "contextClosed" not in await client.next():
                pass
            assert client.flushes["a"] == 8 and client.words_spoken() >= 6

    run(test, step_s=0.05)


def test_keys_and_their_limits_are_checked(run: Any, tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    poor = keys.add("poor", (Scope.SPEAK,), KeyLimits(requests_per_minute=2))

    async def test(served: Any) -> None:
        for headers in ({}, {"Authorization": "Basic wrong"}):
            with pytest.raises(InvalidStatus) as refused:
                async with open_socket(served, headers):
                    pass
            assert refused.value.response.status_code == 401
            assert json.loads(refused.value.response.body)["code"] == 16
        async with open_socket(served, query=f"?authorization=Basic%20{poor}") as client:
            await client.create("a")
            await client.receive("contextCreated")
        async with open_socket(served, {"Authorization": f"Basic {poor}"}) as client:
            await client.create("a")
            await client.receive("contextCreated")
            await client.create("b")
            assert (await client.error())[0] == 8

    run(test, access=AccessControl(keys))


def test_idle_contexts_and_connections_are_closed(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "MAX_SILENCE_S", 0.3)
    monkeypatch.setattr(socket_api, "MAX_SILENCE_S", 0.3)

    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.create()
            await client.say("One two")
            await client.receive("contextClosed")
            assert client.words_spoken() >= 2
            assert await closing_code(client) == 1000

    run(test)
