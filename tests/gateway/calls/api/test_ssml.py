"""SSML in the calls API over real sockets: documents, marks at the caller's ear, faults."""

import json
from collections.abc import AsyncIterator
from typing import Any

from websockets.asyncio.client import ClientConnection

from shared.calls.call_server import call_server, run, send_utterance, until
from shared.engine.standin_backend import WORD_S

DOCUMENT = (
    '<speak><mark name="begin"/>One <sub alias="the second of all">2</sub><break time="300ms"/> '
    '<mark name="middle"/>three.<mark name="end"/></speak>'
)
FAULTY = "<speak>One\n <b>two</speak>"
FAULT = "SSML, line 2, column 10: mismatched tag"
COUNT = "one two three four five six seven eight nine ten " * 4


async def send(socket: ClientConnection, **message: Any) -> None:
    await socket.send(json.dumps(message))


def heard(received: list[dict[str, Any]]) -> list[str]:
    """Words, and marks in angle brackets, in the order in which they were heard."""
    return [
        message["text"] if message["type"] == "word" else f"<{message['name']}>"
        for message in received
        if message["type"] in ("word", "mark")
    ]


def test_the_words_and_marks_of_a_document_are_reported_as_they_are_heard() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id, "?events=all") as socket:
                await send_utterance(socket, DOCUMENT)
                received = await until(socket, "speech_finished")
        (written,) = (message["text"] for message in received if message["type"] == "utterance")
        assert written == "One 2 three."
        # The stand-in gives each spoken word a time, and each is a part of the written one.
        assert heard(received) == ["<begin>", "One", *["2"] * 4, "<middle>", "three", "<end>"]
        words = [message for message in received if message["type"] == "word"]
        assert [written[word["text_start"] : word["text_stop"]] for word in words] == heard(words)
        begin, middle, end = (message["at_s"] for message in received if message["type"] == "mark")
        assert (begin, middle) == (0.0, round(5 * WORD_S + 0.3, 4))
        assert words[-1]["start_s"] == middle and end == words[-1]["stop_s"]

    run(test())


def test_a_discard_reports_the_marks_heard_and_no_others_come() -> None:
    async def test() -> None:
        async with call_server() as server, server.http() as client:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                marked = "".join(f'{word} <mark name="{word}"/>' for word in COUNT.split())
                await send_utterance(socket, f"<speak>{marked}</speak>")
                await until(socket, "mark")
                await send(socket, type="discard")
                received = await until(socket, "discarded")
                names = [message["name"] for message in received if message["type"] == "mark"]
                discarded = received[-1]
                assert discarded["marks"] == ["one", *names]
                assert COUNT.startswith(discarded["heard"]) and len(discarded["marks"]) < 39
                await send_utterance(socket, "<speak>Again.<mark name='again'/></speak>")
                received = await until(socket, "speech_finished")
                assert heard(received) == ["Again", "<again>"]
            answer = (await client.post(f"/{phone.call_id}/discard")).json()
            assert answer["marks"] == []

    run(test())


def test_a_faulty_document_is_an_error_with_its_place_and_nothing_else_on_the_call_changes() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await send_utterance(socket, "One two three four.")
                await until(socket, "word")
                await send_utterance(socket, FAULTY)
                await send_utterance(socket, "<speak>Five.</speak>")
                received = await until(socket, "speech_finished")
                assert [message["message"] for message in received if message["type"] == "error"] == [FAULT]
                assert heard(received) == ["two", "three", "four"]
                received = await until(socket, "speech_finished")
                assert heard(received) == ["Five"]
                assert received[-1] == {"type": "speech_finished", "utterance": 1, "outcome": "spoken"}

    run(test())


def test_a_body_of_speech_may_be_a_document_in_pieces_and_a_fault_is_answered_with_400() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for byte in DOCUMENT.encode():
            yield bytes([byte])

    async def test() -> None:
        async with call_server() as server, server.http() as client:
            phone = await server.phone()
            call = server.gateway.calls.registry.get(phone.call_id).call
            events: list[object] = []
            call.events.add_listener(lambda event: events.append(type(event).__name__))
            spoken = await client.post(f"/{phone.call_id}/speech", content=pieces())
            assert (spoken.status_code, spoken.json()["outcome"]) == (200, "spoken")
            assert events.count("MarkHeard") == 3 and events.count("WordHeard") == 6
            refused = await client.post(f"/{phone.call_id}/speech", content=FAULTY)
            assert (refused.status_code, refused.json()) == (400, {"error": FAULT})
            unended = await client.post(f"/{phone.call_id}/speech", content="<speak>One.")
            assert (unended.status_code, "no element found" in unended.json()["error"]) == (400, True)
            spoken = await client.post(f"/{phone.call_id}/speech", content="Two.")
            assert spoken.json()["outcome"] == "spoken"

    run(test())


def test_a_document_after_a_flush_may_come_in_pieces() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await send(socket, type="text", text="<speak>One.</speak>")
                await send(socket, type="flush")
                await send(socket, type="text", text="<speak><mark name='two'/>two.")
                assert (await until(socket, "word"))[-1]["text"] == "One"
                await send(socket, type="text", text="</speak>")
                await send(socket, type="end")
                received = await until(socket, "speech_finished")
                assert heard(received) == ["<two>", "two"]

    run(test())


def test_a_language_that_the_voice_lacks_is_refused_in_words() -> None:
    german = '<speak>One <lang xml:lang="de">zwei</lang>.</speak>'
    sentence = "the voice tone-440 speaks zxx; the language of the text is 'de'"

    async def test() -> None:
        async with call_server() as server, server.http() as client:
            phone = await server.phone()
            refused = await client.post(f"/{phone.call_id}/speech", content=german)
            assert (refused.status_code, refused.json()) == (400, {"error": sentence})
            async with server.socket(phone.call_id) as socket:
                await send_utterance(socket, german)
                await send_utterance(socket, german.replace("de", "zxx-Zyyy"))
                received = await until(socket, "speech_finished")
                errors = [message["message"] for message in received if message["type"] == "error"]
                assert errors == [sentence]
                assert heard(received) == ["One", "zwei"]

    run(test())
