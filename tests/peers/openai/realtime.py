"""Realtime connections of OpenAI's Python SDK against ``../server.py``: prints the cases that passed.

``python realtime.py URL KEY POOR_KEY``; a failed case ends the program with a traceback.
"""

import base64
import sys
from typing import Any

import openai
from websockets.exceptions import InvalidStatus

from peers.client_cases import run_cases

URL, KEY, POOR_KEY = sys.argv[1:4]
TEXT = "One two three four five six."
PCM_BYTES = round((6 * 0.2 + 0.02) * 48_000)


def client(key: str = KEY) -> Any:
    return openai.AsyncOpenAI(api_key=key, base_url=f"{URL}/v1", max_retries=0)


def message(text: str, role: str = "assistant") -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


async def the_sdks_own_example() -> None:
    """As in the SDK's README: a user's message in, text out."""
    async with client().realtime.connect(model="gpt-realtime") as connection:
        await connection.session.update(session={"type": "realtime", "output_modalities": ["text"]})
        await connection.conversation.item.create(item=message("Say hello!", "user"))
        await connection.response.create()
        text = ""
        async for event in connection:
            if event.type == "response.output_text.delta":
                text += event.delta
            elif event.type == "response.done":
                break
        assert text == "Say hello!"


async def answer(connection: Any) -> tuple[bytes, str, Any]:
    """Return the audio, the transcript and the response."""
    audio, transcript = b"", ""
    async for event in connection:
        match event.type:
            case "response.output_audio.delta":
                audio += base64.b64decode(event.delta)
            case "response.output_audio_transcript.delta":
                transcript += event.delta
            case "response.done":
                return audio, transcript, event.response
            case "error":
                raise AssertionError(event.error)
    raise AssertionError("the connection ended")


async def an_assistants_message_is_spoken() -> None:
    async with client().realtime.connect(model="gpt-realtime") as connection:
        output = {"voice": "marin", "format": {"type": "audio/pcm", "rate": 24_000}}
        await connection.session.update(session={"type": "realtime", "audio": {"output": output}})
        await connection.conversation.item.create(item=message(TEXT))
        await connection.response.create()
        audio, transcript, response = await answer(connection)
        assert (len(audio), transcript, response.status) == (PCM_BYTES, TEXT, "completed")
        assert response.output[0].content[0].transcript == TEXT


async def instructions_and_input_are_spoken() -> None:
    async with client().realtime.connect(model="gpt-realtime") as connection:
        await connection.response.create(response={"instructions": TEXT})
        assert (await answer(connection))[1] == TEXT
        await connection.response.create(response={"conversation": "none", "input": [message("Two.")]})
        _, transcript, response = await answer(connection)
        assert (transcript, response.conversation_id) == ("Two.", None)


async def formats_of_telephones() -> None:
    async with client().realtime.connect(model="gpt-realtime") as connection:
        for name in ("audio/pcmu", "audio/pcma"):
            output = {"format": {"type": name}}
            await connection.session.update(session={"type": "realtime", "audio": {"output": output}})
            await connection.response.create(response={"instructions": TEXT})
            assert abs(len((await answer(connection))[0]) - PCM_BYTES // 6) < 800


async def an_interruption_is_cut_to_what_was_heard() -> None:
    async with client().realtime.connect(model="gpt-realtime") as connection:
        await connection.response.create(response={"instructions": TEXT * 100})
        item_id = ""
        async for event in connection:
            if event.type == "response.output_audio.delta":
                item_id = event.item_id
                break
        await connection.response.cancel()
        assert (await answer(connection))[2].status == "cancelled"
        await connection.conversation.item.truncate(item_id=item_id, content_index=0, audio_end_ms=100)
        await connection.conversation.item.retrieve(item_id=item_id)
        async for event in connection:
            if event.type == "conversation.item.retrieved":
                assert event.item.content[0].transcript in ("", "One")
                break
        await connection.response.create(response={"instructions": "Two.", "input": []})
        assert (await answer(connection))[1] == "Two."


async def errors_are_events_of_the_sdk() -> None:
    async with client().realtime.connect(model="gpt-realtime") as connection:
        await connection.response.cancel(event_id="mine")
        async for event in connection:
            if event.type == "error":
                assert (event.error.code, event.error.event_id) == ("response_cancel_not_active", "mine")
                break


async def a_wrong_key() -> None:
    try:
        async with client("wrong").realtime.connect(model="gpt-realtime"):
            raise AssertionError("a wrong key opened a connection")
    except InvalidStatus as error:
        assert error.response.status_code == 401, error


async def twenty_turns_on_one_connection() -> None:
    async with client().realtime.connect(model="gpt-realtime") as connection:
        for turn in range(20):
            await connection.conversation.item.create(item=message(f"Turn {turn}."))
            await connection.response.create()
            assert (await answer(connection))[1] == f"Turn {turn}."


if __name__ == "__main__":
    run_cases(
        "openai",
        the_sdks_own_example,
        an_assistants_message_is_spoken,
        instructions_and_input_are_spoken,
        formats_of_telephones,
        an_interruption_is_cut_to_what_was_heard,
        errors_are_events_of_the_sdk,
        a_wrong_key,
        twenty_turns_on_one_connection,
    )
