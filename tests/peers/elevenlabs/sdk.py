"""ElevenLabs' SDK for Python against ``../server.py``, only the URL changed: prints passed cases as JSON.

``python sdk.py URL KEY POOR_KEY``
"""

import base64
import sys
from collections.abc import Iterator

from elevenlabs import VoiceSettings
from elevenlabs.client import ElevenLabs
from elevenlabs.core import ApiError

from peers.client_cases import run_cases

URL, KEY, _ = sys.argv[1:4]
VOICE, MODEL, RAW = "tone-330", "eleven_flash_v2_5", "pcm_24000"
TEXT = "One two three four five six."
client = ElevenLabs(api_key=KEY, base_url=URL)


def seconds(pcm: bytes) -> float:
    return len(pcm) / 48_000


def speaks_bytes() -> None:
    for speak in (client.text_to_speech.convert, client.text_to_speech.stream):
        settings = VoiceSettings(stability=0.5, similarity_boost=0.7, speed=1.0)
        pieces = speak(VOICE, text=TEXT, model_id=MODEL, output_format=RAW, voice_settings=settings)
        assert 1.1 < seconds(b"".join(pieces)) < 1.4
    assert b"".join(client.text_to_speech.convert("hpp4J3VqNfWAUOO0d1Us", text=TEXT))  # MP3


def speaks_with_times() -> None:
    whole = client.text_to_speech.convert_with_timestamps(VOICE, text=TEXT, output_format=RAW)
    assert 1.1 < seconds(base64.b64decode(whole.audio_base_64)) < 1.4
    assert "".join(whole.alignment.characters).split() == TEXT.split()
    lines = list(client.text_to_speech.stream_with_timestamps(VOICE, text=TEXT, output_format=RAW))
    assert 1.1 < sum(seconds(base64.b64decode(line.audio_base_64)) for line in lines) < 1.4
    text = "".join("".join(line.alignment.characters) for line in lines if line.alignment)
    assert text.split() == TEXT.split()


def speak_realtime(text: Iterator[str]) -> Iterator[bytes]:
    # The SDK connects with TLS only; a test server has none.
    client.text_to_speech._ws_base_url = URL.replace("http", "ws", 1)
    return client.text_to_speech.convert_realtime(
        VOICE, text=text, model_id=MODEL, output_format=RAW, voice_settings=VoiceSettings(stability=0.5)
    )


def speaks_while_text_is_written() -> None:
    pieces = speak_realtime(word + " " for word in TEXT.split())
    assert 1.1 < seconds(b"".join(pieces)) < 1.7  # with the pause after a sentence


def speak_turn() -> None:
    assert 0.3 < seconds(b"".join(speak_realtime(iter(("One ", "two. "))))) < 0.9


def twenty_turns_are_spoken() -> None:
    for _ in range(20):  # each on a connection of its own, as the SDK has it
        speak_turn()


def an_interruption_does_not_reach_the_next_answer() -> None:
    pieces = speak_realtime(iter([TEXT + " "] * 50))
    next(pieces)
    pieces.close()
    speak_turn()


def lists_voices_and_models() -> None:
    assert {"tone-440", "tone-330"} <= {voice.voice_id for voice in client.voices.get_all().voices}
    assert {"tone-440", "tone-330"} <= {voice.voice_id for voice in client.voices.search().voices}
    assert client.voices.get(VOICE).name == VOICE
    assert MODEL in {model.model_id for model in client.models.list()}
    assert client.user.subscription.get().character_limit > 0
    assert client.user.get().subscription.status == "active"


def errors_are_its_own() -> None:
    wrong = ElevenLabs(api_key="wrong", base_url=URL)
    for refused, status in (
        (lambda: list(client.text_to_speech.convert("nobody", text=TEXT)), 404),
        (lambda: list(client.text_to_speech.convert(VOICE, text="")), 422),
        (lambda: wrong.voices.get_all(), 401),
    ):
        try:
            refused()
        except ApiError as error:
            assert error.status_code == status, error
        else:
            raise AssertionError(f"{status} was expected")


if __name__ == "__main__":
    run_cases(
        "elevenlabs",
        speaks_bytes,
        speaks_with_times,
        speaks_while_text_is_written,
        lists_voices_and_models,
        errors_are_its_own,
        twenty_turns_are_spoken,
        an_interruption_does_not_reach_the_next_answer,
    )
