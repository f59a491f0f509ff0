"""DashScope's Python SDK, 1.25 or 2.0, against ``../server.py``: prints the cases that passed, as JSON.

``python sdk.py URL KEY POOR_KEY``. ``dashscope_cases.py`` tries each of its features; here is what a
conversation needs.
"""

import json
import sys
import threading
import time
from typing import Any

import dashscope
from dashscope.audio.tts_v2 import AudioFormat, ResultCallback, SpeechSynthesizer, SpeechSynthesizerObjectPool

from peers.client_cases import IDLE_S, run_cases

URL, KEY, _ = sys.argv[1:4]
OPTIONS: Any = {
    "model": "cosyvoice-v3-flash",
    "voice": "tone-330",
    "format": AudioFormat.PCM_24000HZ_MONO_16BIT,
}
TEXT = "One two three four five six."
TIMEOUT_S = 60.0
IS_1 = dashscope.version.__version__.startswith("1.")
dashscope.api_key = KEY
dashscope.base_websocket_api_url = URL.replace("http", "ws", 1) + "/api-ws/v1/inference"


class Listener(ResultCallback):
    """Keeps the audio, the words and the error of a task."""

    def __init__(self) -> None:
        self.audio, self.words, self.errors = b"", [], []
        self.heard, self.ended = threading.Event(), threading.Event()

    def on_data(self, data: bytes) -> None:
        self.audio += data
        self.heard.set()

    def on_event(self, message: str) -> None:
        output = json.loads(message)["payload"].get("output", {})
        if output.get("type") == "sentence-end":
            self.words += [word["text"] for word in output["sentence"]["words"]]

    def on_complete(self) -> None:
        self.ended.set()

    def on_error(self, message: str) -> None:
        self.errors.append(message)
        self.ended.set()

    def check(self, min_s: float, max_s: float) -> None:
        assert self.ended.wait(TIMEOUT_S) and not self.errors, self.errors
        assert min_s < len(self.audio) / 48_000 < max_s, len(self.audio)


def a_text_is_spoken() -> None:
    assert 1.1 < len(SpeechSynthesizer(**OPTIONS).call(TEXT)) / 48_000 < 1.7


def a_text_is_spoken_as_it_is_written_with_its_words() -> None:
    listener = Listener()
    with_words = {"word_timestamp_enabled": True}
    synthesizer = SpeechSynthesizer(**OPTIONS, callback=listener, additional_params=with_words)
    for word in TEXT.split():
        synthesizer.streaming_call(word + " ")
    synthesizer.streaming_complete(TIMEOUT_S * 1000)
    listener.check(1.1, 1.7)
    assert listener.words == TEXT.split(), listener.words


def an_interruption_does_not_reach_the_next_answer() -> None:
    listener = Listener()
    synthesizer = SpeechSynthesizer(**OPTIONS, callback=listener)
    synthesizer.streaming_call(TEXT * 100)
    assert listener.heard.wait(TIMEOUT_S)
    synthesizer.streaming_cancel()
    assert len(listener.audio) / 48_000 < 100 * 1.2
    a_text_is_spoken()


def an_error_is_the_sdks_own() -> None:
    listener = Listener()
    unknown = SpeechSynthesizer(**{**OPTIONS, "voice": "nobody"}, callback=listener)
    try:
        unknown.streaming_call(TEXT)
        unknown.streaming_complete(TIMEOUT_S * 1000)
    except Exception as error:
        assert type(error).__module__.startswith("dashscope"), repr(error)
    assert listener.ended.wait(TIMEOUT_S) and "nobody" in str(listener.errors), listener.errors


def _speak_from(pool: SpeechSynthesizerObjectPool) -> None:
    listener = Listener()
    synthesizer = pool.borrow_synthesizer(**OPTIONS, callback=listener)
    synthesizer.call("One two.")
    listener.check(0.3, 0.9)
    while not synthesizer._stopped.is_set():  # the SDK's own thread may set it after the next call has begun
        time.sleep(0.001)
    pool.return_synthesizer(synthesizer)


def twenty_turns_are_spoken_on_one_connection() -> None:
    pool = SpeechSynthesizerObjectPool(max_size=1)
    for _ in range(20):
        _speak_from(pool)
    pool.shutdown()


def a_turn_after_an_idle_time_is_spoken() -> None:
    pool = SpeechSynthesizerObjectPool(max_size=1)
    _speak_from(pool)
    time.sleep(IDLE_S)
    _speak_from(pool)
    pool.shutdown()


if __name__ == "__main__":
    run_cases(
        "dashscope",
        a_text_is_spoken,
        a_text_is_spoken_as_it_is_written_with_its_words,
        an_interruption_does_not_reach_the_next_answer,
        an_error_is_the_sdks_own,
        twenty_turns_are_spoken_on_one_connection,
        a_turn_after_an_idle_time_is_spoken,
    )
