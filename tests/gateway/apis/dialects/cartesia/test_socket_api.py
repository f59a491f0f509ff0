"""Cartesia's socket: contexts side by side, flushes, cancellation, limits, errors and the end."""

import base64
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from shared.audio.tones import pitch_of
from shared.counted_work import counted_callbacks
from shared.engine.standin_backend import WORD_S
from shared.event_loop import until
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.apis.dialects.cartesia.socket_api import PATH
from vivavoce.gateway.apis.kits.request_fields import MAX_MESSAGE_BYTES

WORD_BYTES = round(2 * 24_000 * WORD_S)
RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}


class CartesiaClient:
    """A client: sends texts of contexts; keeps audio, words and other messages by context."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.audio: defaultdict[str, bytes] = defaultdict(bytes)
        self.words: defaultdict[str, list[tuple[str, float, float]]] = defaultdict(list)
        self.order: list[tuple[str, str]] = []  # (context, type) of every message

    async def say(self, context: str, transcript: str, *, voice: str = "tone-440", **fields: Any) -> None:
        message = {"model_id": "sonic-3", "context_id": context, "transcript": transcript}
        await self.socket.send(
            json.dumps({**message, "voice": {"mode": "id", "id": voice}, "output_format": RAW, **fields})
        )

    async def cancel(self, context: str) -> None:
        await self.socket.send(json.dumps({"context_id": context, "cancel": True}))

    async def next(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(await self.socket.recv())
        context = event.get("context_id", "")
        self.order.append((context, event["type"]))
        if event["type"] == "chunk":
            self.audio[context] += base64.b64decode(event["data"])
        elif event["type"] == "timestamps":
            times = event["word_timestamps"]
            self.words[context] += zip(times["words"], times["start"], times["end"], strict=True)
        return event

    async def until(self, event_type: str, context: str | None = None) -> dict[str, Any]:
        while True:
            event = await self.next()
            if event["type"] == event_type and context in (None, event.get("context_id")):
                return event

    def words_spoken(self, context: str) -> int:
        return round(len(self.audio[context]) / WORD_BYTES)


@asynccontextmanager
async def open_socket(
    served: Any, query: str = "", headers: dict[str, str] | None = None
) -> AsyncIterator[CartesiaClient]:
    host, port = served.address
    url = f"ws://{host}:{port}{PATH}?cartesia_version=2026-03-01{query}"
    async with connect(url, additional_headers=headers, proxy=None, max_size=None) as socket:
        yield CartesiaClient(socket)


def test_text_is_spoken_while_it_is_written(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.say("a", "One two, ", **{"continue": True}, add_timestamps=True)
            await client.until("chunk")
            await client.say("a", "three four.", **{"continue": True})
            await client.say("a", "", **{"continue": False})
            done = await client.until("done")
            assert done == {"type": "done", "done": True, "status_code": 200, "context_id": "a"}
            assert client.words_spoken("a") >= 4
            assert [word for word, _, _ in client.words["a"]] == ["One", "two,", "three", "four."]
            times = [time for _, start, stop in client.words["a"] for time in (start, stop)]
            assert times == sorted(times) and times[-1] <= len(client.audio["a"]) / 48_000
            assert served.backend.open_slots == 0

    run(test)


def test_a_request_without_continue_is_a_whole_context_and_its_id_may_be_used_again(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            for _ in range(3):
                client.audio.clear()
                await client.say("a", "One two three.")
                await client.until("done")
                assert client.words_spoken("a") >= 3
                assert not client.words["a"]  # not asked for

    run(test)


@pytest.mark.slow
def test_fifty_contexts_interleave_and_none_gets_anothers_sound(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            for number in range(50):
                await client.say(
                    str(number), "One two three four five six.", voice=("tone-440", "tone-330")[number % 2]
                )
            for _ in range(50):
                await client.until("done")
            for number in range(50):
                pcm = np.frombuffer(client.audio[str(number)], "<i2")
                assert client.words_spoken(str(number)) >= 6
                assert pitch_of(pcm) == pytest.approx((440, 330)[number % 2], rel=0.02)
            switches = sum(
                one[0] != other[0] for one, other in zip(client.order, client.order[1:], strict=False)
            )
            assert switches > 100  # 49 if one came after the other

    run(test, slots=64)


def test_a_flush_speaks_what_there_is_and_is_reported_after_its_audio(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.say("a", "One two", **{"continue": True}, flush=True, add_timestamps=True)
            flushed = await client.until("flush_done")
            assert (flushed["flush_id"], flushed["flush_done"], flushed["done"]) == (1, True, False)
            assert client.words_spoken("a") >= 2
            assert served.backend.open_slots == 0  # nothing is held between two transcripts
            await client.say("a", "three", **{"continue": True}, flush=True)
            assert (await client.until("flush_done"))["flush_id"] == 2
            await client.say("a", "four", **{"continue": False})
            await client.until("done")
            assert [word for word, _, _ in client.words["a"]] == ["One", "two", "three", "four"]
            starts = [start for _, start, _ in client.words["a"]]
            assert starts == sorted(starts) and starts[2] >= 2 * WORD_S  # in the audio of the context

    run(test)


def test_a_client_that_buffers_itself_is_spoken_message_by_message(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            for text in ("One two ", "three "):
                await client.say("a", text, **{"continue": True}, max_buffer_delay_ms=0)
            await client.say("a", " ", **{"continue": False}, max_buffer_delay_ms=0)
            await client.until("done")
            assert client.words_spoken("a") >= 3
            assert [kind for _, kind in client.order if kind == "flush_done"] == ["flush_done"] * 3

    run(test)


def test_text_that_does_not_go_on_is_spoken_after_the_buffer_delay(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.say("a", "One two", **{"continue": True}, max_buffer_delay_ms=100)
            await client.until("chunk")
            await until(lambda: served.backend.open_slots == 0)
            await client.say("a", " three", **{"continue": False}, max_buffer_delay_ms=100)
            await client.until("done")
            assert client.words_spoken("a") >= 3
            assert "flush_done" not in {kind for _, kind in client.order}

    run(test)


def test_nothing_of_a_cancelled_context_is_sent_and_others_go_on(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.say("a", "One two three four five six seven eight nine ten. " * 20)
            await client.say("b", "One two three four five six.", voice="tone-330")
            await client.until("chunk", "a")
            await client.cancel("a")
            await client.cancel("unknown")
            await client.say("c", "One.")
            await client.until("done", "c")
            contexts = [context for context, _ in client.order]
            assert "a" not in contexts[contexts.index("c") :]  # the cancel was read before the text of c
            assert ("a", "done") not in client.order
            if ("b", "done") not in client.order:
                await client.until("done", "b")
            assert client.words_spoken("b") >= 6
            await until(lambda: served.backend.open_slots == 0)
            await client.say("a", "One two.")  # a new context
            await client.until("done", "a")

    run(test, step_s=0.005)


def test_the_voice_of_a_catalogue_is_the_default_voice_and_another_name_an_error(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.say("a", "One two.", voice="f786b574-daa5-4673-aa0c-cbe3e8534c02")
            await client.until("done")
            assert pitch_of(np.frombuffer(client.audio["a"], "<i2")) == pytest.approx(440, rel=0.02)
            await client.say("b", "One two.", voice="nobody")
            error = await client.until("error")
            assert (error["status_code"], error["error_code"], error["context_id"]) == (
                404, "voice_not_found", "b",
            )  # fmt: skip
            assert error["done"] is True and error["request_id"].startswith("req_")

    run(test)


@pytest.mark.parametrize("encoding", ["pcm_s16le", "pcm_f32le", "pcm_mulaw", "pcm_alaw"])
def test_every_raw_encoding_has_the_length_of_the_speech(run: Any, encoding: str) -> None:
    sample_bytes = {"pcm_s16le": 2, "pcm_f32le": 4}.get(encoding, 1)

    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            output = {"container": "raw", "encoding": encoding, "sample_rate": 8_000}
            await client.say("a", "One two three.", output_format=output)
            await client.until("done")
            assert len(client.audio["a"]) % sample_bytes == 0
            assert len(client.audio["a"]) / (8_000 * sample_bytes) == pytest.approx(3 * WORD_S, abs=0.1)
            if encoding == "pcm_f32le":
                assert 0.1 < np.abs(np.frombuffer(client.audio["a"], "<f4")).max() <= 1.0

    run(test)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("no JSON", "JSON"),
        ("[1]", "object"),
        ({}, "model_id"),
        ({"transcript": 5}, "transcript"),
        ({"transcript": "\ud800"}, "transcript"),
        ({"voice": {"mode": "embedding", "embedding": [0.1]}}, "voice"),
        ({"output_format": {"container": "raw", "sample_rate": 24_000}}, "encoding"),
        ({"output_format": RAW | {"sample_rate": 12_345}}, "sample_rate"),
        ({"output_format": RAW | {"container": "wav"}}, "container"),
        ({"max_buffer_delay_ms": 5_001}, "max_buffer_delay_ms"),
        ({"generation_config": {"speed": 99.0}}, "generation_config.speed"),
        ({"context_id": ""}, "context_id"),
        ({"context_id": "\ud800"}, "context_id"),
        ({"other": "x" * MAX_MESSAGE_BYTES}, "longer"),
        ({"context_id": "a" * 257}, "context_id"),
    ],
)
def test_a_wrong_message_is_an_error_and_the_next_one_is_spoken(run: Any, message: Any, field: str) -> None:
    good = {"model_id": "sonic-3", "context_id": "a", "transcript": "One.", "voice": "tone-440"}

    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            wrong = message
            if isinstance(message, dict):
                wrong = json.dumps({**good, "output_format": RAW, **message} if message else {})
            await client.socket.send(wrong)
            error = await client.next()
            assert (error["type"], error["status_code"]) == ("error", 400)
            assert field in error["message"]
            await client.say("b", "One two.")
            await client.until("done", "b")

    run(test)


def test_text_after_the_end_is_refused_and_what_came_before_is_spoken(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.say("a", "One two three four five six.")
            await client.say("a", "seven.")
            assert (await client.until("error"))["error_code"] == "context_closed"
            await client.until("done")
            assert client.words_spoken("a") == pytest.approx(6, abs=1)

    run(test, step_s=0.02)


def test_a_failed_context_is_one_error_until_the_client_ends_it(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            going_on = {"continue": True}
            for _ in range(50):
                await client.say("a", "word ", voice="nobody", **going_on)
            await client.say("a", "", voice="nobody", **{"continue": False})
            await client.say("b", "One. ", voice="nobody", **going_on)
            await client.socket.send(json.dumps({"context_id": "b", "cancel": True}))
            for context in ("a", "b"):  # the ids are free again
                await client.say(context, "One two three.")
            events = [await client.next()]
            while [event["type"] for event in events].count("done") < 2:
                events.append(await client.next())
            errors = [event["context_id"] for event in events if event["type"] == "error"]
            assert errors == ["a", "b"]
            assert client.words_spoken("a") >= 3 and client.words_spoken("b") >= 3

    run(test)


def test_a_context_without_text_is_done_at_once(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            for text in ("", " "):
                await client.say("a", text)
                assert (await client.next())["type"] == "done"

    run(test)


def test_a_context_whose_voice_breaks_is_one_error_until_the_client_ends_it(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            going_on = {"continue": True}
            await client.say("a", "One two three. Four five six. ", **going_on)
            await client.until("error", "a")
            for _ in range(3):
                await client.say("a", "One two three. Four five six. ", **going_on)
            await client.say("a", "", **{"continue": False})
            await client.say("b", "One two three.")
            await client.until("error", "b")
            assert [context for context, kind in client.order if kind == "error"] == ["a", "b"]

    run(test, broken_after=1)


def test_keys_in_headers_and_in_the_query(run: Any, tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("client", (Scope.SPEAK,), KeyLimits())
    poor = keys.add("poor", (Scope.SPEAK,), KeyLimits(characters_per_minute=10))

    async def test(served: Any) -> None:
        for place in ({"X-API-Key": key}, {"Authorization": f"Bearer {key}"}):
            async with open_socket(served, headers=place) as client:
                await client.say("a", "One.")
                await client.until("done")
        for name in ("api_key", "access_token"):
            async with open_socket(served, f"&{name}={key}") as client:
                await client.say("a", "One.")
                await client.until("done")
        with pytest.raises(InvalidStatus) as refused:
            async with open_socket(served, "&api_key=wrong"):
                pass
        assert refused.value.response.status_code == 401
        assert json.loads(refused.value.response.body)["error_code"] == "unauthorized"
        async with open_socket(served, headers={"X-API-Key": poor}) as client:
            await client.say("a", "One two.", **{"continue": True})
            await client.say("a", "One two.")
            assert (await client.until("error", "a"))["status_code"] == 429

    run(test, access=AccessControl(keys))


def test_breaks_in_a_transcript_are_exact_and_no_word_has_a_tag(run: Any) -> None:
    text = 'One two.<break time="1.23s"/>Three <spell>A1</spell> <speed ratio="1.2"/>four.'

    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            for name, parts in (("whole", [text]), ("split", list(text))):
                for part in parts:
                    await client.say(name, part, **{"continue": True}, add_timestamps=True)
                await client.say(name, "", **{"continue": False})
                await client.until("done", name)
                words = client.words[name]
                assert [word for word, _, _ in words] == ["One", "two.", "Three", "A1", "four."]
                assert words[2][1] == pytest.approx(2 * WORD_S + 1.23, abs=0.01)
                assert words[4][1] == pytest.approx(5 * WORD_S + 1.23, abs=0.01)  # "A one" is two words
                seconds = len(client.audio[name]) / 48_000
                assert seconds == pytest.approx(6 * WORD_S + 1.23 + 0.02, abs=0.01)

    run(test)


@pytest.mark.parametrize("unit", ["<break/>", "<", "<spell>a</spell>", '<speed ratio="1"/>a'])
def test_a_long_transcript_of_tags_is_taken_in_slices(run: Any, unit: str) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            with counted_callbacks() as calls:
                await client.say("a", (unit * 40_000)[:39_996], **{"continue": True})
                await client.say("b", "One.", **{"continue": False})
                await client.until("done", "b")
            await client.cancel("a")
            assert max(calls) < 20_000

    run(test)
