"""The features of the DashScope SDK as cases, run by an interpreter with the SDK.

    python dashscope_cases.py OUT      in an environment with DASHSCOPE_API_KEY, DASHSCOPE_WEBSOCKET_BASE_URL
                                       and DASHSCOPE_HTTP_BASE_URL

Results are written to OUT/results.json and audio to files beside it, because the SDK prints on standard
output.
"""

import json
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dashscope
from dashscope import HttpSpeechSynthesizer
from dashscope.audio.tts_v2 import (
    AudioFormat,
    ResultCallback,
    SpeechSynthesizer,
    SpeechSynthesizerObjectPool,
    VoiceEnrollmentException,
    VoiceEnrollmentService,
)

MODEL, VOICE = "cosyvoice-v3-flash", "longanyang"
PCM = AudioFormat.PCM_24000HZ_MONO_16BIT
TEXT = "One two three four. Five six."
LONG = "word " * 3_999
RECORDING = "data:audio/wav;base64,UklGRiBwcmV0ZW5k"
TIMEOUT_S = 60.0
IS_1 = dashscope.version.__version__.startswith("1.")


class RecordingCallback(ResultCallback):
    """Records all callbacks of the SDK."""

    def __init__(self) -> None:
        self.audio = b""
        self.events: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self.calls: list[str] = []
        self.ended = threading.Event()

    def on_open(self) -> None:
        self.calls.append("open")

    def on_complete(self) -> None:
        self.calls.append("complete")
        self.ended.set()

    def on_error(self, message: str) -> None:
        self.errors.append(message)
        self.ended.set()

    def on_close(self) -> None:
        self.calls.append("close")

    def on_event(self, message: str) -> None:
        self.events.append(json.loads(message)["payload"])

    def on_data(self, data: bytes) -> None:
        self.audio += data


