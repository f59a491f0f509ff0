"""The native stream on a real socket: utterances, cancellation, errors, limits and the end."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from shared.audio.tones import pitch_of
from shared.engine import standin_backend
from shared.engine.standin_backend import WORD_S
from shared.event_loop import until
from shared.unreadable_texts import UNREADABLE_TEXTS
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.apis.dialects.native_stream.socket_api import MAX_QUEUED_UTTERANCES, PATH
from vivavoce.gateway.apis.kits.backpressure import BackpressureSender
from vivavoce.tts_engine.backends.base import StepResult
from vivavoce.tts_engine.chunk import Phoneme


class StreamClient:
    """A client: sends messages by type and fields, receives messages and the audio between them."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.audio: dict[int, bytes] = {}
        self.events: list[dict[str, Any]] = []
        self._speaking = -1

    async def send(self, message_type: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": message_type, **fields}))

    async def next(self) -> dict[str, Any]:
        """Receive the next message; audio before it is stored by utterance."""
        while isinstance(data := await self.socket.recv(), bytes):
            self.audio[self._speaking] = self.audio.get(self._speaking, b"") + data
        event: dict[str, Any] = json.loads(data)
        if event["type"] == "audio.start":
            self._speaking = event["utterance_index"]
        self.events.append(event)
        return event

    async def until(self, message_type: str) -> dict[str, Any]:
        while (event := await self.next())["type"] != message_type:
            pass
        return event

    async def speak(self, text: str) -> dict[str, Any]:
        await self.send("input.text", text=text)
        await self.send("input.done")
        return await self.until("session.done")


@asynccontextmanager
async def open_stream(
    served: Any, headers: dict[str, str] | None = None, **config: Any
) -> AsyncIterator[StreamClient]:
    host, port = served.address
    url = f"ws://{host}:{port}{PATH}"
    async with connect(url, additional_headers=headers, proxy=None, max_size=None) as socket:
        client = StreamClient(socket)
        await client.send("session.config", **{"response_format": "pcm", **config})
        yield client


def test_an_utterance_has_audio_start_audio_and_both_ends(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            for piece in ("One tw", "o three", " four."):
                await client.send("input.text", text=piece)
            await client.send("input.done")
            done = await client.until("session.done")
            assert [event["type"] for event in client.events] == ["audio.start", "audio.done", "session.done"]
            start, audio_done, _ = client.events
            assert (start["format"], start["sample_rate"], start["channels"]) == ("pcm", 24_000, 1)
            assert start["sentence_text"] == "One two three four."
            assert len(client.audio[0]) / 48_000 == pytest.approx(4 * WORD_S + 0.02, abs=0.001)
            assert (audio_done["total_bytes"], audio_done["error"]) == (len(client.audio[0]), False)
            assert (done["utterance_index"], done["total_sentences"], done["cancelled"]) == (0, 1, False)

    run(test)


def test_a_query_chooses_no_subprotocol(run: Any) -> None:
    async def test(served: Any) -> None:
        host, port = served.address
        async with connect(f"ws://{host}:{port}{PATH}?subprotocol=chosen", proxy=None) as socket:
            assert socket.subprotocol is None

    run(test)


def test_speech_begins_before_the_text_is_complete(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.send("input.text", text="One two three four. ")
            await client.send("input.text", text="And")
            assert (await client.next())["type"] == "audio.start"
            await client.send("input.text", text=" more")
            await client.send("input.flush")
            await until(lambda: served.backend.steps >= 6)
            await client.send("input.done")
            await client.until("session.done")
            assert len(client.audio[0]) / 48_000 >= 6 * WORD_S

    run(test)


def test_utterances_are_spoken_in_order_and_numbered(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            for _ in range(5):
                await client.send("input.text", text="One two.")
                await client.send("input.done")
            for index in range(5):
                assert (await client.until("session.done"))["utterance_index"] == index
            assert {len(audio) for audio in client.audio.values()} == {len(client.audio[0])}
            assert len(client.audio) == 5

    run(test)


def test_word_times_are_sent_on_request(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served, word_times=True) as client:
            await client.speak("One two three.")
            words = [
                word for event in client.events if event["type"] == "audio.words" for word in event["words"]
            ]
            assert [word["word"] for word in words] == ["One", "two", "three."]
            assert [word["start_ms"] for word in words] == [0, 200, 400]
            assert [(word["text_start"], word["text_end"]) for word in words] == [(0, 3), (4, 7), (8, 14)]

    run(test)


def test_phonemes_are_sent_on_request(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    render = standin_backend._render_tone

    def render_phonemes(*turn: Any) -> StepResult:
        result = render(*turn)
        (word,) = result.words
        return replace(result, words=(replace(word, phonemes=(Phoneme("u", word.start_s, word.stop_s),)),))

    monkeypatch.setattr(standin_backend, "_render_tone", render_phonemes)

    async def test(served: Any) -> None:
        async with open_stream(served, phoneme_times=True) as client:
            await client.speak("One two.")
            messages = [event for event in client.events if event["type"] == "audio.phonemes"]
            phonemes = [phoneme for message in messages for phoneme in message["phonemes"]]
            assert phonemes[:2] == [
                {"phoneme": "u", "viseme": 7, "start_ms": start, "end_ms": start + 200} for start in (0, 200)
            ]
            assert phonemes[2:] == [{"phoneme": "", "viseme": 0, "start_ms": 400, "end_ms": 400}]
            assert not any(event["type"] == "audio.words" for event in client.events)
        async with open_stream(served, word_times=True) as client:
            await client.speak("One two.")
            assert not any(event["type"] == "audio.phonemes" for event in client.events)

    run(test)


def test_a_configuration_changes_voice_and_format_of_later_utterances(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served, voice="tone-440") as client:
            await client.speak("One two.")
            await client.send("session.config", voice="tone-330", response_format="wav")
            await client.speak("One two.")
            assert pitch_of(client.audio[0]) == pytest.approx(440, abs=4)
            assert client.audio[1][:4] == b"RIFF"
            assert pitch_of(client.audio[1][44:]) == pytest.approx(330, abs=4)

    run(test)


def test_an_utterance_without_text_ends_at_once(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.send("input.text", text="")
            await client.send("input.done")
            done = await client.next()
            assert (done["type"], done["utterance_index"], done["total_sentences"]) == ("session.done", 0, 0)
            assert (await client.speak("One."))["utterance_index"] == 1
            assert served.backend.steps == 1

    run(test)


def test_cancelling_stops_the_engine_and_the_next_utterance_is_spoken(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.send("input.text", text="word " * 1_000 + ".")
            await client.send("input.done")
            await client.send("input.text", text="never said")
            assert (await client.next())["type"] == "audio.start"
            await client.send("input.cancel")
            for index in range(2):
                done = await client.until("session.done")
                assert (done["utterance_index"], done["cancelled"]) == (index, True)
            while served.backend.open_slots:  # the step under way ends first
                await asyncio.sleep(0.001)
            assert served.backend.steps < 999
            assert (await client.speak("One two."))["utterance_index"] == 2
            assert set(client.audio) == {0, 2}

    run(test, step_s=0.005)


def test_a_piece_that_is_held_back_is_dropped_by_a_cancel(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hold(_: BackpressureSender, data: bytes, __: int, write: Callable[[bytes], Any]) -> None:
        await write(data[:8])
        await asyncio.sleep(0.3)
        await write(data[8:])

    monkeypatch.setattr(BackpressureSender, "send", hold)

    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.send("input.text", text="One two three four. ")
            await client.until("audio.start")
            client.audio[0] = await client.socket.recv()
            await client.send("input.cancel")
            assert (await client.until("audio.done"))["total_bytes"] == len(client.audio[0]) == 8
            assert (await client.until("session.done"))["cancelled"]

    run(test)


@pytest.mark.parametrize("text", ["nothing to cancel", ""])
def test_cancelling_is_answered_when_nothing_is_being_spoken(text: str, run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.send("input.text", text=text)
            await client.send("input.cancel")
            assert (await client.until("session.done"))["cancelled"]

    run(test)


def test_a_bad_message_gets_an_error_and_the_utterance_goes_on(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.send("input.text", text="One two")
            for bad in ("{", "[]", '{"type": "input.audio"}', '{"type": "input.text"}', b"\0"):
                await client.socket.send(bad)
                assert (await client.until("error"))["message"]
            await client.send("session.config", voice="alloy")
            assert "send input.done first" in (await client.until("error"))["message"]
            await client.speak(" three.")
            assert len(client.audio[0]) / 48_000 == pytest.approx(3 * WORD_S + 0.02, abs=0.001)

    run(test)


@pytest.mark.parametrize(
    ("config", "code", "param"),
    [
        ({"voice": "anna"}, "voice_not_found", "voice"),
        ({"speed": 9}, "decimal_above_max_value", "speed"),
        ({"word_timestamps": True}, None, "word_timestamps"),
    ],
)
def test_a_bad_configuration_gets_openais_codes(
    config: dict[str, Any], code: str | None, param: str, run: Any
) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served, **config) as client:
            error = await client.next()
            assert (error["type"], error.get("code"), error["param"]) == ("error", code, param)
            await client.send("session.config", response_format="pcm")
            assert (await client.speak("One."))["total_sentences"] == 1

    run(test)


def test_a_failure_ends_its_utterance_and_not_the_connection(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            done = await client.speak("One two three four.")
            message_types = [event["type"] for event in client.events]
            assert message_types == ["audio.start", "error", "audio.done", "session.done"]
            assert client.events[1]["utterance_index"] == done["utterance_index"] == 0
            assert client.events[2]["error"] is True
            served.backend.broken_after = None
            assert (await client.speak("One."))["total_sentences"] == 1

    run(test, broken_after=2)


def test_late_text_of_a_failed_utterance_is_not_spoken_in_the_next(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.send("input.text", text="One two three four. ")
            await client.until("session.done")
            served.backend.broken_after = None
            await client.send("input.text", text="late ")
            await client.send("input.done")
            assert (await client.speak("One two."))["utterance_index"] == 1
            assert len(client.audio[1]) / 48_000 == pytest.approx(2 * WORD_S + 0.02, abs=0.001)

    run(test, broken_after=2)


def test_a_server_at_capacity_refuses_an_utterance_with_retry_after(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client, served.engine.stream() as held:
            await client.speak("One.")
            error = next(event for event in client.events if event["type"] == "error")
            assert error["code"] == "overloaded_streams"
            assert error["retry_after_s"] > 0
            held.cancel()
            assert (await client.speak("One."))["total_sentences"] == 1

    run(test, max_streams=1)


def access_with_key(tmp_path: Path, **limits: Any) -> tuple[AccessControl, dict[str, str]]:
    file = KeysFile(tmp_path / "keys.json")
    key = file.add("test", (Scope.SPEAK,), KeyLimits(**limits))
    return AccessControl(file), {"Authorization": f"Bearer {key}"}


def test_characters_are_charged_to_the_key_as_they_arrive(run: Any, tmp_path: Path) -> None:
    access, headers = access_with_key(tmp_path, characters_per_minute=40)

    async def test(served: Any) -> None:
        async with open_stream(served, headers) as client:
            await client.send("input.text", text="One two three. ")
            assert (await client.next())["type"] == "audio.start"
            await client.send("input.text", text="too many words for this key")
            error = await client.until("error")
            assert (error["code"], error["utterance_index"]) == ("rate_limit_exceeded", 0)
            assert error["retry_after_s"] > 0

    run(test, access=access)


def test_queued_text_is_bounded_and_the_excess_is_refused(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.send("input.text", text="word " * 1_000)
            for _ in range(MAX_QUEUED_UTTERANCES + 1):
                await client.send("input.done")
                await client.send("input.text", text="x")
            error = await client.until("error")
            assert error["code"] == "too_much_text"
            assert "is not taken" in error["message"]

    run(test, step_s=0.05)


def test_queued_ends_are_bounded_and_a_cancel_still_drops_what_is_queued(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.send("input.text", text="word " * 1_000)
            for _ in range(MAX_QUEUED_UTTERANCES):
                await client.send("input.done")
            for message_type in ("input.done", "input.cancel"):
                await client.send(message_type)
                assert (await client.until("error"))["code"] == "too_much_text"
            for index in range(MAX_QUEUED_UTTERANCES):
                assert (await client.until("session.done"))["utterance_index"] == index
            done = await client.speak("One.")
            assert (done["utterance_index"], done["cancelled"]) == (MAX_QUEUED_UTTERANCES + 2, False)

    run(test, step_s=0.05)


def test_an_idle_connection_gets_an_error_and_is_closed(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.speak("One.")
            error = await client.until("error")
            assert error["code"] == "idle_timeout"
            with pytest.raises(ConnectionClosed) as closed:
                await client.next()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1000

    run(test, idle_s=0.6)


def test_session_close_closes_the_connection(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.send("session.close")
            with pytest.raises(ConnectionClosed):
                await client.next()
            await until(lambda: len(served.sockets) == 0)

    run(test)


def test_concurrent_connections_are_not_mixed_up(run: Any) -> None:
    async def test(served: Any) -> None:
        async def one(voice: str) -> float:
            async with open_stream(served, voice=voice) as client:
                await client.speak("One two three.")
                await client.speak("Four five six.")
                return pitch_of(client.audio[0] + client.audio[1])

        voices = ["tone-440", "tone-330"] * 8
        pitches = await asyncio.gather(*map(one, voices))
        for voice, pitch in zip(voices, pitches, strict=True):
            assert pitch == pytest.approx(float(voice.removeprefix("tone-")), abs=3)

    run(test)


def test_the_example_speaks_standard_input(run: Any) -> None:
    example = Path(__file__).parents[5] / "examples" / "stream_text.py"

    async def test(served: Any) -> None:
        host, port = served.address
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, str(example), f"ws://{host}:{port}"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        pcm, words = await program.communicate(b"One two\nthree four.\n")
        assert program.returncode == 0, words.decode()
        assert 4 * WORD_S < len(pcm) / 48_000 < 4 * WORD_S + 0.5  # and a pause after the full stop
        assert [line.split()[-1] for line in words.decode().splitlines()] == "One two three four.".split()

    run(test)


@pytest.mark.parametrize("language", UNREADABLE_TEXTS)
def test_an_utterance_that_the_voice_cannot_read_is_an_error_of_its_own(language: str, run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            text = UNREADABLE_TEXTS[language]
            for character in text:
                await client.send("input.text", text=character)
            await client.send("input.done")
            done = await client.until("session.done")
            error = client.events[-2]
            assert (error["type"], error["param"], error["code"]) == ("error", "input", "invalid_value")
            assert error["utterance_index"] == 0 and client.audio == {}
            assert done["unread_characters"] > 0 and done["total_sentences"] == 0
            assert "unread_characters" not in await client.speak("One two.")
            assert client.audio[1]

    run(test)


def test_text_that_becomes_readable_later_is_spoken_and_the_rest_counted(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.send("input.text", text="你好。")
            await client.send("input.flush")
            done = await client.speak("One two.")
            assert len(client.audio[0]) / 48_000 == pytest.approx(2 * WORD_S + 0.02, abs=0.001)
            assert done["unread_characters"] == 2
            assert [event["type"] for event in client.events] == ["audio.start", "audio.done", "session.done"]

    run(test)


def test_marks_and_faults_of_an_ssml_document_are_reported(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.speak("<speak>One two <mark name='here'/>three.</speak>")
            (marks,) = (event for event in client.events if event["type"] == "audio.marks")
            assert marks["marks"] == [{"name": "here", "at_s": pytest.approx(2 * WORD_S)}]
            assert marks["utterance_index"] == 0
            await client.speak("<speak>One <b>two</speak>")
            (error,) = (event for event in client.events if event["type"] == "error")
            assert "line 1, column 20: mismatched tag" in error["message"]
            await client.speak("Three.")
            assert len(client.audio[2]) / 48_000 == pytest.approx(WORD_S + 0.02, abs=0.001)

    run(test)
