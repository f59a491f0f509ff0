"""Deepgram's sockets: texts and flushes, clears, turns and their interruption, limits, errors and the end."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from shared.audio.tones import pitch_of
from shared.engine.standin_backend import WORD_S
from shared.event_loop import until
from vivavoce.adapters import transcript_queue
from vivavoce.gateway.apis.kits import transcript_socket
from vivavoce.gateway.apis.kits.request_fields import MAX_MESSAGE_BYTES

WORD_BYTES = round(2 * 24_000 * WORD_S)
V1, V2 = "/v1/speak", "/v2/speak"
TEXT = "One two three four five six. "


class DeepgramClient:
    """A client: sends messages, keeps audio and the types of the answers."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.audio = b""
        self.types: list[str] = []

    async def send(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def speak(self, text: str) -> None:
        await self.send("Speak", text=text)

    async def next(self) -> dict[str, Any]:
        """Return the next message; audio is {"type": "audio"}."""
        message = await self.socket.recv()
        event = {"type": "audio"} if isinstance(message, bytes) else json.loads(message)
        self.audio += message if isinstance(message, bytes) else b""
        self.types.append(event["type"])
        return event

    async def until(self, kind: str) -> dict[str, Any]:
        while (event := await self.next())["type"] != kind:
            assert event["type"] != "Error", event
        return event

    async def closing_code(self) -> int:
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                await self.next()
        assert closed.value.rcvd is not None
        return closed.value.rcvd.code

    @property
    def words_spoken(self) -> int:
        return round(len(self.audio) / WORD_BYTES)

    @property
    def milliseconds(self) -> int:
        return len(self.audio) // 48


@asynccontextmanager
async def open_socket(
    served: Any, path: str = V1, query: str = "model=tone-440", headers: dict[str, str] | None = None
) -> AsyncIterator[DeepgramClient]:
    host, port = served.address
    url = f"ws://{host}:{port}{path}?{query}"
    async with connect(url, additional_headers=headers, proxy=None, max_size=None) as socket:
        yield DeepgramClient(socket)


def test_text_is_spoken_while_it_is_written_and_a_flush_is_answered_after_its_audio(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            metadata = await client.next()
            assert metadata["type"] == "Metadata" and metadata["request_id"] and metadata["model_name"]
            await client.speak("One two, ")
            await client.until("audio")
            await client.speak("three four.")
            await client.send("Flush")
            assert (await client.until("Flushed"))["sequence_id"] == 0
            assert client.words_spoken >= 4
            assert served.backend.open_slots == 0
            await client.speak("One.")
            await client.send("Flush")
            assert (await client.until("Flushed"))["sequence_id"] == 1
            await client.send("Flush")
            assert (await client.until("Flushed"))["sequence_id"] == 2
            assert client.words_spoken >= 5
            assert pitch_of(np.frombuffer(client.audio, "<i2")) == pytest.approx(440, rel=0.02)

    run(test)


def test_a_clear_drops_what_has_not_been_sent(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            for _ in range(3):
                await client.speak(TEXT * 10)
                await client.send("Flush")
            await client.until("audio")
            await client.send("Clear")
            assert (await client.until("Cleared"))["sequence_id"] == 0
            steps = served.backend.steps
            await until(lambda: served.backend.open_slots == 0)
            assert served.backend.steps <= steps + 1
            client.audio, client.types = b"", []
            await client.speak("One two.")
            await client.send("Flush")
            await client.until("Flushed")
            assert client.words_spoken == pytest.approx(2, abs=1)
            assert client.types.count("Flushed") == 1

    run(test, step_s=0.005)


def test_close_speaks_what_there_is(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.speak(TEXT)
            await client.send("Close")
            assert await client.closing_code() == 1000
            assert client.words_spoken >= 6

    run(test)


@pytest.mark.parametrize(("encoding", "sample_bytes"), [("linear16", 2), ("mulaw", 1), ("alaw", 1)])
def test_every_encoding_has_the_length_of_the_speech(run: Any, encoding: str, sample_bytes: int) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served, query=f"encoding={encoding}&sample_rate=8000") as client:
            await client.speak("One two three.")
            await client.send("Flush")
            await client.until("Flushed")
            assert len(client.audio) / (8_000 * sample_bytes) == pytest.approx(3 * WORD_S, abs=0.1)

    run(test)


def test_many_sockets_at_once_have_their_own_voices(run: Any) -> None:
    async def speak(served: Any, pitch: int) -> None:
        async with open_socket(served, query=f"model=tone-{pitch}") as client:
            await client.speak(TEXT)
            await client.send("Flush")
            await client.until("Flushed")
            assert 6 <= client.words_spoken <= 9  # with the pause after a sentence
            assert pitch_of(np.frombuffer(client.audio, "<i2")) == pytest.approx(pitch, rel=0.02)

    async def test(served: Any) -> None:
        await asyncio.gather(*(speak(served, (440, 330)[number % 2]) for number in range(20)))

    run(test, slots=32)


@pytest.mark.parametrize(
    "message",
    [
        "no JSON",
        "[1]",
        "{}",
        '{"type": "Sing"}',
        r'{"type": "\ud800"}',
        '{"type": "Speak"}',
        '{"type": "Speak", "text": 5}',
        json.dumps({"type": "Flush", "other": "x" * MAX_MESSAGE_BYTES}),
    ],
)
def test_a_wrong_message_is_a_warning_or_on_the_second_version_the_end(run: Any, message: str) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.socket.send(message)
            warning = await client.until("Warning")
            assert warning["code"] == warning["warn_code"] == "INVALID_QUERY_PARAMETER"
            assert warning["description"] == warning["warn_msg"] != ""
            await client.speak("One.")
            await client.send("Flush")
            await client.until("Flushed")
        async with open_socket(served, V2) as client:
            await client.socket.send(message)
            while (event := await client.next())["type"] != "Error":
                pass
            assert event["code"] == "MESSAGE-0000" and event["description"]
            assert await client.closing_code() == 1008

    run(test)


def test_a_failed_text_is_an_error_before_its_flush(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.speak("\u4f60\u597d")
            await client.send("Flush")
            while (await client.next())["type"] != "Error":
                pass
            await client.until("Flushed")
            await client.speak("One.")
            await client.send("Flush")
            await client.until("Flushed")

    run(test)


def test_waiting_flushes_are_bounded(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript_queue, "MAX_WAITING_TRANSCRIPTS", 8)

    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.speak(TEXT)
            for _ in range(10):
                await client.send("Flush")
            while (event := await client.next())["type"] != "Error":
                pass
            assert event["code"] == "TOO_MANY_REQUESTS"
            sequence: list[int] = []
            while len(sequence) < 8:
                if (event := await client.next())["type"] == "Flushed":
                    sequence.append(event["sequence_id"])
            await client.send("Flush")
            sequence.append((await client.until("Flushed"))["sequence_id"])
            assert sequence == list(range(9))

    run(test, step_s=0.05)


@pytest.mark.parametrize("path", [V1, V2])
def test_a_wrong_address_is_refused_before_the_socket_opens(run: Any, path: str) -> None:
    async def test(served: Any) -> None:
        for query in ("model=nobody", "encoding=mp3", "sample_rate=12345", "speed=fast"):
            with pytest.raises(InvalidStatus) as refused:
                async with open_socket(served, path, query):
                    pass
            response = refused.value.response
            assert response.status_code == 400
            assert json.loads(response.body)["err_msg"] == response.headers["dg-error"]

    run(test)


def test_a_text_that_is_not_flushed_is_completed_and_an_idle_connection_closed(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcript_socket, "MAX_TEXT_WAIT_S", 0.2)
    monkeypatch.setattr(transcript_socket, "IDLE_S", 0.5)

    async def test(served: Any) -> None:
        async with open_socket(served) as client:
            await client.speak("One two")
            assert await client.closing_code() == 1000
            assert client.words_spoken >= 2 and "Flushed" not in client.types

    run(test)


# Turns


def test_a_turn_has_a_beginning_a_flush_and_metadata(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served, V2, "model=flux-alexis-en") as client:
            assert (await client.next())["type"] == "Connected"
            await client.speak("One two ")
            speech_id = (await client.until("SpeechStarted"))["speech_id"]
            assert speech_id.startswith("dg_sp_")
            await client.speak("three.")
            await client.send("Flush")
            assert (await client.until("Flushed"))["speech_id"] == speech_id
            metadata = await client.until("SpeechMetadata")
            assert (metadata["speech_id"], metadata["input_character_count"]) == (speech_id, 14)
            assert metadata["audio_duration_ms"] == pytest.approx(client.milliseconds, abs=2)
            await client.speak("...")
            await client.send("Flush")
            assert (await client.until("Warning"))["code"] == "NO_SYNTHESIZABLE_TEXT"
            await client.until("SpeechMetadata")
            await client.speak("One.")
            await client.send("Close")
            totals = await client.until("SessionMetadata")
            assert totals["total_input_character_count"] == 21
            assert totals["total_audio_duration_ms"] == pytest.approx(client.milliseconds, abs=2)
            assert await client.closing_code() == 1000

    run(test)


def test_an_interruption_answers_the_text_heard_and_the_text_that_was_not(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served, V2) as client:
            await client.speak(TEXT * 20)
            while client.milliseconds < 1_000:
                await client.next()
            # Two words and the first quarter of the third one have been played.
            offset = round(1_000 * 2.25 * WORD_S)
            await client.send("Interrupt", playback_offset={"type": "time_ms", "value": offset})
            event = await client.until("SpeechInterrupted")
            assert (event["audio_played_ms"], event["text_spoken"]) == (offset, "One two")
            assert event["text_remaining"] == (TEXT * 20).removeprefix("One two")
            assert event["metadata"]["audio_duration_ms"] >= 1_000
            steps = served.backend.steps
            await until(lambda: served.backend.open_slots == 0)
            assert served.backend.steps <= steps + 1
            # The session goes on where the client stopped.
            await client.speak("Seven eight nine.")
            await client.send("Flush")
            await client.until("SpeechMetadata")
            beyond = offset + round(1_000 * 1.6 * WORD_S)
            await client.send("Interrupt", playback_offset={"type": "time_ms", "value": beyond})
            event = await client.until("SpeechInterrupted")  # of a turn that the client still plays
            assert (event["text_spoken"], event["text_remaining"]) == ("Seven eight", " nine.")

    run(test, step_s=0.005)


def test_an_interruption_of_an_ssml_document_answers_its_text(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served, V2) as client:
            await client.speak(f"<speak>{TEXT * 20}</speak>")
            while client.milliseconds < 1_000:
                await client.next()
            offset = round(1_000 * 2.25 * WORD_S)
            await client.send("Interrupt", playback_offset={"type": "time_ms", "value": offset})
            event = await client.until("SpeechInterrupted")
            assert event["text_spoken"] == "One two"
            assert event["text_remaining"] == (TEXT * 20).removeprefix("One two").rstrip()

    run(test, step_s=0.005)


def test_interruptions_without_a_position_or_out_of_turn(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served, V2) as client:
            await client.send("Interrupt")
            assert (await client.until("Warning"))["code"] == "NO_AUDIO_GENERATED"
            await client.speak(TEXT * 20)
            await client.until("audio")
            await client.send("Interrupt")
            event = await client.until("SpeechInterrupted")
            assert "text_spoken" not in event and "text_remaining" not in event
            await client.send("Interrupt")
            assert (await client.until("Warning"))["code"] == "NO_ACTIVE_SPEECH"
            await client.send("Flush")
            assert (await client.until("Warning"))["code"] == "NO_ACTIVE_SPEECH"
            position = event["audio_played_ms"]
            await client.speak(TEXT)
            await client.until("audio")
            await client.send("Interrupt", playback_offset={"type": "time_ms", "value": position - 1})
            assert (await client.until("Warning"))["code"] == "INVALID_INTERRUPT_OFFSET"

    run(test, step_s=0.005)


def test_a_turn_that_waits_keeps_its_speed(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served, V2) as client:
            for _ in range(2):
                await client.speak(TEXT)
                await client.send("Flush")
            await client.send("Configure", speed=0.5)
            await client.speak(TEXT)
            await client.send("Flush")
            for _ in range(3):
                await client.until("SpeechMetadata")
            assert [request.speed for request in served.backend.requests] == [1.0, 1.0, 0.5]

    run(test, step_s=0.05)


def test_the_speed_of_the_turns_that_follow_is_changed(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_socket(served, V2) as client:
            for speed, code in ((2.0, "SPEED_OUT_OF_RANGE"), (1.02, "SPEED_INCREMENT_INVALID")):
                await client.send("Configure", speed=speed)
                assert (await client.until("ConfigureFailure"))["code"] == code
            await client.send("Configure", speed=1.15)
            assert (await client.until("ConfigureSuccess"))["applied"] == {"speed": 1.15}
            await client.speak(TEXT)
            await client.send("Flush")
            await client.until("SpeechMetadata")

    run(test)
