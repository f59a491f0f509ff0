"""A whole gateway, asked as clients of Kokoro-FastAPI, LocalAI, Open WebUI and of OpenAI's own API ask."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from shared.audio.recordings import recording
from shared.audio.tones import pitch_of
from shared.engine import standin_backend
from shared.engine.standin_backend import WORD_S
from shared.gateways.running_gateway import PITCHES_HZ, ask_gateway
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.apis.shell import speech_job
from vivavoce.gateway.apis.shell.speech_server import SpeechApiPolicy
from vivavoce.tts_engine.backends.base import StepResult
from vivavoce.tts_engine.chunk import Phoneme
from vivavoce.tts_engine.voices.store import VoiceStore

TEN_LETTERS = "Good day. "  # as many characters as the tests' key may speak in a minute
LISTS = ("/v1/models", "/v1/models/tts-1", "/v1/audio/models", "/v1/audio/voices")


async def speak(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    body = {"input": "One two three.", "response_format": "pcm", **fields}
    return await client.post("/v1/audio/speech", json=body)


async def pitch(client: httpx.AsyncClient, **fields: Any) -> int:
    """The pitch of the voice that answers, in Hz."""
    answer = await speak(client, **fields)
    assert answer.status_code == 200, answer.text
    return min(PITCHES_HZ, key=lambda pitch: abs(pitch - pitch_of(answer.content)))


# Names of models and voices


@pytest.mark.parametrize("model", ["kokoro", "chatterbox", "hexgrad/Kokoro-82M", "whisper-1", "tts-1", ""])
def test_any_model_is_the_loaded_one(model: str) -> None:
    async def questions(client: httpx.AsyncClient) -> None:
        assert await pitch(client, model=model, voice="alloy") == 440
        if model:
            assert (await client.get(f"/v1/models/{model}")).json()["id"] == model

    ask_gateway(questions)


def test_a_model_may_be_the_name_of_a_voice_as_with_localai() -> None:
    async def questions(client: httpx.AsyncClient) -> None:
        assert await pitch(client, model="tone-330") == 330
        assert await pitch(client, model="Tone-330", voice="") == 330
        assert await pitch(client, model="tone-330", voice="tone-330") == 330
        assert await pitch(client, model="tone-330", voice="tone-440") == 440
        # wyoming-openai repeats the model where it knows no voice.
        assert await pitch(client, model="voice-en-us-amy-low", voice="voice-en-us-amy-low") == 440
        assert (await speak(client, model="kokoro", voice="amy")).status_code == 400

    ask_gateway(questions)


@pytest.mark.parametrize(
    ("voice", "hertz"),
    [("Alloy", 440), ("ALLOY", 440), ("", 440), ("Tone-330", 330), ("Reception", 330), ("ZOË", 330)],
)
def test_voices_are_named_in_upper_or_lower_case(voice: str, hertz: int) -> None:
    async def questions(client: httpx.AsyncClient) -> None:
        assert await pitch(client, model="tts-1", voice=voice) == hertz

    ask_gateway(questions, voices_aliases={"reception": "tone-330", "zoë": "tone-330"})


# Lists


def test_lists_need_no_key_if_they_are_public(tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("client", (Scope.SPEAK, Scope.ENROLL), KeyLimits())
    caller = keys.add("caller", (Scope.CALLS,), KeyLimits())

    async def questions(client: httpx.AsyncClient) -> None:
        for path in LISTS:
            assert (await client.get(path)).status_code == 200
            assert (await client.get(path, headers={"authorization": "Bearer"})).status_code == 200
            assert (await client.get(path, headers={"authorization": "Bearer wrong"})).status_code == 401
            assert (await client.get(path, headers={"authorization": f"Bearer {caller}"})).status_code == 403
            assert (await client.get(path, headers={"api-key": key})).status_code == 200
            assert (await client.get(path, headers={"origin": "https://evil.example"})).status_code == 403
        voices = (await client.get("/v1/audio/voices")).json()
        assert [voice["id"] for voice in voices["voices"]] == ["tone-440", "tone-330"]
        models = (await client.get("/v1/audio/models")).json()["models"]  # as Open WebUI reads them
        assert {"tts-1"} <= {model["id"] for model in models}
        assert (await speak(client)).status_code == 401
        assert (await client.delete("/v1/audio/voices/tone-440")).status_code == 401

    ask_gateway(questions, access_keys_file=tmp_path / "keys.json", access_without_key="lists")


def test_lists_need_a_key_by_default(tmp_path: Path) -> None:
    KeysFile(tmp_path / "keys.json").add("client", (Scope.SPEAK,), KeyLimits())

    async def questions(client: httpx.AsyncClient) -> None:
        for path in LISTS:
            assert (await client.get(path)).status_code == 401

    ask_gateway(questions, access_keys_file=tmp_path / "keys.json")


@pytest.mark.parametrize(
    ("query", "has_names"), [("", False), ("?legacy=true", True), ("?legacy=false", False)]
)
def test_a_list_of_voices_has_objects_or_names(query: str, has_names: bool) -> None:
    async def questions(client: httpx.AsyncClient) -> None:
        voices = (await client.get(f"/v1/audio/voices{query}")).json()["voices"]
        assert [voice if has_names else voice["id"] for voice in voices] == ["tone-440", "tone-330"]

    ask_gateway(questions)


# Players that can only GET


def test_a_player_that_can_only_get_hears_what_a_post_says(tmp_path: Path) -> None:
    key = KeysFile(tmp_path / "keys.json").add("radio", (Scope.SPEAK,), KeyLimits())

    async def questions(client: httpx.AsyncClient) -> None:
        fields = {"input": "One two & three.", "voice": "alloy", "response_format": "wav", "speed": "1.5"}
        heard = await client.get("/v1/audio/speech", params={**fields, "stream": "false"}, auth=("any", key))
        assert (heard.status_code, heard.headers["content-type"]) == (200, "audio/wav")
        body = {**fields, "speed": 1.5, "stream": False}
        posted = await client.post("/v1/audio/speech", json=body, auth=("any", key))
        assert heard.content == posted.content
        for wrong, message in (
            ({}, "'input' is required"),
            ({"input": "One.", "speed": "fast"}, "'speed' is 'fast'; a number is needed"),
            ({"input": "One.", "speed": "9"}, "'speed' is 9; allowed is 0.25 to 4"),
            ({"input": "One.", "stream": "maybe"}, "'stream' is 'maybe'; true or false is needed"),
        ):
            refused = await client.get("/v1/audio/speech", params=wrong, auth=("any", key))
            assert (refused.status_code, refused.json()["error"]["message"]) == (400, message)
        assert (await client.get("/v1/audio/speech", params=fields)).status_code == 401

    ask_gateway(questions, access_keys_file=tmp_path / "keys.json")


def test_a_key_may_get_complete_wavs_where_a_client_cannot_ask_for_them(tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    radio = keys.add("radio", (Scope.SPEAK,), KeyLimits(), complete_wav=True)
    usual = keys.add("usual", (Scope.SPEAK,), KeyLimits())

    async def questions(client: httpx.AsyncClient) -> None:
        async def wav_size(key: str, **fields: Any) -> tuple[int, int, bool]:
            """The size that the header states, the size there is, and whether Content-Length was stated."""
            client.headers["authorization"] = f"Bearer {key}"
            answer = await speak(client, response_format="wav", voice="alloy", **fields)
            stated = int.from_bytes(answer.content[40:44], "little")
            return stated, len(answer.content) - 44, "content-length" in answer.headers

        stated, real, has_length = await wav_size(radio)
        assert (stated, has_length) == (real, True)
        assert (await wav_size(radio, stream=None))[0] == real
        assert (await wav_size(radio, stream=True))[0] > 2**31
        assert (await wav_size(usual))[0] > 2**31
        assert (await wav_size(usual, stream=False))[0] == real
        client.headers["authorization"] = f"Bearer {radio}"
        for codec in ("mp3", "pcm"):
            assert "content-length" not in (await speak(client, response_format=codec)).headers
        by_url = {"input": "One two three.", "voice": "alloy", "response_format": "wav"}
        assert "content-length" in (await client.get("/v1/audio/speech", params=by_url)).headers
        events = await speak(client, response_format="wav", stream_format="sse")
        assert events.headers["content-type"].startswith("text/event-stream")
        assert len(await captioned(client, response_format="wav")) > 1  # its lines stay lines

    ask_gateway(questions, access_keys_file=tmp_path / "keys.json")


def test_another_sites_page_cannot_have_a_text_spoken_by_a_server_without_keys() -> None:
    async def questions(client: httpx.AsyncClient) -> None:
        for site, status in (("cross-site", 403), ("same-origin", 200)):
            headers = {"sec-fetch-site": site, "sec-fetch-dest": "audio"}
            heard = await client.get("/v1/audio/speech", params={"input": "One."}, headers=headers)
            assert heard.status_code == status

    ask_gateway(questions)


# Captions


async def captioned(client: httpx.AsyncClient, **fields: Any) -> list[dict[str, Any]]:
    body = {
        "model": "kokoro",
        "input": "One two three.",
        "voice": "alloy",
        "response_format": "pcm",
        **fields,
    }
    answer = await client.post("/dev/captioned_speech", json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    return [json.loads(line) for line in answer.text.splitlines()]


@pytest.mark.parametrize("codec", ["pcm", "mp3", "wav", "opus"])
def test_captions_have_the_audio_and_the_time_of_every_word(codec: str) -> None:
    async def questions(client: httpx.AsyncClient) -> None:
        plain = await speak(client, voice="alloy", response_format=codec)
        pieces = await captioned(client, response_format=codec)
        (whole,) = await captioned(client, response_format=codec, stream=False)
        assert len(pieces) > 1
        assert {piece["audio_format"] for piece in pieces} == {plain.headers["content-type"]}
        words = [word for piece in pieces for word in piece["timestamps"]]
        assert [word["word"].strip(".") for word in words] == ["One", "two", "three"]
        starts = [word["start_time"] for word in words]
        assert starts == pytest.approx([0.0, WORD_S, 2 * WORD_S], abs=0.03)
        assert all(word["start_time"] < word["end_time"] for word in words)
        assert whole["timestamps"] == words
        if codec in ("pcm", "mp3", "wav"):  # Ogg streams have a random serial number
            audio = b"".join(base64.b64decode(piece["audio"]) for piece in pieces)
            assert audio == plain.content
            file = await speak(client, voice="alloy", response_format=codec, stream=False)
            assert base64.b64decode(whole["audio"]) == file.content  # with its true length

    ask_gateway(questions)


def test_captions_without_word_times_have_none() -> None:
    async def questions(client: httpx.AsyncClient) -> None:
        pieces = await captioned(client, return_timestamps=False)
        assert {len(piece["timestamps"]) for piece in pieces} == {0}
        refused = await client.post("/dev/captioned_speech", json={"input": "", "voice": "alloy"})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input")

    ask_gateway(questions)


@pytest.mark.parametrize("stream", [True, False])
def test_captions_have_subtitles_of_the_whole_speech_in_the_last_line(stream: bool) -> None:
    async def questions(client: httpx.AsyncClient) -> None:
        text = "One, two.  Three (four) & five!"
        *before, last = await captioned(client, input=text, subtitles_format="vtt", stream=stream)
        assert not any("subtitles" in line for line in before)
        begin, first, second = last["subtitles"].split("\n\n")
        assert begin == "WEBVTT" and first.startswith("00:00:00.000 --> 00:00:00.4")
        assert [cue.rstrip().splitlines()[1:] for cue in (first, second)] == [
            ["One, two."],
            ["Three (four) &amp; five!"],
        ]
        refused = await client.post("/dev/captioned_speech", json={"input": text, "subtitles_format": "ass"})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "subtitles_format")

    ask_gateway(questions)


@pytest.mark.parametrize("stream", [True, False])
def test_captions_have_phonemes_with_visemes_if_they_are_asked_for(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standin_backend, "_render_tone", with_phonemes(standin_backend._render_tone))

    async def questions(client: httpx.AsyncClient) -> None:
        fields = {"input": "One two. Three.", "stream": stream, "leading_silence_ms": 100}
        lines = await captioned(client, **fields, return_phonemes=True)
        phonemes = [phoneme for line in lines for phoneme in line["phonemes"]]
        shapes = [(phoneme["phoneme"], phoneme["viseme"]) for phoneme in phonemes]
        word = [("m", 21), ("aɪ", 11)]
        assert shapes == [("", 0), *word, *word, ("", 0), *word, ("", 0)]
        times = [phoneme["start_time"] for phoneme in phonemes]
        assert times[:6] == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.5], abs=1e-6)
        starts = [word["start_time"] for line in lines for word in line["timestamps"]]
        assert times[6] == pytest.approx(starts[2])
        assert all("phonemes" not in line for line in await captioned(client, **fields))

    ask_gateway(questions)


def with_phonemes(render: Callable[..., StepResult]) -> Callable[..., StepResult]:
    """A stand-in that says "my", of two sounds of 0.1 s, for each word."""

    def render_phonemes(*turn: Any) -> StepResult:
        result = render(*turn)
        (word,) = result.words
        middle_s = (word.start_s + word.stop_s) / 2
        sounds = (Phoneme("m", word.start_s, middle_s), Phoneme("aɪ", middle_s, word.stop_s))
        return replace(result, words=(replace(word, phonemes=sounds),))

    return render_phonemes


def test_captioned_speech_in_one_line_has_the_limit_of_a_file(
    run_every_api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speech_job, "MAX_FILE_S", 1)

    async def test(served: Any) -> None:
        body = {"input": "One two three four five six.", "response_format": "pcm"}
        whole = await served.client.post("/dev/captioned_speech", json={**body, "stream": False})
        assert (whole.status_code, "longer than 1 s" in whole.json()["error"]["message"]) == (400, True)
        assert (await served.client.post("/dev/captioned_speech", json=body)).status_code == 200

    run_every_api(test)


# Limits


def test_a_text_that_never_fits_the_limit_of_the_key_is_a_bad_request_in_every_dialect(
    tmp_path: Path,
) -> None:
    scopes = (Scope.SPEAK, Scope.CALLS)
    key = KeysFile(tmp_path / "keys.json").add("client", scopes, KeyLimits(characters_per_minute=10))
    text = "One two three four."

    async def questions(client: httpx.AsyncClient) -> None:
        client.headers["x-api-key"] = key
        spoken = [await speak(client, input=text)]
        spoken.append(await client.post("/dev/captioned_speech", json={"input": text}))
        for answer in spoken:
            error = answer.json()["error"]
            assert (answer.status_code, error["param"]) == (400, "input")
            assert "19 characters" in error["message"]
            assert "10 characters a minute" in error["message"]
            assert "retry-after" not in answer.headers
        body = {"model": "cosyvoice-v2", "input": {"text": text, "voice": "longanyang"}}
        answer = await client.post("/api/v1/services/audio/tts/SpeechSynthesizer", json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "InvalidParameter")
        assert "10 characters a minute" in answer.json()["message"]
        assert (await speak(client, input="One two.")).status_code == 200
        later = await speak(client, input="One two.")
        assert (later.status_code, int(later.headers["retry-after"]) <= 60) == (429, True)

    ask_gateway(questions, access_keys_file=tmp_path / "keys.json")


DASHSCOPE_SPEECH = "/api/v1/services/audio/tts/SpeechSynthesizer"
SPEECH_REQUESTS: dict[str, dict[str, Any]] = {
    "/v1/audio/speech": {"input": TEN_LETTERS},
    "/v1/audio/speech?": {"input": TEN_LETTERS, "stream": False},  # one complete file
    "/dev/captioned_speech": {"input": TEN_LETTERS},
    "/v1/text-to-speech/tone-440": {"text": TEN_LETTERS},
    "/tts/bytes": {
        "model_id": "sonic",
        "transcript": TEN_LETTERS,
        "voice": {"mode": "id", "id": "tone-440"},
        "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000},
    },
    "/v1/speak": {"text": TEN_LETTERS},
    "/tts/v1/voice": {"text": TEN_LETTERS, "voiceId": "tone-440", "modelId": "inworld-tts-1"},
    "/jambonz/tts": {"text": TEN_LETTERS, "voice": "tone-440", "type": "text", "language": "en"},
    "/v1/model/cosyvoice/tts": {"text": TEN_LETTERS},
    DASHSCOPE_SPEECH: {"model": "cosyvoice-v2", "input": {"text": TEN_LETTERS, "voice": "tone-440"}},
}


@pytest.mark.parametrize("path", SPEECH_REQUESTS)
def test_a_text_that_the_full_engine_refuses_is_free_in_every_dialect(
    path: str, tmp_path: Path, run_every_api: Any
) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("client", (Scope.SPEAK, Scope.CALLS), KeyLimits(characters_per_minute=10))

    async def test(served: Any) -> None:
        async def status() -> int:
            answer = await served.client.post(
                path, json=SPEECH_REQUESTS[path], headers={"authorization": f"Bearer {key}"}
            )
            return int(answer.status_code)

        async with served.apis.server.engine.stream():
            assert await status() == (429 if path == DASHSCOPE_SPEECH else 503)
        assert await status() == 200
        assert await status() == 429

    run_every_api(test, access=AccessControl(keys), max_streams=1)


@pytest.mark.parametrize("path", SPEECH_REQUESTS)
def test_a_text_in_a_language_that_the_voice_lacks_is_refused_where_the_settings_say_so(
    path: str, run_every_api: Any
) -> None:
    german = "Guten Tag, wie geht es Ihnen heute?"
    body = json.dumps(SPEECH_REQUESTS[path])
    states_a_language = '"language"' in body

    async def test(served: Any) -> None:
        answer = await served.client.post(path, json=json.loads(body.replace(TEN_LETTERS, german)))
        assert answer.status_code == (200 if states_a_language else 400)
        assert states_a_language or "seems to be in 'de'" in answer.text
        assert (await served.client.post(path, json=json.loads(body))).status_code == 200

    run_every_api(test, language="en", policy=SpeechApiPolicy(refuses_guessed_languages=True))


def test_a_text_for_an_unknown_voice_of_dashscope_is_free(tmp_path: Path, run_every_api: Any) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("client", (Scope.SPEAK,), KeyLimits(characters_per_minute=10))

    async def test(served: Any) -> None:
        for voice, status in (("anna", 400), ("tone-440", 200)):
            body = {"model": "cosyvoice-v2", "input": {"text": TEN_LETTERS, "voice": voice}}
            headers = {"authorization": f"Bearer {key}"}
            answer = await served.client.post(DASHSCOPE_SPEECH, json=body, headers=headers)
            assert answer.status_code == status, answer.text

    run_every_api(test, access=AccessControl(keys))


def test_a_voice_is_deleted_by_its_name_as_written_only(
    run: Any, store: VoiceStore, decoded_in_this_process: None
) -> None:
    async def test(served: Any) -> None:
        path, upload = "/v1/audio/voices", {"audio_sample": ("a.wav", recording(), "audio/wav")}
        data = {"name": "Zoë", "consent": "I agree."}
        assert (await served.client.post(path, data=data, files=upload)).status_code == 200
        for name in ("Zoë", "ZOË", "zoë"):
            assert (await served.post(voice=name)).status_code == 200
        assert (await served.client.delete(f"{path}/ZOË")).status_code == 404
        assert (await served.client.delete(f"{path}/Zoë")).status_code == 200

    run(test, store=store)
