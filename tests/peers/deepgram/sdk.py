"""Deepgram's SDK for Python against ``../server.py``, only the URLs changed: prints passed cases as JSON.

``python sdk.py URL KEY POOR_KEY``
"""

import sys
import time
from typing import Any

from deepgram import DeepgramClient
from deepgram.core.api_error import ApiError
from deepgram.environment import DeepgramClientEnvironment
from deepgram.speak.v1.types import SpeakV1Clear, SpeakV1Close, SpeakV1Flush, SpeakV1Text
from deepgram.speak.v2.types import SpeakV2Interrupt, SpeakV2InterruptPlaybackOffset, SpeakV2Speak
from websockets.exceptions import InvalidStatus

from peers.client_cases import IDLE_S, run_cases

URL, KEY, _ = sys.argv[1:4]
SOCKETS = URL.replace("http", "ws", 1)
PLACE = DeepgramClientEnvironment(base=URL, production=SOCKETS, agent=SOCKETS, agent_rest=URL)
TEXT = "One two three four five six."
RAW: Any = {"encoding": "linear16", "sample_rate": 24_000}
client = DeepgramClient(api_key=KEY, environment=PLACE)


def seconds(pcm: bytes) -> float:
    return len(pcm) / 48_000


def receive(socket: Any, last: str) -> tuple[bytes, dict[str, Any]]:
    """Return the audio up to the message of a type, and the last message of each type."""
    audio, messages = b"", {}
    while last not in messages:
        message = socket.recv()
        if isinstance(message, bytes):
            audio += message
        else:
            messages[str(message.type)] = message
    return audio, messages


def speaks_bytes() -> None:
    audio = b"".join(client.speak.v1.audio.generate(text=TEXT, model="tone-330", container="none", **RAW))
    assert 1.1 < seconds(audio) < 1.4
    assert b"".join(client.speak.v1.audio.generate(text=TEXT, model="aura-2-thalia-en"))  # MP3


def speaks_on_a_socket() -> None:
    with client.speak.v1.connect(model="tone-330", **RAW) as socket:
        for word in TEXT.split():
            socket.send_text(SpeakV1Text(type="Speak", text=word + " "))
        socket.send_flush(SpeakV1Flush(type="Flush"))
        audio, messages = receive(socket, "Flushed")
        assert 1.1 < seconds(audio) < 1.8, seconds(audio)
        assert messages["Metadata"].request_id and messages["Flushed"].sequence_id == 0
        socket.send_text(SpeakV1Text(type="Speak", text=TEXT * 50))
        assert isinstance(socket.recv(), bytes)
        socket.send_clear(SpeakV1Clear(type="Clear"))
        receive(socket, "Cleared")
        speak_turn(socket)
        socket.send_close(SpeakV1Close(type="Close"))


def an_interruption_answers_the_words_heard() -> None:
    with client.speak.v2.connect(model="flux-alexis-en", **RAW) as socket:
        socket.send_speak(SpeakV2Speak(type="Speak", text=TEXT))
        socket.send_flush()
        audio, messages = receive(socket, "SpeechMetadata")
        assert 1.1 < seconds(audio) < 1.4, seconds(audio)
        assert abs(messages["SpeechMetadata"].audio_duration_ms - 1_000 * seconds(audio)) < 5
        offset = SpeakV2InterruptPlaybackOffset(type="time_ms", value=450)  # of 200 ms a word
        socket.send_interrupt(SpeakV2Interrupt(type="Interrupt", playback_offset=offset))
        _, messages = receive(socket, "SpeechInterrupted")
        interrupted = messages["SpeechInterrupted"]
        assert (interrupted.text_spoken, interrupted.text_remaining) == ("One two", " three four five six.")
        socket.send_close()
        _, messages = receive(socket, "SessionMetadata")
        assert messages["SessionMetadata"].total_input_character_count == len(TEXT)


def speak_turn(socket: Any) -> None:
    socket.send_text(SpeakV1Text(type="Speak", text="One two."))
    socket.send_flush(SpeakV1Flush(type="Flush"))
    audio, _ = receive(socket, "Flushed")
    assert 0.3 < seconds(audio) < 1.0, seconds(audio)


def twenty_turns_are_spoken_on_one_connection() -> None:
    with client.speak.v1.connect(model="tone-330", **RAW) as socket:
        for _ in range(20):
            speak_turn(socket)


def a_turn_after_an_idle_time_is_spoken() -> None:
    with client.speak.v1.connect(model="tone-330", **RAW) as socket:
        speak_turn(socket)
        time.sleep(IDLE_S)
        speak_turn(socket)


def errors_are_its_own() -> None:
    wrong = DeepgramClient(api_key="wrong", environment=PLACE)
    for refused, status in (
        (lambda: b"".join(client.speak.v1.audio.generate(text=TEXT, model="nobody")), 400),
        (lambda: b"".join(wrong.speak.v1.audio.generate(text=TEXT)), 401),
    ):
        try:
            refused()
        except ApiError as error:
            assert error.status_code == status, error
        else:
            raise AssertionError(f"{status} was expected")
    try:
        wrong.speak.v1.connect(model="tone-330").__enter__()
    except InvalidStatus as error:  # of the SDK's socket library
        assert error.response.status_code == 401
    else:
        raise AssertionError("a wrong key was accepted")


if __name__ == "__main__":
    run_cases(
        "deepgram-sdk",
        speaks_bytes,
        speaks_on_a_socket,
        an_interruption_answers_the_words_heard,
        errors_are_its_own,
        twenty_turns_are_spoken_on_one_connection,
        a_turn_after_an_idle_time_is_spoken,
    )