class Cases:
    """Each public method but ``save`` is a case: it returns its findings, or raises if it fails."""

    def __init__(self, out: Path) -> None:
        self._out = out

    def save(self, name: str, audio: bytes | None) -> str:
        assert audio, "no audio"
        (self._out / name).write_bytes(audio)
        return name

    def one_shot(self) -> Any:
        synthesizer = SpeechSynthesizer(model=MODEL, voice=VOICE)
        audio = synthesizer.call(TEXT)
        assert synthesizer.get_first_package_delay() > 0
        assert synthesizer.get_last_request_id()
        assert synthesizer.get_response()["payload"]["usage"]["characters"] == len(TEXT)
        return self.save("one-shot.mp3", audio)

    def every_format(self) -> Any:
        def speak(audio_format: AudioFormat) -> str:
            audio = SpeechSynthesizer(model=MODEL, voice=VOICE, format=audio_format).call("One two.")
            kind = "mp3" if audio_format.format == "Default" else audio_format.format
            return self.save(f"{audio_format.name}.{audio_format.sample_rate or 22050}.{kind}", audio)

        with ThreadPoolExecutor(16) as threads:
            return list(threads.map(speak, AudioFormat))

    def streaming(self) -> Any:
        callback = RecordingCallback()
        synthesizer = SpeechSynthesizer(
            model=MODEL,
            voice=VOICE,
            format=PCM,
            callback=callback,
            additional_params={"word_timestamp_enabled": True},
        )
        for text in ("One t", "wo three ", "four. ", "Five six."):
            synthesizer.streaming_call(text)
        synthesizer.streaming_complete(TIMEOUT_S * 1000)
        assert callback.calls == ["open", "complete", "close"], callback.calls
        words = [
            (word["text"], word["begin_time"], word["end_time"])
            for payload in callback.events
            if payload["output"]["type"] == "sentence-end"
            for word in payload["output"]["sentence"]["words"]
        ]
        return {"words": words, "audio": self.save("streaming.24000.pcm", callback.audio)}

    def flush(self) -> Any:
        callback = RecordingCallback()
        synthesizer = SpeechSynthesizer(model=MODEL, voice=VOICE, format=PCM, callback=callback)
        synthesizer.streaming_call("One")
        synthesizer.streaming_flush()
        started = time.monotonic()
        while not callback.audio and time.monotonic() < started + TIMEOUT_S:
            time.sleep(0.01)
        assert callback.audio, "nothing was spoken at the flush"
        synthesizer.streaming_complete(TIMEOUT_S * 1000)

    def asynchronous(self) -> Any:
        callback = RecordingCallback()
        synthesizer = SpeechSynthesizer(model=MODEL, voice=VOICE, callback=callback)
        assert synthesizer.call(TEXT) is None
        assert callback.ended.wait(TIMEOUT_S)
        assert not callback.errors
        return self.save("asynchronous.mp3", callback.audio)

    def parameters(self) -> Any:
        audio = SpeechSynthesizer(
            model=MODEL,
            voice=VOICE,
            format=PCM,
            volume=100,
            speech_rate=1.5,
            pitch_rate=1.1,
            seed=65_535,
            instruction="Speak calmly.",
            language_hints=["en"],
            additional_params={"enable_markdown_filter": True, "no_such_parameter": [1]},
            **({} if IS_1 else {"hot_fix": {"replace": [{"a": "b"}]}}),
        ).call(TEXT)
        return self.save("parameters.24000.pcm", audio)

    def ssml(self) -> Any:
        synthesizer = SpeechSynthesizer(model=MODEL, voice=VOICE, format=PCM)
        audio = synthesizer.call('<speak>One <sub alias="two three">2 3</sub></speak>')
        usage = synthesizer.get_response()["payload"]["usage"]
        assert usage["characters"] == len("One 2 3")  # tags and their attributes are not counted
        return self.save("ssml.24000.pcm", audio)

    def pool_of_20(self) -> Any:
        """Run three tasks with each of twenty voices on a pool of twenty connections."""
        pool = SpeechSynthesizerObjectPool(max_size=20)
        used: set[int] = set()

        def run_borrower(number: int) -> list[str]:
            files = []
            for task in range(3):
                callback = RecordingCallback()
                synthesizer = pool.borrow_synthesizer(
                    model=MODEL, voice=f"tone-{300 + 150 * number}", format=PCM, callback=callback
                )
                used.add(id(synthesizer.ws))
                synthesizer.call(TEXT)
                assert callback.ended.wait(TIMEOUT_S)
                assert not callback.errors, callback.errors
                files.append(self.save(f"pool-{number}-{task}.24000.pcm", callback.audio))
                # The SDK's own thread may set it after the object is borrowed again.
                while not synthesizer._stopped.is_set():
                    time.sleep(0.001)
                pool.return_synthesizer(synthesizer)
            return files

        try:
            with ThreadPoolExecutor(20) as threads:
                files = list(threads.map(run_borrower, range(20)))
            self._failure_in(pool)
        finally:
            pool.shutdown()
        return {"files": files, "sockets": len(used)}

    def _failure_in(self, pool: SpeechSynthesizerObjectPool) -> None:
        """Check that a connection still speaks after a task on it has failed."""
        callback = RecordingCallback()
        synthesizer = pool.borrow_synthesizer(model=MODEL, voice="unknown", callback=callback)
        socket = synthesizer.ws.sock
        try:
            synthesizer.call(TEXT)
        except Exception:
            assert not IS_1  # 1.x reports it in on_error only
        assert callback.ended.wait(TIMEOUT_S)
        assert "418" in callback.errors[0], callback.errors
        assert json.loads(callback.errors[0])["header"]["error_code"] == "InvalidParameter"
        synthesizer._stopped.wait(1.0)
        pool.return_synthesizer(synthesizer)
        for _ in range(20):  # the pool lends its oldest object first: repeat until this one comes back
            callback = RecordingCallback()
            synthesizer = pool.borrow_synthesizer(model=MODEL, voice=VOICE, format=PCM, callback=callback)
            synthesizer.call("One.")
            assert callback.ended.wait(TIMEOUT_S)
            assert not callback.errors
            synthesizer._stopped.wait(TIMEOUT_S)
            was_same = synthesizer.ws.sock is socket and socket.connected
            pool.return_synthesizer(synthesizer)
            if was_same:
                return
        raise AssertionError("the connection was lost with the task")

    def failure(self) -> Any:
        """Fail with an unknown voice: 2.x raises, 1.x returns None."""
        synthesizer = SpeechSynthesizer(model=MODEL, voice="unknown")
        if IS_1:
            try:
                assert synthesizer.call(TEXT, timeout_millis=5_000) is None
            except Exception as error:
                return str(error)
            return "None"
        try:
            synthesizer.call(TEXT)
        except Exception as error:
            assert (type(error).__name__, error.name) == ("RequestFailure", "InvalidParameter")
            assert "418" in error.message
            assert error.request_id == synthesizer.get_last_request_id()
            return str(error)
        raise AssertionError("it did not fail")

    def cancel(self) -> Any:
        callback = RecordingCallback()
        synthesizer = SpeechSynthesizer(model=MODEL, voice=VOICE, format=PCM, callback=callback)
        synthesizer.streaming_call(LONG)
        while not callback.audio:
            time.sleep(0.01)
        if IS_1:
            synthesizer.streaming_cancel()
        else:
            synthesizer.streaming_cancel(TIMEOUT_S * 1000)  # without an argument it waits without a limit
            assert "complete" in callback.calls, callback.calls
        assert len(callback.audio) < 2 * 24_000 * 0.2 * 3_999

    def wrong_key(self) -> Any:
        """Use a wrong key: the server refuses it with 401, the SDK reports a timeout after its 5 s."""
        headers = {"Authorization": "Bearer wrong"}
        synthesizer = SpeechSynthesizer(model=MODEL, voice=VOICE, headers=headers)
        try:
            synthesizer.call(TEXT)
        except TimeoutError:
            return None
        raise AssertionError("a wrong key was accepted")

    def http(self) -> Any:
        result = HttpSpeechSynthesizer.call(model=MODEL, text=TEXT, voice=VOICE)
        assert IS_1 or (result.status_code, result.usage["characters"]) == (200, len(TEXT))
        assert result.expires_at > time.time()
        assert result.audio_id
        import requests

        return self.save("http.wav", requests.get(result.audio_url, timeout=TIMEOUT_S).content)

    def http_stream(self) -> Any:
        *pieces, last = HttpSpeechSynthesizer.call(
            model=MODEL, text=TEXT, voice=VOICE, audio_format="mp3", sample_rate=22_050, stream=True
        )
        assert pieces
        assert last.audio_url
        audio = b"".join(piece.audio_data for piece in pieces)
        assert last.audio_data == audio
        return self.save("http-stream.mp3", audio)

    def http_failure(self) -> Any:
        """Fail over HTTP: 1.x raises always, 2.x for a streamed answer only."""
        if not IS_1:
            result = HttpSpeechSynthesizer.call(model=MODEL, text=TEXT, voice="unknown")
            assert (result.status_code, result.code) == (400, "InvalidParameter")
        for stream in (False, True) if IS_1 else (True,):
            try:
                list(HttpSpeechSynthesizer.call(model=MODEL, text=TEXT, voice="unknown", stream=stream))
            except RuntimeError as error:
                assert "400" in str(error)
                continue
            raise AssertionError("it did not fail")

    def enrolment(self) -> Any:
        service = VoiceEnrollmentService()
        created = service.create_voice("cosyvoice-v3-flash", "anna", RECORDING, language_hints=["en"])
        assert created.startswith("cosyvoice-v3-flash-anna-"), created
        assert [voice["voice_id"] for voice in service.list_voices(prefix="anna")] == [created]
        assert [voice["voice_id"] for voice in service.list_voices(page_index=0, page_size=10)] == [created]
        assert service.query_voice(created)["status"] == "OK"
        assert SpeechSynthesizer(model=MODEL, voice=created).call("One two.")
        service.update_voice(created, RECORDING)
        service.delete_voice(created)
        assert service.list_voices() == []
        assert service.get_last_request_id()
        try:
            service.query_voice(created)
        except VoiceEnrollmentException as error:
            assert error._code == "BadRequest.ResourceNotExist"
            return str(error)
        raise AssertionError("a deleted voice was found")


def run(cases: Cases, name: str) -> dict[str, Any]:
    started = time.monotonic()
    try:
        found = getattr(cases, name)()
        return {"case": name, "passed": True, "found": found, "took_s": round(time.monotonic() - started, 2)}
    except BaseException:
        return {"case": name, "passed": False, "found": traceback.format_exc()[-2_000:]}


def main() -> None:
    out = Path(sys.argv[1])
    cases = Cases(out)
    names = [name for name in vars(Cases) if not name.startswith("_") and name != "save"]
    with ThreadPoolExecutor(6) as threads:
        results = list(threads.map(lambda name: run(cases, name), names))
    (out / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
