"""The Realtime socket: what is spoken, the order of its events, interruptions, formats, the beta's names."""

import json
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from shared.engine.standin_backend import WORD_S
from shared.event_loop import until
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope

TEXT = "One two three four five six."


class Connection:
    """A client of the socket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def send(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def say(self, text: str, role: str = "assistant", **response: Any) -> None:
        """Add a message and ask for a response."""
        content = [{"type": "output_text" if role == "assistant" else "input_text", "text": text}]
        await self.send(
            "conversation.item.create", item={"type": "message", "role": role, "content": content}
        )
        await self.send("response.create", response=response)

    async def until(self, kind: str) -> list[dict[str, Any]]:
        """Return the events up to the first of that type."""
        events = []
        while not events or events[-1]["type"] != kind:
            events.append(json.loads(await self.socket.recv()))
            assert kind == "error" or events[-1]["type"] != "error", events[-1]
        return events

    async def answer(self) -> list[dict[str, Any]]:
        """Return the events of a response."""
        events = await self.until("response.done")
        return [event for event in events if event["type"].startswith("response.")]

    async def error(self) -> dict[str, Any]:
        error: dict[str, Any] = (await self.until("error"))[-1]["error"]
        return error


@asynccontextmanager
async def open_connection(
    served: Any, query: str = "model=gpt-realtime", **options: Any
) -> AsyncIterator[Connection]:
    host, port = served.address
    url = f"ws://{host}:{port}/v1/realtime?{query}"
    async with connect(url, proxy=None, max_size=None, **options) as socket:
        connection = Connection(socket)
        await connection.until("session.created")
        yield connection


def audio_of(events: list[dict[str, Any]], kind: str = "response.output_audio.delta") -> bytes:
    return b"".join(b64decode(event["delta"]) for event in events if event["type"] == kind)


def transcript_of(events: list[dict[str, Any]]) -> str:
    kind = "response.output_audio_transcript.delta"
    return "".join(event["delta"] for event in events if event["type"] == kind)


def types_of(events: list[dict[str, Any]]) -> list[str]:
    """Return the types in their order, repeated ones once."""
    return list(dict.fromkeys(event["type"] for event in events))


def test_a_response_has_the_events_of_the_service_in_their_order(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        async with open_connection(served) as client:
            await client.say(TEXT, metadata={"turn": "1"})
            created = await client.until("response.created")
            events = await client.until("response.done")
            assert types_of(events) == [
                "response.output_item.added",
                "conversation.item.added",
                "response.content_part.added",
                "response.output_audio_transcript.delta",
                "response.output_audio.delta",
                "response.output_audio.done",
                "response.output_audio_transcript.done",
                "response.content_part.done",
                "response.output_item.done",
                "conversation.item.done",
                "response.done",
            ]
            response = events[-1]["response"]
            assert response["id"] == created[-1]["response"]["id"]
            assert (response["status"], response["metadata"]) == ("completed", {"turn": "1"})
            assert response["output"][0]["content"] == [{"type": "output_audio", "transcript": TEXT}]
            assert response["usage"]["output_token_details"]["audio_tokens"] >= 25 * 6 * WORD_S
            assert len(audio_of(events)) == pytest.approx(48_000 * (6 * WORD_S + 0.02), abs=20_000)
            assert transcript_of(events) == TEXT
            ids = [event["event_id"] for event in (*created, *events)]
            assert len(set(ids)) == len(ids) and all(ids)

    run_every_api(test)


@pytest.mark.parametrize(
    ("response", "spoken"),
    [
        ({}, "Assistant."),
        ({"instructions": "Cheerfully"}, "Assistant."),
        ({"conversation": "none"}, "Assistant."),
        ({"input": [], "instructions": "As told."}, "As told."),
        ({"input": [{"type": "item_reference", "id": "first"}]}, "User."),
        (
            {
                "input": [
                    {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "In."}]}
                ]
            },
            "In.",
        ),
    ],
)
def test_what_is_spoken(run_every_api: Any, response: dict[str, Any], spoken: str) -> None:
    async def test(served: Any) -> None:
        async with open_connection(served) as client:
            for item_id, role, text in (("first", "user", "User."), ("second", "assistant", "Assistant.")):
                content = [{"type": "text", "text": text}]
                item = {"id": item_id, "type": "message", "role": role, "content": content}
                await client.send("conversation.item.create", item=item)
            await client.send("response.create", response=response)
            events = await client.answer()
            assert transcript_of(events) == spoken
            in_conversation = response.get("conversation") != "none"
            assert (events[-1]["response"]["conversation_id"] is not None) is in_conversation

    run_every_api(test)


def test_a_message_is_spoken_once_and_that_of_a_user_if_there_is_no_other(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        async with open_connection(served) as client:
            for text in ("Say hello!", "And again."):
                await client.say(text, "user")
                assert transcript_of(await client.answer()) == text
            await client.send("response.create", event_id="mine")
            error = await client.error()
            assert (error["type"], error["param"]) == ("invalid_request_error", "response.input")
            assert error["event_id"] == "mine"

    run_every_api(test)


def test_responses_are_spoken_one_after_the_other(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        async with open_connection(served) as client:
            for number in range(3):
                await client.say(f"Number {number}.")
            spoken = [transcript_of(await client.answer()) for _ in range(3)]
            assert spoken == ["Number 0.", "Number 1.", "Number 2."]

    run_every_api(test)


@pytest.mark.parametrize("names_it", [True, False])
def test_a_cancelled_response_ends_and_the_next_is_spoken(run_every_api: Any, names_it: bool) -> None:
    async def test(served: Any) -> None:
        served.backend.step_s = 0.005
        async with open_connection(served) as client:
            await client.say(TEXT * 60)
            created = await client.until("response.created")
            await client.until("response.output_audio.delta")
            await client.send("response.create", response={"instructions": "One two.", "input": []})
            named = {"response_id": created[-1]["response"]["id"]} if names_it else {}
            await client.until("response.created")
            await client.send("response.cancel", **named)
            cancelled = (await client.answer())[-1]["response"]
            assert cancelled["status"] == "cancelled"
            assert cancelled["status_details"] == {
                "type": "cancelled",
                "reason": "client_cancelled",
                "error": None,
            }
            assert cancelled["output"][0]["status"] == "incomplete"
            heard = cancelled["output"][0]["content"][0]["transcript"]
            assert (TEXT * 60).startswith(heard) and len(heard) < 30 * len(TEXT)
            following = await client.answer()
            assert following[-1]["response"]["status"] == ("completed" if names_it else "cancelled")
            await client.send("response.cancel")
            assert (await client.error())["code"] == "response_cancel_not_active"
            await until(lambda: served.backend.open_slots == 0)

    run_every_api(test)


def test_an_item_is_cut_to_what_was_heard(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        async with open_connection(served) as client:
            await client.say(TEXT)
            item_id = (await client.answer())[-1]["response"]["output"][0]["id"]
            end_ms = round(1_000 * (2.9 * WORD_S))  # the middle of the third word has been played
            await client.send(
                "conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=end_ms
            )
            truncated = (await client.until("conversation.item.truncated"))[-1]
            assert truncated["transcript"] == "One two three"
            await client.send("conversation.item.retrieve", item_id=item_id)
            item = (await client.until("conversation.item.retrieved"))[-1]["item"]
            assert item["content"] == [{"type": "output_audio", "transcript": "One two three"}]
            await client.send(
                "conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=end_ms + 1
            )
            error = await client.error()
            assert error["code"] == "invalid_value" and f"{end_ms}ms" in error["message"]

    run_every_api(test)


def test_an_item_that_is_cut_while_it_is_spoken_ends(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        served.backend.step_s = 0.005
        async with open_connection(served) as client:
            await client.say(TEXT * 60)
            added = (await client.until("response.output_item.added"))[-1]
            await client.until("response.output_audio.delta")
            await client.send(
                "conversation.item.truncate", item_id=added["item"]["id"], content_index=0, audio_end_ms=0
            )
            response = (await client.answer())[-1]["response"]
            assert response["status"] == "cancelled"
            assert response["output"][0]["content"] == [{"type": "output_audio", "transcript": ""}]
            await until(lambda: served.backend.open_slots == 0)

    run_every_api(test)


@pytest.mark.parametrize("kind", ["retrieve", "delete", "truncate"])
def test_an_item_that_there_is_not_is_an_error(run_every_api: Any, kind: str) -> None:
    async def test(served: Any) -> None:
        async with open_connection(served) as client:
            more = {"content_index": 0, "audio_end_ms": 0} if kind == "truncate" else {}
            await client.send(f"conversation.item.{kind}", item_id="none", **more)
            error = await client.error()
            assert (error["code"], error["param"]) == (f"item_{kind}_invalid_item_id", "item_id")

    run_every_api(test)


def test_items_are_in_their_order_and_can_be_deleted(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        async with open_connection(served) as client:
            item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "One."}]}
            places = (("b", None, None), ("a", "root", None), ("c", "b", "b"))
            for item_id, after, before in places:
                await client.send(
                    "conversation.item.create", item={"id": item_id, **item}, previous_item_id=after
                )
                assert (await client.until("conversation.item.done"))[-1]["previous_item_id"] == before
            await client.send("conversation.item.create", item={"id": "a", **item})
            assert (await client.error())["code"] == "item_create_duplicate_item_id"
            await client.send("conversation.item.delete", item_id="b")
            assert (await client.until("conversation.item.deleted"))[-1]["item_id"] == "b"
            await client.send("response.create")
            assert transcript_of(await client.answer()) == "One.\nOne."

    run_every_api(test)


@pytest.mark.parametrize(
    ("encoding", "bytes_per_s"),
    [
        ({"type": "audio/pcm", "rate": 24_000}, 48_000),
        ({"type": "audio/pcm", "rate": 16_000}, 32_000),
        ({"type": "audio/pcmu"}, 8_000),
        ({"type": "audio/pcma"}, 8_000),
    ],
)
def test_settings_hold_for_the_next_responses(
    run_every_api: Any, encoding: dict[str, Any], bytes_per_s: int
) -> None:
    async def test(served: Any) -> None:
        async with open_connection(served) as client:
            output = {"voice": {"id": "tone-330"}, "format": encoding, "speed": 4.0}
            await client.send("session.update", session={"type": "realtime", "audio": {"output": output}})
            settings = (await client.until("session.updated"))[-1]["session"]
            assert settings["audio"]["output"]["voice"] == "tone-330"
            await client.say(TEXT)
            events = await client.answer()
            assert len(audio_of(events)) / bytes_per_s == pytest.approx(
                3 * WORD_S, abs=0.2
            )  # the stretcher halves it
            await client.send(
                "session.update", session={"type": "realtime", "audio": {"output": {"voice": "nobody"}}}
            )
            assert (await client.error())["param"] == "voice"
            await client.say(TEXT, audio={"output": {"format": {"type": "audio/pcm"}}})
            events = await client.answer()
            assert events[-1]["response"]["audio"]["output"]["voice"] == "tone-330"
            assert len(audio_of(events)) / 48_000 == pytest.approx(3 * WORD_S, abs=0.2)

    run_every_api(test)


def test_a_response_of_text_alone_is_not_spoken(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        async with open_connection(served) as client:
            await client.say("Say hello!", "user", output_modalities=["text"])
            events = await client.answer()
            assert "response.output_text.delta" in types_of(events) and not audio_of(events)
            assert events[-1]["response"]["output"][0]["content"][0]["text"] == "Say hello!"
            assert served.backend.steps == 0

    run_every_api(test)


def test_a_microphone_is_not_listened_to(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        async with open_connection(served) as client:
            await client.send("input_audio_buffer.append", audio="AAAA")
            await client.send("input_audio_buffer.clear")
            await client.until("input_audio_buffer.cleared")
            await client.send("input_audio_buffer.commit")
            assert (await client.error())["code"] == "input_audio_buffer_commit_empty"

    run_every_api(test)


BETA = {"additional_headers": {"OpenAI-Beta": "realtime=v1"}}
BROWSER = {"subprotocols": ["realtime", "openai-insecure-api-key.any", "openai-beta.realtime-v1"]}


@pytest.mark.parametrize("options", [BETA, BROWSER], ids=["header", "subprotocol"])
def test_the_betas_names_are_for_clients_that_ask_for_them(
    run_every_api: Any, options: dict[str, Any]
) -> None:
    async def test(served: Any) -> None:
        async with open_connection(served, **options) as client:
            update = {
                "voice": "tone-330",
                "modalities": ["text", "audio"],
                "output_audio_format": "g711_ulaw",
            }
            await client.send("session.update", session=update)
            settings = (await client.until("session.updated"))[-1]["session"]
            assert {name: settings[name] for name in update} == update | {"modalities": ["audio", "text"]}
            await client.say("Hello.")
            events = await client.until("response.done")
            assert types_of(events)[:2] == ["conversation.item.created", "response.created"]
            assert "conversation.item.done" not in types_of(events)
            assert len(audio_of(events, "response.audio.delta")) / 8_000 >= WORD_S
            assert events[-1]["response"]["output"][0]["content"] == [
                {"type": "audio", "transcript": "Hello."}
            ]
            await client.send("session.update", session={"output_audio_format": "mp3"})
            assert (await client.error())["param"] == "type"

    run_every_api(test)


def test_a_browser_names_its_key_in_a_subprotocol(run_every_api: Any, tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("test", (Scope.SPEAK,), KeyLimits())

    async def test(served: Any) -> None:
        subprotocols = ["realtime", f"openai-insecure-api-key.{key}"]
        async with open_connection(served, subprotocols=subprotocols) as client:
            assert client.socket.subprotocol == "realtime"
            await client.say("Hello.")
            assert transcript_of(await client.answer()) == "Hello."

    run_every_api(test, access=AccessControl(keys))
