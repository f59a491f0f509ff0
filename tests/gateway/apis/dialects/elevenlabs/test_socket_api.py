"""ElevenLabs' sockets: one text, contexts side by side, times of characters, limits, errors and the end."""

import asyncio
import base64
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from shared.engine.standin_backend import WORD_S
from shared.event_loop import until
from vivavoce.gateway.apis.kits.request_fields import MAX_MESSAGE_BYTES

WORD_BYTES = round(2 * 24_000 * WORD_S)
RAW = "output_format=pcm_24000"


class ElevenLabsClient:
    """A client: sends texts of contexts; keeps audio and characters by context."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.audio: defaultdict[str, bytes] = defaultdict(bytes)
        self.characters: defaultdict[str, list[tuple[str, int, int]]] = defaultdict(list)
        self.order: list[str] = []  # contexts of all messages

    async def say(self, text: str | None = None, context: str | None = None, **fields: Any) -> None:
        message = {"text": text, "context_id": context, **fields}
        kept = {name: value for name, value in message.items() if value is not None}
        await self.socket.send(json.dumps(kept))

    async def end(self, context: str | None = None) -> None:
        """End the text of a context, as clients do."""
        await self.say(context=context, flush=True)
        await self.say(context=context, close_context=True)

    async def next(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(await self.socket.recv())
        context = event.get("contextId", "")
        assert event.get("context_id", "") == context
        self.order.append(context)
        self.audio[context] += base64.b64decode(event.get("audio", ""))
        if alignment := event.get("alignment"):
            assert alignment == event["normalizedAlignment"]
            known = self.characters[context]
            offset = known[-1][2] if known else 0
            for character, start, duration in zip(*alignment.values(), strict=True):
                known.append((character, offset + start, offset + start + duration))
        return event

    async def final(self, context: str = "") -> None:
        while not ((event := await self.next()).get("isFinal") and event.get("contextId", "") == context):
            assert "error" not in event, event

    async def error(self) -> dict[str, Any]:
        while "error" not in (event := await self.next()):
            pass
        return event

    def text(self, context: str = "") -> str:
        return "".join(character for character, _, _ in self.characters[context])

    def words_spoken(self, context: str = "") -> int:
        return round(len(self.audio[context]) / WORD_BYTES)


@asynccontextmanager
async def open_socket(
    served: Any,
    path: str = "multi-stream-input",
    query: str = RAW,
    voice: str = "tone-440",
    headers: dict[str, str] | None = None,
) -> AsyncIterator[ElevenLabsClient]:
    host, port = served.address
    url = f"ws://{host}:{port}/v1/text-to-speech/{voice}/{path}?model_id=eleven_flash_v2_5&{query}"
    async with connect(url, additional_headers=headers, proxy=None, max_size=None) as socket:
        yield ElevenLabsClient(socket)


async def closing_code(client: ElevenLabsClient) -> int:
    with pytest.raises(ConnectionClosed) as closed:
        while True:
            await client.next()
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code


def test_one_text_is_spoken_while_it_is_written_and_the_socket_closes(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served, "stream-input") as client:
            await client.say(" ", voice_settings={"stability": 0.5}, generation_config=SCHEDULE)
            await client.say("One two, ", try_trigger_generation=True)
            await client.next()
            await client.say("three four. ")
            await client.say("")
            await client.final()
            assert await closing_code(client) == 1000
            assert client.words_spoken() >= 4
            assert client.text() == " One two, three four. "
            times = [time for _, start, stop in client.characters[""] for time in (start, stop)]
            assert times == sorted(times) and times[-1] <= len(client.audio[""]) / 48 + 1
            assert served.backend.open_slots == 0

    run(test)


SCHEDULE = {"chunk_length_schedule": [50]}


def test_times_count_from_the_beginning_where_alignment_is_synchronous(run: Any) -> None:
    async def test(served: Any) -> None:
        last_times = []
        for query in (RAW, f"{RAW}&sync_alignment=true"):
            async with open_socket(served, query=query) as client:
                await client.say("One two three four five six. ", "a", close_context=True)
                starts = []
                while not (event := await client.next()).get("isFinal"):
                    starts += event["alignment"]["charStartTimesMs"] if "alignment" in event else []
                last_times.append((max(starts), client.characters["a"][-1][1]))
        (_, true_ms), (absolute_ms, _) = last_times
        assert absolute_ms == true_ms and last_times[0][0] < true_ms

    run(test)


def test_a_flush_speaks_what_there_is(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.say("One two", "a", flush=True)
            while client.words_spoken("a") < 2:
                await client.next()
            await client.say(" three", "a")
            await client.say(None, "a", flush=True)
            await client.end("a")
            await client.final("a")
            assert client.words_spoken("a") >= 3
            assert client.text("a").split() == ["One", "two", "three"]

    run(test)


def test_a_phrase_is_spoken_at_once_in_auto_mode(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served, query=f"{RAW}&auto_mode=true") as client:
            await client.say(" ", "a")
            await client.say("One two", "a")
            while client.words_spoken("a") < 2:
                await client.next()
            await client.say("three", "a")
            await client.end("a")
            await client.final("a")
            assert client.text("a").split() == ["One", "two", "three"]

    run(test)


def test_contexts_of_different_lengths_get_their_own_words(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            numbers = range(1, 9)
            for number in numbers:
                await client.say("word " * number, str(number))
                await client.end(str(number))
            for _ in numbers:
                while not (await client.next()).get("isFinal"):
                    pass
            for number in numbers:
                assert number <= client.words_spoken(str(number)) <= number + 2  # with the pause at its end
                assert client.text(str(number)).split() == ["word"] * number

    run(test, slots=16)


def test_a_closed_context_is_spoken_to_its_end_and_takes_no_more_text(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.say("One two three four five six. ", "a")
            await client.end("a")
            await client.say("seven. ", "a")
            assert (await client.error())["error"] == "context_closed"
            await client.say(context="unknown", close_context=True)
            await client.final("a")
            assert client.words_spoken("a") >= 6
            await client.say("One. ", "a", close_context=True)  # a new context
            await client.final("a")

    run(test, step_s=0.02)


LONG_TEXT = "One two three four five six. " * 200
INTERRUPTIONS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "in the middle of its text": (RAW, [{"text": LONG_TEXT}]),
    "in the middle of its text, after a flush": (
        RAW,
        [{"text": "One. ", "flush": True}, {"text": LONG_TEXT}, {"text": ""}],
    ),
    "after a phrase, which a client may flush in auto mode": (
        f"{RAW}&auto_mode=true",
        [{"text": " "}, {"text": LONG_TEXT, "flush": True}],
    ),
    "once more": (RAW, [{"text": LONG_TEXT}, {"flush": True}, {"close_context": True}]),
}


@pytest.mark.parametrize(("query", "messages"), INTERRUPTIONS.values(), ids=INTERRUPTIONS)
def test_a_context_that_is_closed_by_an_interruption_is_dropped(
    run: Any, query: str, messages: list[dict[str, Any]]
) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served, query=query) as client:
            for message in messages:
                await client.say(context="a", **message)
            await client.say("One two three. ", "b", flush=True)
            while not client.audio["a"]:
                await client.next()
            await client.say(context="a", close_context=True)  # the user interrupts
            await client.final("a")
            spoken = client.words_spoken("a")
            assert spoken < 600
            await client.end("b")
            await client.final("b")
            assert client.words_spoken("a") == spoken and client.text("b").strip() == "One two three."
            await until(lambda: not served.engine.active_streams)
            assert served.backend.steps < 600  # of 1,203 words

    run(test, step_s=0.005)


@pytest.mark.parametrize("query", [RAW, f"{RAW}&auto_mode=true"])
def test_a_context_that_is_closed_after_a_flush_is_spoken_to_its_end(run: Any, query: str) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served, query=query) as client:
            for number, flush in enumerate(({"text": " ", "flush": True}, {"flush": True})):
                context = str(number)
                await client.say("One two three four five six. ", context)
                await client.say(context=context, **flush)
                await client.say("", context)  # keeps it open
                await client.say(context=context, close_context=True)
                await client.final(context)
                assert client.words_spoken(context) >= 6

    run(test, step_s=0.02)


def test_a_context_is_rendered_at_the_pace_of_its_playout(
    run: Any, first_listener_plays_nothing: None
) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.say(LONG_TEXT, "a")
            await client.end("a")
            while not client.words_spoken("a"):
                await client.next()
            await client.say("One two three four five six. " * 10, "b")
            await client.end("b")
            await client.final("b")
            assert client.words_spoken("b") >= 60
            assert client.words_spoken("a") <= 2, "it went on beside the other, though it was not played"
            await client.say(context="a", close_context=True)
            await client.final("a")

    run(test)


def test_both_spellings_of_the_context_are_read_and_none_is_the_default_one(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.socket.send(json.dumps({"text": "One. ", "contextId": "b", "close_context": True}))
            await client.final("b")
            await client.say("One two. ", close_context=True)
            await client.final("default")

    run(test)


def test_a_silent_context_ends_and_a_keep_alive_keeps_it(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served, query=f"{RAW}&inactivity_timeout=1") as client:
            await client.say("One two", "silent")
            await client.say("One two", "kept")
            for _ in range(3):
                await asyncio.sleep(0.5)
                await client.say("", "kept")
            await client.final("silent")
            assert client.text("silent").split() == ["One", "two"]
            await client.say(" three.", "kept", close_context=True)
            await client.final("kept")
            assert client.text("kept").split() == ["One", "two", "three."]

    run(test)


def test_a_single_text_that_falls_silent_ends(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served, "stream-input", f"{RAW}&inactivity_timeout=1") as client:
            await client.say("One two")
            await client.final()
            assert client.words_spoken() >= 2

    run(test)


def test_the_socket_closes_after_what_there_is_when_it_is_asked_to(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.say("One two three. ", "a")
            await client.say("One two. ", "b")
            await client.say(close_socket=True)
            assert await closing_code(client) == 1000
            assert client.words_spoken("a") >= 3 and client.words_spoken("b") >= 2
        async with open_socket(served) as client:
            await client.say(close_socket=True)
            assert await closing_code(client) == 1000

    run(test)


@pytest.mark.parametrize(
    ("message", "word"),
    [
        ("no JSON", "JSON"),
        ("[1]", "object"),
        ({"text": 5}, "text"),
        ({"context_id": ""}, "context_id"),
        ({"context_id": "\ud800"}, "context_id"),
        (json.dumps({"text": "One. ", "context_id": "a", "other": "x" * MAX_MESSAGE_BYTES}), "longer"),
        ({"voice_settings": {"speed": 99}}, "voice_settings.speed"),
        ({"generation_config": {"chunk_length_schedule": [1]}}, "chunk_length_schedule"),
        ({"text": "x" * 40_001}, "text"),
    ],
)
def test_a_wrong_message_is_an_error_and_ends_only_a_socket_of_one_text(
    run: Any, message: Any, word: str
) -> None:
    async def test(served: Any) -> None:
        wrong = json.dumps({"text": "One. ", **message}) if isinstance(message, dict) else message
        async with open_socket(served) as client:
            await client.socket.send(wrong)
            error = await client.error()
            assert (error["error"], error["code"]) == ("invalid_request", 1008)
            assert word in error["message"]
            await client.say("One. ", "b", close_context=True)
            await client.final("b")
        async with open_socket(served, "stream-input") as client:
            await client.socket.send(wrong)
            await client.error()
            assert await closing_code(client) == 1008

    run(test)


def test_an_error_of_a_context_is_followed_by_its_end(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.say("\u4f60\u597d", "a", close_context=True)
            assert (await client.error())["contextId"] == "a"
            assert (await client.next()) == {"isFinal": True, "contextId": "a", "context_id": "a"}
            await client.say("One. ", "b", close_context=True)
            await client.final("b")

    run(test)


@pytest.mark.parametrize(
    ("voice", "query", "status"),
    [
        ("nobody", RAW, 404),
        ("tone-440", "output_format=ogg", 400),
        ("tone-440", "inactivity_timeout=181", 422),
        ("tone-440", "auto_mode=perhaps", 422),
    ],
)
def test_a_wrong_address_is_refused_before_the_socket_opens(
    run: Any, voice: str, query: str, status: int
) -> None:
    async def test(served: Any) -> None:
        with pytest.raises(InvalidStatus) as refused:
            async with open_socket(served, voice=voice, query=query):
                pass
        assert refused.value.response.status_code == status
        assert json.loads(refused.value.response.body)["detail"]

    run(test)
